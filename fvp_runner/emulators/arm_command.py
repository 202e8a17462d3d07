"""`npu-memplan run FILE --on arm-runner`: a network in Arm's own inference runner, compared with its reference.

Invariant: what ran the NPU and whose firmware ran is said; cycles that Arm's firmware prints are our estimates, and are
called so. Exit codes are those of every command.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.files.arrays import InputError, check_outputs, read_inputs, save_arrays
from npu_memplan.models.executorch.segments import is_program
from npu_memplan.models.file import read_file

from ..base import RunOptions
from ..result import Array, RunResult, compare
from .arm_runner import ArmRun, run_network
from .qemu_machine import version

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
        facts = {"runner": "arm-runner", "application": ran.runner, "version": version(), "npu_cycles": ran.cycles}
        facts |= {"memory_bytes": ran.memory_bytes, "seconds": round(ran.seconds, 3), "npu_cycles_are_estimates": True}
        click.echo(json.dumps(facts | ({} if result is None else result.to_dict() | {"runner": "arm-runner"})))
    else:
        click.echo("\n".join(_lines(path.name, ran, result)))
    if result is not None and not result.bit_exact:
        raise click.exceptions.Exit(1)


def _lines(name: str, ran: ArmRun, result: RunResult | None) -> list[str]:
    what = "arena, with TFLite Micro's own structures" if "-tflm-" in ran.runner else "peak of temporary memory"
    verdict = "not compared" if result is None else "bit-exact" if result.bit_exact else "NOT bit-exact"
    lines = [
        f"{name} in Arm's {ran.runner}, on {version()} and our model of the NPU: {verdict}",
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
    return ran, _compared([tensor.name for tensor in slots], ran, wanted)


def _run_program(
    name: str, data: bytes, given: Mapping[str, Any], options: RunOptions
) -> tuple[ArmRun, RunResult | None]:
    """A `.pte`: its reference is the same program with our NPU model and NumPy kernels, where these are known."""
    from npu_memplan.executorch.lowered_for import memories_for
    from npu_memplan.models.executorch.vela_network import npu_calls, open_program, require_npu_calls

    from ..executorch.simulation import simulate

    if given["reference"] is not None:
        raise InputError("--reference is for .tflite; a .pte is compared with its own operators run by NumPy")
    program = open_program(name, data, given["external"])
    require_npu_calls(program)
    first = npu_calls(program)[0]
    drawn: list[Array] = []

    def draw(what: str, wanted: Any) -> list[Array]:
        drawn[:] = read_inputs(what, wanted, given["inputs"])
        return drawn

    simulated = simulate(program, first.method, draw, memories_for(first, {}), options.checks)
    if simulated.outputs is None:
        raise InputError(
            f"{name} calls {', '.join(simulated.missing)}, which are not run here, so nothing can be compared"
        )
    names = [f"output{number}" for number in range(len(simulated.outputs))]
    check_outputs(name, names, given["outputs"])
    npu: Architecture = first.call.accelerator
    wanted = [(str(output.dtype), output.shape) for output in simulated.outputs]
    ran = run_network(data, drawn, wanted, npu, "executorch", options)
    return ran, _compared(names, ran, simulated.outputs)


def _compared(names: Sequence[str], ran: ArmRun, wanted: Sequence[Array]) -> RunResult:
    shaped = [array.reshape(output.shape) for array, output in zip(wanted, ran.outputs, strict=True)]
    return compare("arm-runner", names, ran.outputs, shaped)
