"""Arm's own inference runners (TFLite Micro or ExecuTorch with Arm's driver) on QEMU and our NPU model: `run --on
arm-runner`.

Invariant: the program is Arm's binary of the wheel `mlia-ethos-u`, unchanged; network and inputs are put where it reads
them, outputs are read back from where it writes them, and compared with the network's reference. Results are what Arm's
firmware computed with our NPU; cycles that it prints are our estimates, and are called so. Exit codes are those of
every command. Addresses: what the runner of MLEK 26.03 prints, and MLIA's command line.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import click
import numpy as np

from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.files.arrays import InputError, check_outputs, read_inputs, save_arrays
from npu_memplan.models.executorch.program import is_program
from npu_memplan.models.flatbuffer import read_file
from npu_memplan.target_data import Board

from ..base import RunnerError, RunnerMissingError, RunOptions
from ..firmware_run import END_OF_TRANSMISSION
from ..result import Array, RunResult, compare_outputs
from .fvp_command import find_models
from .own_elf import MemoryFiles, run_elf
from .qemu import Semihosting, qemu_version

_MODEL, _INPUTS, _OUTPUTS = 0x9000_0000, 0x9200_0000, 0x9300_0000
_MODEL_BYTES = _INPUTS - _MODEL
_BINARY = "mlek_inference_runner.axf"
_WHEEL, _FOLDER = "mlia-ethos-u", "mlia/resources/backends/applications"
_ENVIRONMENT = "NPU_MEMPLAN_ARM_RUNNERS"
HINT = f"pip install 'npu_memplan[arm]', or name the folder of its inference runners in {_ENVIRONMENT}"
_SERIES = re.compile(r"SSE-(\d+)")  # in the name of the board's FVP
_ARENA = re.compile(r"tensor arena\) size used: (\d+)")
_TEMPORARY = re.compile(r"Temp memory: Used: \d+; Peak: (\d+)")
_ERROR = re.compile(r"^(?:ERROR - |E \[ExecuTorch:|TFLM - (?:Failed|Didn't))[^\r\n]*", re.M)
_MODE = re.compile(r"Using (\w+) memory mode; fast cache size: (\d+)")


class ArmRunnerError(RunnerError):
    """Arm's runner did not run the network; the message has its own words."""


@dataclass(frozen=True, slots=True, eq=False)
class ArmRun:
    """The run of a network by Arm's runner."""

    outputs: tuple[Array, ...]
    runner: str  # name of Arm's application
    board: str
    memory_bytes: int  # as printed: TFLite Micro's arena with its structures, or ExecuTorch's peak of temporary memory
    cycles: int  # of the NPU: an estimate of ours
    seconds: float
    console: str
    notes: tuple[str, ...]  # what the NPU model remarked


def find_application(runtime: str, npu: Architecture, board: str = "") -> tuple[Path, Board]:
    """Arm's runner of `runtime` ("tflm" or "executorch") for an NPU, and the board that QEMU has for it.

    `RunnerMissingError` where the wheel is not installed, or has none for them.
    """
    family, what = npu.name.rpartition("-")[0], {"tflm": "TFLite Micro", "executorch": "ExecuTorch"}[runtime]
    known = find_boards(npu)
    boards = {name: place for name, place in known.items() if board in ("", name)}
    if not boards:
        there_are = ", ".join(known) or "none"
        raise RunnerMissingError(
            f"Arm's runners for {npu.name} cannot run on {board or 'any board'} here; QEMU has: {there_are}"
        )
    folder = _applications_folder()
    for place in boards.values():
        series = _SERIES.search(place.fvp.binary if place.fvp else "")
        pattern = f"inference_runner-sse-{series[1] if series else ''}-*-{runtime}-ethos-U{family[-2:]}-*/{_BINARY}"
        if found := sorted(folder.glob(pattern)):
            return found[-1], place
    raise RunnerMissingError(
        f"Arm's wheel has no runner of {what} for {family} on {', '.join(boards)} ({folder}); {HINT}"
    )


def find_boards(npu: Architecture) -> dict[str, Board]:
    """Boards with an FVP that QEMU runs, by name, each with `npu`, which is in it or in another FVP of the board."""
    found: dict[str, Board] = {}
    for board, _ in find_models().values():
        if npu.name in board.accelerators:
            found[board.name] = board
    return found


def _applications_folder() -> Path:
    if named := os.environ.get(_ENVIRONMENT):
        return Path(named)
    try:
        return Path(str(metadata.distribution(_WHEEL).locate_file(_FOLDER)))
    except metadata.PackageNotFoundError:
        raise RunnerMissingError(f"Arm's inference runners are not installed: {HINT}") from None


def run_network(
    network: bytes,
    inputs: Sequence[Array],
    wanted: Sequence[tuple[str, tuple[int, ...]]],
    npu: Architecture,
    runtime: str,
    options: RunOptions,
) -> ArmRun:
    """Run a `.tflite` or `.pte` once in Arm's runner, with `wanted` type and shape of each output."""
    if len(network) > _MODEL_BYTES:
        raise ArmRunnerError(f"the network has {len(network):,} bytes; Arm's runner has {_MODEL_BYTES:,} for it")
    program, board = find_application(runtime, npu, str(options.board or ""))
    given = b"".join(np.ascontiguousarray(array).tobytes() for array in inputs)
    sizes = [np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)) for dtype, shape in wanted]
    memory = MemoryFiles(((_MODEL, network), (_INPUTS, given)), ((_OUTPUTS, sum(sizes)),))
    ends = (bytes([END_OF_TRANSMISSION]),)
    ran = run_elf(program, board, options, npu.name, Semihosting(), memory=memory, ends=ends)
    errors = [*ran.failed_jobs, *_ERROR.findall(ran.console)]
    if errors or "Inference completed" not in ran.console:
        said = "; ".join(errors[:3]) or "it ended before the inference did"
        for mode, size in _MODE.findall(ran.console):
            said += f"; it is built for memory mode {mode}, with {int(size):,} bytes of fast memory"
        raise ArmRunnerError(f"{program.parent.name}: {said}")
    places = np.cumsum([0, *sizes]).tolist()
    outputs: list[Any] = [
        np.frombuffer(ran.contents[0][start:stop], dtype).reshape(shape)
        for (dtype, shape), start, stop in zip(wanted, places, places[1:], strict=False)
    ]
    printed = (_ARENA if runtime == "tflm" else _TEMPORARY).findall(ran.console)
    return ArmRun(
        tuple(outputs), program.parent.name, board.name, int(printed[-1]) if printed else 0,
        sum(j.cycles for j in ran.jobs), ran.seconds, ran.console, ran.notes,
    )  # fmt: skip


Slots = Sequence[tuple[str, tuple[int, ...]]]  # type and shape of each output


def run_in_arm_runner(path: Path, given: Mapping[str, Any]) -> None:
    """Run the file at `path`, with the options of `run`, and print what came of it; leaves by `Exit` with 1 where its
    outputs are not the reference's."""
    if path.is_dir():
        raise InputError(
            f"{path} is a folder; Arm's runner takes one file, a .pte or what compile --emit vela-tflite "
            "-o NETWORK.tflite writes"
        )
    data = read_file(path)
    options = RunOptions(board=given["board"], timeout_s=given["timeout"], checks=not given["no_checks"])
    if is_program(data):
        ran, result = _run_program(path.name, data, given, options)
    else:
        ran, result = _run_tflite(path.name, data, given, options)
    save_arrays(given["outputs"], ran.outputs)
    if given["as_json"]:
        facts = {"runner": "arm-runner", "application": ran.runner, "version": qemu_version(), "npu_cycles": ran.cycles}
        facts |= {"memory_bytes": ran.memory_bytes, "seconds": round(ran.seconds, 3), "npu_cycles_are_estimates": True}
        click.echo(json.dumps(facts | ({} if result is None else result.to_dict() | {"runner": "arm-runner"})))
    else:
        click.echo("\n".join(_result_lines(path.name, ran, result)))
    if result is not None and not result.bit_exact:
        raise click.exceptions.Exit(1)


def _result_lines(name: str, ran: ArmRun, result: RunResult | None) -> list[str]:
    what = "arena, with TFLite Micro's own structures" if "-tflm-" in ran.runner else "peak of temporary memory"
    verdict = "not compared" if result is None else "bit-exact" if result.bit_exact else "NOT bit-exact"
    lines = [
        f"{name} in Arm's {ran.runner}, on {qemu_version()} and our model of the NPU: {verdict}",
        f"as Arm's firmware printed it: {what} {ran.memory_bytes:,} bytes, NPU {ran.cycles:,} cycles (our estimate)",
        f"{ran.seconds:.1f} s",
    ]
    for output in () if result is None else result.outputs:
        if output.mismatches:
            lines.append(f"{output.name}: {output.mismatches:,} of {output.elements:,} elements differ")
    return lines


def _run_tflite(
    name: str, data: bytes, given: Mapping[str, Any], options: RunOptions
) -> tuple[ArmRun, RunResult | None]:
    from npu_memplan.models.tflite import read_network

    network = read_network(data, name)
    slots = [network.tensors[i] for i in network.outputs]
    check_outputs(name, [tensor.name for tensor in slots], given["outputs"])
    inputs = read_inputs(name, [network.tensors[i] for i in network.inputs], given["inputs"])
    npu = network.npu_calls[0].accelerator if network.npu_calls else accelerator("ethos-u55-128")
    ran = run_network(data, inputs, [(t.dtype, t.shape) for t in slots], npu, "tflm", options)
    if given["reference"] is None:
        return ran, None
    from ..references.opened import open_reference

    wanted = open_reference(given["reference"]).run(inputs)
    return ran, _compare_outputs([tensor.name for tensor in slots], ran, wanted)


def _run_program(
    name: str, data: bytes, given: Mapping[str, Any], options: RunOptions
) -> tuple[ArmRun, RunResult | None]:
    """A `.pte`: its reference is the same program with our NPU model and NumPy kernels, where these are known."""
    from npu_memplan.executorch.board import memories_for
    from npu_memplan.models.executorch.delegates import npu_calls, open_program, require_npu_calls

    from ..executorch.model import shape_bytes, simulate_method

    if given["reference"] is not None:
        raise InputError("--reference is for .tflite; a .pte is compared with its own operators run by NumPy")
    program = open_program(name, data, given["external"])
    require_npu_calls(program)
    first = npu_calls(program)[0]
    drawn: list[Array] = []

    def random_arrays(what: str, wanted: Any) -> list[Array]:
        drawn[:] = read_inputs(what, wanted, given["inputs"])
        return drawn

    simulated = simulate_method(program, first.method, random_arrays, memories_for(first, {}), options.checks)
    if simulated.outputs is None:
        raise InputError(
            f"{name} calls {', '.join(simulated.missing)}, which are not run here, so nothing can be compared"
        )
    names = [f"output{number}" for number in range(len(simulated.outputs))]
    check_outputs(name, names, given["outputs"])
    npu: Architecture = first.call.accelerator
    wanted = [(str(output.dtype), output.shape) for output in simulated.outputs]
    stored = [np.empty(array.nbytes, np.uint8) for array in drawn]  # in the order that memory has
    for array, memory, tensor in zip(drawn, stored, map(first.method.tensor, first.method.inputs), strict=True):
        assert tensor is not None  # or it could not be simulated
        shape_bytes(memory, tensor)[...] = array
    ran = run_network(data, stored, wanted, npu, "executorch", options)
    shaped = [
        shape_bytes(output.reshape(-1).view(np.uint8), tensor) if tensor else output
        for output, tensor in zip(ran.outputs, map(first.method.tensor, first.method.outputs), strict=True)
    ]
    ran = replace(ran, outputs=tuple(shaped))
    return ran, _compare_outputs(names, ran, simulated.outputs)


def _compare_outputs(names: Sequence[str], ran: ArmRun, wanted: Sequence[Array]) -> RunResult:
    shaped = [array.reshape(output.shape) for array, output in zip(wanted, ran.outputs, strict=True)]
    return compare_outputs("arm-runner", names, ran.outputs, shaped)
