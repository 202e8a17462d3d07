"""Run the set: compile each program, run it on the runner asked for, compare, count.

Invariant: a program that fails is a row with its error, and the others go on; every plan is verified before it runs.
"""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..artifact import Artifact
from ..errors import NpuMemplanError
from ..ethosu.arch import accelerator, has_own_lowering
from ..ethosu.stream.commands import Command, Operation, Wait
from ..ethosu.stream.isa import Op, Register
from ..ethosu.time import estimate
from ..files.arrays import read_inputs
from ..files.owned_folder import scratch_folder
from ..options import CompileOptions
from ..pipeline import compile_model
from ..report.facts.bricks import command_streams
from .networks import PROGRAMS, EvidenceError, ListedNetwork, networks
from .record import FVP, MODEL, Counters, EvidenceRecord, Hazards, ProgramRun, RecordedOutput

if TYPE_CHECKING:
    from fvp_runner.base import RunOptions, RunOutputs
    from fvp_runner.result import Array

_INPUT = "random:7"
_PACKAGES = ("npu_memplan", "apache-tvm", "ethos-u-vela", "numpy", "tflite-micro")
_ADAPTERS = (
    "our firmware leaves the FVP's timing adapters as they are after reset, so its cycles are of other memories "
    "than the estimate's; beats do not depend on them"
)
_DIGITS = re.compile(r"DATA [0-9a-f]+\r?")
_PATH = re.compile(r"(?:/[^\s/:]+){2,}/")


def gather(
    runner: str,
    target: str,
    options: RunOptions,
    only: Sequence[str] = (),
    said: Callable[[str, int, int], None] = lambda *_: None,
) -> EvidenceRecord:
    """The record of the set on `runner` for accelerator `target`; `EvidenceError` when the runner cannot run here."""
    from fvp_runner.runner import missing

    reason = missing(runner, options)
    if reason is not None:
        raise EvidenceError(f"runner {runner!r} cannot run here: {reason}")
    npu = accelerator(target)
    programs = [name for name, how in PROGRAMS.items() if has_own_lowering(npu) or how["npu_compiler"] == "vela"]
    asked = [(network, program) for network in networks(only) for program in programs]
    runs, versions, board, system = [], set(), "", ""
    for number, (network, program) in enumerate(asked):
        said(f"{network.name}, {program}", number, len(asked))
        with scratch_folder("evidence") as folder:
            made = _Made(network, program, target, folder / "artifact")
            runs.append(made.run(runner, options))
            versions.add(made.version)
            board, system = made.board or board, made.system or system
    reference = _version("tflite-micro")
    return EvidenceRecord(
        runner=runner,
        runner_version=" / ".join(sorted(versions - {""})),
        counted_by=FVP if runner == "fvp" else MODEL,
        accelerator=target,
        board=board,
        system_config=system,
        reference=f"tflite-micro {reference}" if reference else "",
        versions={name: _version(name) for name in _PACKAGES} | {"python": platform.python_version()},
        machine=f"{platform.system()} {platform.machine()}",
        runs=tuple(runs),
        remarks=(_ADAPTERS,) if runner == "fvp" else (),
    ).sealed()


class _Made:
    """One program of the set on its way to a row."""

    def __init__(self, network: ListedNetwork, program: str, target: str, folder: Path) -> None:
        self._network, self._folder = network, folder
        self._options = CompileOptions(target, **PROGRAMS[program])
        self.row = ProgramRun(network.name, network.sha256, program, self._options.flags(), input=_INPUT)
        self.version = self.board = self.system = ""

    def run(self, runner: str, options: RunOptions) -> ProgramRun:
        from fvp_runner.runner import create

        try:
            artifact = compile_model(self._network.path, self._options, self._folder)
            self._describe(artifact)
            started = create(runner, self._folder, replace(options, npu_cycles=True, pools_after=False))
            firmware = getattr(started, "firmware", None)
            self.board = firmware.board.name if firmware is not None else ""
            values = read_inputs(artifact.name, artifact.inputs, [_INPUT])
            ran = started.run(values)
            self.version = ran.version
            self._judge(artifact, ran, values)
        except NpuMemplanError as error:
            self.row = replace(self.row, error=_PATH.sub("", str(error)))
        return self.row

    def _describe(self, artifact: Artifact) -> None:
        plan = (self._folder / "plan.json").read_bytes()
        npu, where = accelerator(artifact.target.accelerator), artifact.memory_map
        assert where is not None
        streams = [commands for _, commands in command_streams(artifact, self._folder)]
        spent = [estimate(commands, npu, where) for commands in streams]
        ports = [sum(e.beats(port, writes) for e in spent) for port in (0, 1) for writes in (False, True)]
        texts = b"".join(path.read_bytes() for path in sorted((self._folder / "src").glob("*_npu.c")))
        self.system = artifact.target.system_config
        self.row = replace(
            self.row,
            plan_sha256=hashlib.sha256(plan).hexdigest(),
            pools_bytes={pool.name: artifact.pool_bytes(pool.name) for pool in artifact.run_pools},
            stream_sha256=hashlib.sha256(texts).hexdigest(),
            estimated=Counters(sum(e.total for e in spent), *ports),
            hazards=_hazards(streams),
        )

    def _judge(self, artifact: Artifact, ran: RunOutputs, values: Sequence[Array]) -> None:
        from fvp_runner.result import compare

        expected = _expected(self._network, values)
        names = [slot.name for slot in artifact.outputs]
        found: list[int | None] = [None] * len(names)
        if expected is not None:
            found = [o.mismatches for o in compare("evidence", names, ran.outputs, expected).outputs]
        outputs = tuple(
            RecordedOutput(
                name, int(array.size), hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest(), wrong
            )
            for name, array, wrong in zip(names, ran.outputs, found, strict=True)
        )
        hazards = self.row.hazards
        assert hazards is not None
        self.row = replace(
            self.row,
            outputs=outputs,
            counted=Counters(ran.npu_cycles, *(ran.npu_beats or ())),
            hazards=replace(hazards, found=tuple(ran.notes)),
            transcript=tuple(_plain(ran.transcript)),
        )


def _hazards(streams: Iterable[Iterable[Command]]) -> Hazards:
    every = [command for commands in streams for command in commands]
    waits = [command.op for command in every if isinstance(command, Wait)]
    kernels = [c for c in every if isinstance(c, Operation) and c.op is not Op.DMA_START]
    close = sum(kernel.registers.get(Register.BLOCKDEP, 0) > 0 for kernel in kernels)
    return Hazards(waits.count(Op.KERNEL_WAIT), waits.count(Op.DMA_WAIT), close)


def _plain(transcript: str) -> Iterator[str]:
    """The lines of a transcript without the outputs' bytes, control characters and places on this machine."""
    for line in transcript.splitlines():
        text = "".join(c for c in line if c.isprintable()).rstrip()
        if text and not _DIGITS.fullmatch(text):
            yield _PATH.sub("", text)


def _expected(network: ListedNetwork, values: Sequence[Array]) -> Sequence[Array] | None:
    if not _version("tflite-micro"):
        return None
    from fvp_runner.references.tflite import TFLiteReference

    return TFLiteReference(network.path.read_bytes(), network.name).run(values)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
