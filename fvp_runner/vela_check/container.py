"""What driver and TFLite Micro read of a file before the NPU starts: its accelerator, alignments, operators.

Invariant: positions are those of the file itself; no operator is called known that TFLite Micro was not tried with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.tflite import data_offsets
from npu_memplan.target_data import Board

from ..references.base import ReferenceRunError
from ..references.micro import KernelError, open_interpreter
from ..references.part import cut_part
from .remark import Level, Remark

ALIGNMENT = 16  # of payloads, constants and tensors in the arena: bytes that the NPU's ports carry at once
NPU_OPERATOR = "ethos-u"


def accelerators(network: Network, board: Board) -> Iterator[Remark]:
    """Whether the board has the NPU that each payload is for, and what the driver compares."""
    for call in network.npu_calls:
        what, npu = f"operator {call.index}", call.accelerator
        if npu.name not in board.accelerators:
            yield Remark(
                Level.WRONG, "accelerator",
                f"{what} is compiled for {npu.name} (CONFIG {npu.config_word:#010x}); board {board.name} has "
                f"{', '.join(board.accelerators)}: its driver refuses the payload; compile the original model for "
                f"the board: npu-memplan compile MODEL.tflite --board {board.name} --emit vela-tflite -o FILE.tflite",
            )  # fmt: skip
            continue
        made, has = _version(call.payload.architecture_id), _version(npu.id_word)
        if made[0] != has[0] or made[1] > has[1]:
            yield Remark(
                Level.WRONG, "versions",
                f"{what} is for architecture {_text(made)}, {npu.name} is {_text(has)}: the driver wants the same "
                "major version and an NPU that is not older; compile it with the Vela of your driver's release",
            )  # fmt: skip
            continue
        yield Remark(
            Level.RIGHT, "accelerator",
            f"{what}: {npu.name}, architecture {_text(made)}, {call.payload.container.value.decode()}",
        )  # fmt: skip


def _version(identification: int) -> tuple[int, int, int]:
    """Architecture major, minor, patch of the word ID."""
    return identification >> 28, identification >> 20 & 0xFF, identification >> 16 & 0xF


def _text(version: tuple[int, int, int]) -> str:
    return ".".join(map(str, version))


def alignments(network: Network, data: bytes) -> Iterator[Remark]:
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


def operators(network: Network, data: bytes, registered: Collection[str], board: Board, path: str) -> Iterator[Remark]:
    """Whether the firmware's resolver has every operator: of those given, or of all that TFLite Micro has. `path` is
    the file, for a command that compiles it.
    """
    needed = dict.fromkeys([*(NPU_OPERATOR for _ in network.npu_calls), *(o.name for o in network.cpu_operators)])
    listed = ", ".join(needed)
    if not network.npu_calls:
        why = network.why_nothing_runs_on_the_npu(path, f"--board {board.name} ")
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
        reason = _refusal(network, operator, data)
        if reason:
            yield Remark(
                Level.WRONG, "operators",
                f"operator {operator.index} {operator.name}: TFLite Micro does not run it ({reason}); a firmware needs "
                "a kernel of its own, or the operator on the NPU",
            )  # fmt: skip


def _refusal(network: Network, operator: CpuOperator, data: bytes) -> str:
    """Why TFLite Micro's own kernels do not take an operator; empty when they do."""
    try:
        open_interpreter(cut_part(data, network, (operator,))[0], f"operator {operator.index}")
    except KernelError as error:
        return str(error).partition(": ")[2] or str(error)
    except ReferenceRunError:
        return ""  # it cannot be tried: the run will show
    return ""
