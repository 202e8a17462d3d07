"""Why a Vela-compiled file will not run on a board: what its driver, TFLite Micro and the board demand, then a run.

Invariant: a finding names the tensor, operator or bytes concerned, the numbers on both sides, and what to do; nothing
is called right that was not looked at. Positions are those of the file itself; no operator is called known that TFLite
Micro was not tried with. What a stream touches is read from the stream, not believed from the file. A file that fails a
check before the run is still run where that means something, so that every fault is named at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.tflite import data_offsets
from npu_memplan.models.vela import LEAST_STRUCTURE_BYTES, NpuCall
from npu_memplan.problem import Agent
from npu_memplan.process.programs import ending_signal
from npu_memplan.sizes import format_size
from npu_memplan.target_data import Board, BoardMemory

from .npu_model.checks.footprint import region_extents
from .npu_model.errors import NpuModelError
from .npu_model.model import NpuModel
from .npu_model.network import LayerRecorder, NetworkModel, compare_layers
from .references.base import ReferenceRunError
from .references.interpreters import KernelError, cut_part, open_interpreter
from .references.kernels import describe_disagreements, find_disagreements
from .references.opened import open_tflite
from .result import Array, compare_outputs


class Level(Enum):
    """How bad it is; the value is printed."""

    RIGHT = "ok"
    NOTE = "note"
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Remark:
    level: Level
    topic: str
    text: str

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level.value, "topic": self.topic, "text": self.text}


ALIGNMENT = 16  # of payloads, constants and tensors in the arena: bytes that the NPU's ports carry at once
NPU_OPERATOR = "ethos-u"


def check_accelerators(network: Network, board: Board, remedy: str = "") -> Iterator[Remark]:
    """Whether the board has the NPU of each payload, and what the driver compares; `remedy`: another command."""
    remedy = remedy or (
        "compile the original model for the board: npu-memplan compile MODEL.tflite "
        f"--board {board.name} --emit vela-tflite -o FILE.tflite"
    )
    for call in network.npu_calls:
        what, npu = f"operator {call.index}", call.accelerator
        if npu.name not in board.accelerators:
            yield Remark(
                Level.WRONG, "accelerator",
                f"{what} is compiled for {npu.name} (CONFIG {npu.config_word:#010x}); board {board.name} has "
                f"{', '.join(board.accelerators)}: its driver refuses the payload; {remedy}",
            )  # fmt: skip
            continue
        made, has = _version_parts(call.payload.architecture_id), _version_parts(npu.id_word)
        if made[0] != has[0] or made[1] > has[1]:
            yield Remark(
                Level.WRONG, "versions",
                f"{what} is for architecture {_version_text(made)}, {npu.name} is {_version_text(has)}: the driver "
                "wants the same major version and an NPU that is not older; compile it with the Vela of your driver's "
                "release",
            )  # fmt: skip
            continue
        yield Remark(
            Level.RIGHT, "accelerator",
            f"{what}: {npu.name}, architecture {_version_text(made)}, {call.payload.container.value.decode()}",
        )  # fmt: skip


def _version_parts(identification: int) -> tuple[int, int, int]:
    """Architecture major, minor, patch of the word ID."""
    return identification >> 28, identification >> 20 & 0xFF, identification >> 16 & 0xF


def _version_text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def check_alignments(network: Network, data: bytes) -> Iterator[Remark]:
    """Whether payloads, constants and planned tensors begin where driver and NPU need them."""
    offsets = data_offsets(data)
    wrong = False
    for call in network.npu_calls:
        for what, tensor in (("payload", call.stream_tensor), ("constants", call.constants_tensor)):
            at = offsets.get(tensor, 0)
            if at % ALIGNMENT:
                wrong = True
                yield Remark(
                    Level.WRONG, "alignment",
                    f"the {what} of operator {call.index} (tensor {tensor}) begin at byte {at} of the file, "
                    f"{at % ALIGNMENT} beyond a multiple of {ALIGNMENT}: the driver refuses them; write the file again "
                    "with its buffers aligned",
                )  # fmt: skip
    for tensor_ in network.tensors:
        if tensor_.arena_offset >= 0 and tensor_.arena_offset % ALIGNMENT:
            wrong = True
            yield Remark(
                Level.WRONG, "alignment",
                f"tensor {tensor_.index} {tensor_.name!r} is planned at offset {tensor_.arena_offset} of the arena, no "
                f"multiple of {ALIGNMENT}",
            )  # fmt: skip
    if not wrong:
        text = (
            f"payloads, constants and planned tensors at multiples of {ALIGNMENT}; align the file in memory to it too"
        )
        yield Remark(Level.RIGHT, "alignment", text)


def check_operators(
    network: Network, data: bytes, registered: Collection[str], board: Board | None, path: str
) -> Iterator[Remark]:
    """Whether the resolver has every operator: of those given, or of all that TFLite Micro has, for `path`."""
    needed = dict.fromkeys([*(NPU_OPERATOR for _ in network.npu_calls), *(o.name for o in network.cpu_operators)])
    listed = ", ".join(needed)
    if not network.npu_calls:
        why = network.why_nothing_runs_on_the_npu(path, "" if board is None else f"--board {board.name} ")
        yield Remark(Level.WRONG, "operators", why)
    missing = [name for name in needed if registered and name not in registered]
    for name in missing:
        yield Remark(
            Level.WRONG, "operators",
            f"{name} is needed and not among the registered ({', '.join(registered)}): AllocateTensors fails; "
            "register it",
        )  # fmt: skip
    unknown = [] if registered else list(_without_kernel(network, data))
    yield from unknown
    if not missing and not unknown and network.npu_calls:
        yield Remark(Level.RIGHT, "operators", f"the firmware has to register {listed}")


def _without_kernel(network: Network, data: bytes) -> Iterator[Remark]:
    for operator in network.cpu_operators:
        reason = _kernel_refusal(network, operator, data)
        if reason:
            yield Remark(
                Level.WRONG, "operators",
                f"operator {operator.index} {operator.name}: TFLite Micro does not run it ({reason}); a firmware needs "
                "a kernel of its own, or the operator on the NPU",
            )  # fmt: skip


def _kernel_refusal(network: Network, operator: CpuOperator, data: bytes) -> str:
    """Why TFLite Micro's own kernels do not take an operator; empty when they do."""
    try:
        alone, name = cut_part(data, network, (operator,))[0], f"operator {operator.index}"
        if number := ending_signal(lambda: open_interpreter(alone, name)):
            return f"its kernel ends the program with signal {number}"
        open_interpreter(alone, name)
    except KernelError as error:
        return str(error).partition(": ")[2] or str(error)
    except ReferenceRunError:
        return ""  # it cannot be tried: the run will show
    return ""


_NAMES = {0: "constants", 1: "arena", 2: "fast scratch"}


def check_regions(network: Network) -> Iterator[Remark]:
    """Whether every base pointer that a stream uses is there, and holds what the stream touches."""
    for call in network.npu_calls:
        model = NpuModel(call.accelerator, checks=False)
        try:
            reach = region_extents(model.prepare_stream(call.words))
        except NpuModelError as error:
            yield Remark(Level.WRONG, "stream", f"operator {call.index}: {error}")
            continue
        sizes = _region_sizes(network, call)
        found = list(_too_far(call, reach, sizes))
        yield from found
        if not found:
            names = _NAMES if call.resident is None else {**_NAMES, 3: "resident constants"}
            used = ", ".join(f"{names.get(r, f'region {r}')} {format_size(n)}" for r, n in sorted(reach.items()) if n)
            yield Remark(Level.RIGHT, "regions", f"operator {call.index} touches {used}, all within what it is given")


def _region_sizes(network: Network, call: NpuCall) -> dict[int, int]:
    """Region -> bytes that the operator's tensors give it."""
    tensors = network.tensors
    sizes = {0: call.read_only.nbytes, 1: call.scratch_bytes, 2: call.scratch_fast_bytes or call.scratch_bytes}
    given = [tensors[index].size_bytes for index in (*call.inputs, *call.outputs)]
    if call.resident is not None:
        given.insert(0, call.resident.nbytes)
    sizes |= dict(enumerate(given, 3))
    return {region: size for region, size in sizes.items() if region < 8}


def _too_far(call: NpuCall, reach: dict[int, int], sizes: dict[int, int]) -> Iterator[Remark]:
    for region, end in sorted(reach.items()):
        if not end:
            continue
        name = _NAMES.get(region, f"region {region}")
        if region not in sizes:
            yield Remark(
                Level.WRONG, "regions",
                f"operator {call.index} uses region {region}, but its tensors give base pointers 0 to {max(sizes)}: "
                "the NPU reads at an address that was never set",
            )  # fmt: skip
        elif end > sizes[region]:
            yield Remark(
                Level.WRONG, "arena" if region == 1 else "regions",
                f"operator {call.index} touches {end:,} bytes of region {region} ({name}), the file gives it "
                f"{sizes[region]:,}: {end - sizes[region]:,} too few",
            )  # fmt: skip


def check_arena(network: Network, given_bytes: int | None) -> Iterator[Remark]:
    """Whether planned tensors are in the arena that the NPU is given, and what of an arena is known to be needed."""
    ends = {t.index: t.arena_offset + t.size_bytes for t in network.tensors if t.arena_offset >= 0}
    if not ends:
        yield Remark(Level.NOTE, "arena", "the file plans no tensor: TFLite Micro does, when it starts")
        return
    least = max(ends.values())  # with the fast scratch, whose tensor TFLite Micro places like any other
    scratch = {call.scratch_tensor for call in network.npu_calls}
    promised = max((ends.get(t, 0) for t in scratch), default=0)
    outside = [
        network.tensors[index]
        for call in network.npu_calls
        for index in (*call.inputs, *call.outputs)
        if index in ends and ends[index] > promised
    ]
    for tensor in {t.index: t for t in outside}.values():
        yield Remark(
            Level.WRONG, "arena",
            f"tensor {tensor.index} {tensor.name!r} ends at byte {ends[tensor.index]:,} of the arena, the NPU is given "
            f"{promised:,}: {ends[tensor.index] - promised:,} too few",
        )  # fmt: skip
    if given_bytes is not None and given_bytes < least:
        yield Remark(
            Level.WRONG, "arena",
            f"the arena has {given_bytes:,} bytes, the planned tensors need {least:,}: {least - given_bytes:,} too few"
            ", and TFLite Micro's own structures come on top",
        )  # fmt: skip
    elif given_bytes is not None and given_bytes < least + LEAST_STRUCTURE_BYTES:
        yield Remark(
            Level.WRONG, "arena",
            f"the arena has {given_bytes:,} bytes, the planned tensors need {least:,}: that leaves "
            f"{given_bytes - least:,} for TFLite Micro's own structures, which took at least {LEAST_STRUCTURE_BYTES} "
            "in Arm's firmware",
        )  # fmt: skip
    elif not outside:
        enough = "" if given_bytes is None else f" of {given_bytes:,}"
        text = f"planned tensors need {least:,} bytes{enough}"
        more = f"TFLite Micro adds its structures (at least {LEAST_STRUCTURE_BYTES}) and the scratch of its kernels"
        yield Remark(Level.RIGHT, "arena", f"{text}; {more}")
    shared = max((call.scratch_fast_bytes for call in network.npu_calls), default=0)
    if shared:
        text = f"ethosu_init is to get at least {shared:,} bytes of memory for base pointer 2 (fast scratch)"
        yield Remark(Level.NOTE, "arena", text)


def check_memories(network: Network, file_bytes: int, board: Board) -> Iterator[Remark]:
    """Whether the board has a memory that holds the arena and one that holds the file, where the NPU reaches them."""
    ends = [t.arena_offset + t.size_bytes for t in network.tensors if t.arena_offset >= 0]
    arena = [("arena", max(ends), False)] if ends else []
    for what, size, read_only in (*arena, ("file", file_bytes, True)):
        usable = [m for m in board.memories if Agent.NPU in m.agents and (read_only or not m.read_only)]
        fitting = [memory for memory in usable if memory.size_bytes >= size]
        if fitting:
            names = ", ".join(memory.name for memory in fitting)
            kept = any(memory.read_only for memory in fitting) or not read_only
            loading = "" if kept else board.loading_of(fitting[0], size)
            yield Remark(
                Level.RIGHT, "memory",
                f"{what}: {format_size(size)} fit {names} of {board.name}" + (f"; {loading}" if loading else ""),
            )  # fmt: skip
        else:
            yield Remark(
                Level.WRONG, "memory",
                f"{what}: {format_size(size)} fit no memory of board {board.name} that the NPU reaches: "
                f"{_list_memories(usable)}",
            )  # fmt: skip


def _list_memories(memories: list[BoardMemory]) -> str:
    return ", ".join(f"{memory.name} has {format_size(memory.size_bytes)}" for memory in memories) or "it has none"


_DISTINCTIVE_ELEMENTS = 16  # a tensor with fewer elements may equal another by chance


@dataclass(frozen=True, slots=True)
class FirmwareFacts:
    """A user's description of the firmware: operators of its resolver (none: unknown), its arena, original model."""

    registered: Collection[str] = ()
    arena_bytes: int | None = None
    reference: bytes | None = None
    path: str = "MODEL.tflite"  # of the file, for commands in messages


def check_network(
    network: Network, data: bytes, board: Board | None, requested: FirmwareFacts, inputs: Sequence[Array]
) -> list[Remark]:
    """Every finding, in the order in which a firmware would meet them; without `board`, not what it decides."""
    found = [
        *(check_accelerators(network, board) if board else ()),
        *check_alignments(network, data),
        *check_operators(network, data, requested.registered, board, requested.path),
        *check_regions(network),
        *check_arena(network, requested.arena_bytes),
        *(check_memories(network, len(data), board) if board else ()),
        *_check_hazards(network),
    ]
    if network.npu_calls:
        found += _check_run(network, data, requested, inputs)
    return found


def _check_hazards(network: Network) -> Iterator[Remark]:
    """Waits and block dependencies, which hardware does not check."""
    wrong = False
    for call in network.npu_calls:
        try:
            NpuModel(call.accelerator).prepare_stream(call.words)
        except NpuModelError as error:
            wrong = True
            yield Remark(Level.WRONG, "hazards", f"operator {call.index}: {error}")
    if not wrong and network.npu_calls:
        yield Remark(Level.RIGHT, "hazards", "no kernel or transfer starts before what it depends on has ended")


def _check_run(network: Network, data: bytes, requested: FirmwareFacts, values: Sequence[Array]) -> Iterator[Remark]:
    recorder = LayerRecorder()
    try:
        ran = NetworkModel(network, data).run(values, observer=recorder)
    except NpuMemplanError as error:
        yield Remark(Level.WRONG, "run", f"{type(error).__name__.removesuffix('Error')}: {error}")
        return
    done = "it runs on our NPU model"  # its time on the board is in the first line
    if requested.reference is None:
        yield Remark(Level.NOTE, "run", f"{done}; not compared: give --reference MODEL.tflite")
        return
    model = open_tflite(requested.reference, "the reference")
    expected = model.run(values)
    disagreement = describe_disagreements(find_disagreements(model, values, expected))
    if disagreement:
        yield Remark(Level.NOTE, "reference", disagreement)
    names = [network.tensors[i].name for i in network.outputs]
    first = compare_layers(model.network, model.layer_values(values), recorder.written).first
    where = "" if first is None else (
        f"the first layer that differs is {first.tensor!r}, made by {first.where}: {first.mismatches:,} of "
        f"{first.elements:,} elements"
    )  # fmt: skip
    if not compare_outputs("simulator", names, ran.outputs, expected).bit_exact:
        text = f"{done}; its outputs are not those of {model.what}"
        yield Remark(Level.WRONG, "run", f"{text}; {where}" if where else text)
    elif first is not None and first.elements >= _DISTINCTIVE_ELEMENTS and first.mismatches < first.elements / 2:
        yield Remark(Level.WRONG, "run", f"{done}; its outputs are right for this input, but {where}")
    else:
        yield Remark(Level.RIGHT, "run", f"{done}; bit-exact against {model.what}")
