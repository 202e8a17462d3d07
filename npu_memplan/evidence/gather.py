"""The fixed set of small public networks, the programs that are made of each, and how they are run, compared and
counted.

Invariant: a network of the set is the file with this SHA-256 and no other, so that records of two machines are of the
same programs. A program that fails is a row with its error, and the others go on; every plan is verified before it
runs. Sources of the files: `tests/models/README.md`, `examples/digits`.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import metadata, resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..artifact import Artifact
from ..compiler import compile_model
from ..errors import NpuMemplanError
from ..ethosu.arch import accelerator
from ..ethosu.stream.decode import Command, Operation, Wait
from ..ethosu.stream.isa import Op, Register
from ..ethosu.time import fvp_system
from ..files.arrays import read_inputs
from ..files.folders import scratch_folder
from ..files.paths import read_bytes
from ..frontend.load import decoded_streams
from ..models.tflite import read_network
from ..options import CompileOptions
from ..report.facts.npu_work import call_estimates, command_streams
from ..vela_tflite.emit import emit
from .record import FVP, MODEL, Counters, EvidenceError, EvidenceRecord, Hazards, ProgramRun, RecordedOutput

if TYPE_CHECKING:
    from fvp_runner import Array, RunOptions, RunOutputs


_SHA256 = {
    "hello_world_int8": "505ee4fae7fa46ab67bea4c08b4969eb3eb8b9114c50595ec4a29d9a27993202",
    "digits": "ae47256f5f858b5a26eeba9a0e71a8a7a344753ba77f3e0d3cd5c6ca97b311d5",
    "micro_speech_quantized": "09e5e2a9dfb2d8ed78802bf18ce297bff54281a66ca18e0c23d69ca14f822a83",
    "kws_ref_model": "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae",
    "str_ww_ref_model": "3af8550895ba7d5c584277102b5075c52dcfa63ba9d2b2240f37c4e6abd5dd2b",
    "pretrainedResnet_quant": "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
}
NETWORKS = tuple(_SHA256)

# What is made of each network: `CompileOptions` other than the accelerator, with its usual memories.
PROGRAMS: dict[str, dict[str, Any]] = {
    "lifted": {"npu_compiler": "vela"},
    "prefetch": {"npu_compiler": "vela", "prefetch": True},
    "native lowering": {"npu_compiler": "tvm"},
    "stripes": {"npu_compiler": "tvm", "stripes": True},
}


@dataclass(frozen=True, slots=True)
class ListedNetwork:
    name: str
    path: Path
    sha256: str


def listed_networks(only: Iterable[str] = ()) -> Iterator[ListedNetwork]:
    """The set in its order, or those of it that are named; `EvidenceError` for other names or files."""
    wanted = tuple(only) or NETWORKS
    unknown = [name for name in wanted if name not in NETWORKS]
    if unknown:
        raise EvidenceError(f"the set has no network {unknown[0]!r}; it has: {', '.join(NETWORKS)}")
    for name in NETWORKS:
        if name in wanted:
            path = _network_file(name)
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != _SHA256[name]:
                raise EvidenceError(f"{path} is not the {name} of the set (SHA-256 {found}); install the package again")
            yield ListedNetwork(name, path, found)


def _network_file(name: str) -> Path:
    """The file of a network: next to this module in an installed package, else where the repository keeps it."""
    repository = Path(__file__).resolve().parents[2]
    packaged = Path(str(resources.files(__package__))) / "networks" / f"{name}.tflite"
    places = (packaged, *(repository / folder / f"{name}.tflite" for folder in ("tests/models", "examples/digits")))
    for path in places:
        if path.is_file():
            return path
    raise EvidenceError(f"{packaged} is missing; install the package again")


_ARM = "arm-runner"
_INPUT = "random:7"
_PACKAGES = ("npu_memplan", "apache-tvm", "ethos-u-vela", "numpy", "tflite-micro")
_ADAPTERS = (
    "the timing adapters did not take the speeds of the system configuration, so cycles are of other memories than "
    "the estimate's; beats do not depend on them"
)
_DIGITS = re.compile(r"DATA [0-9a-f]+\r?")
_PATH = re.compile(r"(?:/[^\s/:]+){2,}/")


def gather_record(
    runner: str,
    target: str,
    options: RunOptions,
    only: Sequence[str] = (),
    report_progress: Callable[[str, int, int], None] = lambda *_: None,
) -> EvidenceRecord:
    """The record of the set on `runner` for accelerator `target`; `EvidenceError` when the runner cannot run here."""
    from fvp_runner import find_application, missing

    npu = accelerator(target)  # refuses an unknown name before anything runs
    if runner == _ARM:
        find_application("tflm", npu, str(options.board or ""))
    elif (reason := missing(runner, options)) is not None:
        raise EvidenceError(f"runner {runner!r} cannot run here: {reason}")
    requested = [(network, program) for network in listed_networks(only) for program in PROGRAMS]
    made = []
    for number, (network, program) in enumerate(requested):
        report_progress(f"{network.name}, {program}", number, len(requested))
        with scratch_folder("evidence") as folder:
            if runner == _ARM:
                made.append(_run_in_arm_runner(network, program, target, options))
            else:
                made.append(_run_program(network, program, target, folder / "artifact", runner, options))
    runs, versions, boards, adapters = zip(*made, strict=True)
    reference = _package_version("tflite-micro")
    ran = (" / ".join(sorted({*versions} - {""})), next(filter(None, reversed(boards)), ""), all(adapters))
    record = _empty_record(runner, target, *ran)
    return replace(record, reference=f"tflite-micro {reference}" if reference else "", runs=runs).add_digest()


def _empty_record(runner: str, target: str, runner_version: str, board: str, adapters_set: bool) -> EvidenceRecord:
    """A record without rows: all that it has besides."""
    return EvidenceRecord(
        runner=runner,
        runner_version=runner_version,
        counted_by=FVP if runner == "fvp" else MODEL,
        accelerator=target,
        board=board,
        system_config=fvp_system(accelerator(target)),
        reference="",
        versions={name: _package_version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        machine=f"{platform.system()} {platform.machine()}",
        runs=(),
        remarks=(_ADAPTERS,) if runner == "fvp" and not adapters_set else (),
        adapters_set=adapters_set,
    )


def _run_program(
    network: ListedNetwork, program: str, target: str, folder: Path, runner: str, options: RunOptions
) -> tuple[ProgramRun, str, str, bool]:
    """One program of the set: its row as far as it came, the runner's version, the board, whether adapters are set."""
    from fvp_runner import create

    requested = CompileOptions(target, fvp_system(accelerator(target)), **PROGRAMS[program])
    row = ProgramRun(network.name, network.sha256, program, requested.to_cli_args(), input=_INPUT)
    version, board, adapters_set = "", "", False
    try:
        artifact = compile_model(network.path, requested, folder)
        row = _describe_run(row, artifact, folder)
        started = create(runner, folder, replace(options, npu_cycles=True, pools_after=False))
        firmware = getattr(started, "firmware", None)
        board = firmware.board.name if firmware is not None else ""
        values = read_inputs(artifact.name, artifact.inputs, [_INPUT])
        ran = started.run(values)
        version, adapters_set = ran.version, ran.adapters_set
        row = _judge_run(row, network, artifact, ran, values)
    except NpuMemplanError as error:
        row = replace(row, error=_PATH.sub("", str(error)))
    return row, version, board, adapters_set


def _run_in_arm_runner(
    network: ListedNetwork, program: str, target: str, options: RunOptions
) -> tuple[ProgramRun, str, str, bool]:
    """As `_run_program`, of the program as a file for TFLite Micro, in Arm's compiled firmware."""
    from fvp_runner import qemu_version, run_network

    npu = accelerator(target)
    requested = CompileOptions(target, fvp_system(npu), **PROGRAMS[program])
    flags = [*requested.to_cli_args(), "--emit", "vela-tflite"]
    row = ProgramRun(network.name, network.sha256, program, tuple(flags), input=_INPUT)
    version, board = "", ""
    try:
        emitted = emit(network.path, requested)
        file = read_network(emitted.content, network.name)
        slots = [file.tensors[i] for i in file.outputs]
        values = read_inputs(network.name, [file.tensors[i] for i in file.inputs], [_INPUT])
        row = replace(
            row,
            plan_sha256=hashlib.sha256("\n".join(map(str, emitted.planned.plan.placements)).encode()).hexdigest(),
            pools_bytes={"arena": emitted.arena_bytes},
            stream_sha256=hashlib.sha256(emitted.content).hexdigest(),
            estimated=Counters(emitted.cycles),
            hazards=_count_hazards(commands for commands, _ in decoded_streams(file.npu_calls)),
        )
        ran = run_network(emitted.content, values, [(t.dtype, t.shape) for t in slots], npu, "tflm", options)
        version, board = f"{ran.runner}, {qemu_version()}", ran.board
        names = [slot.name for slot in slots]
        row = _judge_outputs(row, network, names, ran.outputs, values, ran.notes, ran.console)
        row = replace(row, counted=Counters(ran.cycles))
    except NpuMemplanError as error:
        row = replace(row, error=_PATH.sub("", str(error)))
    return row, version, board, False


def _describe_run(row: ProgramRun, artifact: Artifact, folder: Path) -> ProgramRun:
    spent = [time for _, time in call_estimates(artifact, folder)]
    ports = [sum(e.beats(port, writes) for e in spent) for port in (0, 1) for writes in (False, True)]
    texts = b"".join(read_bytes(path) for path in sorted((folder / "src").glob("*_npu.c")))
    return replace(
        row,
        plan_sha256=hashlib.sha256(read_bytes(folder / "plan.json")).hexdigest(),
        pools_bytes={pool.name: artifact.pool_bytes(pool.name) for pool in artifact.run_pools},
        stream_sha256=hashlib.sha256(texts).hexdigest(),
        estimated=Counters(sum(e.total for e in spent), *ports),
        hazards=_count_hazards(commands for _, commands in command_streams(artifact, folder)),
    )


def _judge_run(
    row: ProgramRun, network: ListedNetwork, artifact: Artifact, ran: RunOutputs, values: Sequence[Array]
) -> ProgramRun:
    names = [slot.name for slot in artifact.outputs]
    judged = _judge_outputs(row, network, names, ran.outputs, values, ran.notes, ran.transcript)
    return replace(judged, counted=Counters(ran.npu_cycles, *(ran.npu_beats or ())))


def _judge_outputs(
    row: ProgramRun,
    network: ListedNetwork,
    names: Sequence[str],
    outputs: Sequence[Array],
    values: Sequence[Array],
    notes: Iterable[str],
    transcript: str,
) -> ProgramRun:
    from fvp_runner import compare_outputs

    expected = _expected_outputs(network, values)
    found: list[int | None] = [None] * len(names)
    if expected is not None:
        found = [o.mismatches for o in compare_outputs("evidence", names, outputs, expected).outputs]
    digests = [hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest() for array in outputs]
    sizes = [int(array.size) for array in outputs]
    assert row.hazards is not None
    return replace(
        row,
        outputs=tuple(RecordedOutput(*values) for values in zip(names, sizes, digests, found, strict=True)),
        hazards=replace(row.hazards, found=tuple(notes)),
        transcript=tuple(_plain_lines(transcript)),
    )


def _count_hazards(streams: Iterable[Iterable[Command]]) -> Hazards:
    every = [command for commands in streams for command in commands]
    waits = [command.op for command in every if isinstance(command, Wait)]
    kernels = [c for c in every if isinstance(c, Operation) and c.op is not Op.DMA_START]
    close = sum(kernel.registers.get(Register.BLOCKDEP, 0) > 0 for kernel in kernels)
    return Hazards(waits.count(Op.KERNEL_WAIT), waits.count(Op.DMA_WAIT), close)


def _plain_lines(transcript: str) -> Iterator[str]:
    """The lines of a transcript without the outputs' bytes, control characters and places on this machine."""
    for line in transcript.splitlines():
        text = "".join(c for c in line if c.isprintable()).rstrip()
        if text and not _DIGITS.fullmatch(text):
            yield _PATH.sub("", text)


def _expected_outputs(network: ListedNetwork, values: Sequence[Array]) -> Sequence[Array] | None:
    if not _package_version("tflite-micro"):
        return None
    from fvp_runner import TFLiteReference

    return TFLiteReference(network.path.read_bytes(), network.name).run(values)


def _package_version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
