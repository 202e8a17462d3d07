"""`npu-memplan simulate` and `npu-memplan run` of a `.pte` file: what is printed of one inference.

Invariant: what was not run is named; nothing is called right that was not compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from npu_memplan.executorch.lowered_for import memories_for
from npu_memplan.files.arrays import InputError, check_outputs, read_inputs, save_arrays
from npu_memplan.models.executorch.program import ExecutorchProgram
from npu_memplan.models.executorch.vela_network import npu_calls, open_program, require_npu_calls
from npu_memplan.sizes import counted

from .inputs import MissingKernelError
from .simulation import Simulated, simulate


@dataclass(frozen=True, slots=True)
class ProgramOptions:
    """A user's options for the run of a `.pte` file."""

    method: str = ""  # empty: the first
    external: tuple[Path, ...] = ()  # `.ptd` files
    inputs: tuple[str, ...] = ()
    outputs: tuple[Path, ...] = ()
    checks: bool = True
    whole: bool = False  # refuse a program of which only delegates can be run
    system: Mapping[str, str] = field(default_factory=dict)  # fields of `CompileOptions`
    as_json: bool = False


def run_program(name: str, data: bytes, options: ProgramOptions) -> None:
    """Run a method once and print what came of it."""
    program = open_program(name, data, options.external)
    method = program.method(options.method)
    calls = [one for one in npu_calls(program) if one.method is method]
    if not calls:
        require_npu_calls(program)
        others = ", ".join(dict.fromkeys(one.method.name for one in npu_calls(program)))
        raise InputError(f"method {method.name!r} of {name} calls no Ethos-U delegate; give --method {others}")
    names = [f"output{number}" for number in range(len(method.outputs))]
    check_outputs(name, names, options.outputs)
    where = memories_for(calls[0], options.system)
    ran = simulate(program, method, lambda n, wanted: read_inputs(n, wanted, options.inputs), where, options.checks)
    if ran.outputs is None and (options.outputs or options.whole):
        raise MissingKernelError(
            f"{name}: method {method.name!r} calls {', '.join(ran.missing)}, which are not run here; simulate it "
            "without --output, or run it in ExecuTorch's runtime"
        )
    save_arrays(options.outputs, ran.outputs or ())
    document = _document(program, ran) | {"npu_clock_hz": where.clock_hz, "checks": options.checks}
    if options.as_json:
        click.echo(json.dumps(document))
    else:
        click.echo("\n".join(_lines(document, ran)))


def _document(program: ExecutorchProgram, ran: Simulated) -> dict[str, Any]:
    copied_in, copied_out = ran.copied_bytes
    return {
        "network": program.name,
        "method": ran.method.name,
        "runner": "npu_model",
        "accelerator": ran.calls[0].call.accelerator.name,
        "npu_calls": len(ran.stats),
        "npu_operations": sum(stats.operations for stats in ran.stats),
        "npu_cycles": sum(stats.cycles for stats in ran.stats),
        "npu_cycles_are_estimates": True,
        "cpu_operators": ran.operators,
        "not_run": list(ran.missing),
        "planned_bytes": {str(memory): size for memory, size in ran.method.planned_bytes.items()},
        "scratch_bytes": ran.scratch_bytes,
        "copied_in_bytes": copied_in,
        "copied_out_bytes": copied_out,
        "messages": sorted({message for stats in ran.stats for message in stats.messages}),
        "relies_on_timing": [message for stats in ran.stats for message in stats.timing],
    }


def _lines(facts: Mapping[str, Any], ran: Simulated) -> list[str]:
    cycles, clock = facts["npu_cycles"], facts["npu_clock_hz"]
    lines = [
        f"{facts['network']}, method {facts['method']}, on the NPU model of {facts['accelerator']}: "
        f"{counted(facts['npu_calls'], 'NPU call')}, "
        f"{counted(facts['npu_operations'], 'operation')}, about {cycles:,} cycles (estimated)",
        f"{cycles / clock * 1e3:.3f} ms at {clock / 1e6:,.0f} MHz",
        f"memory: {_planned(ran)}, scratch {facts['scratch_bytes']:,} bytes (temporary allocator); copied in "
        f"{facts['copied_in_bytes']:,}, out {facts['copied_out_bytes']:,}",
    ]
    lines += [f"note: {message}" for message in facts["messages"]]
    if ran.missing:
        names = ", ".join(ran.missing)
        lines.append(f"note: {names} are not run here, so each delegate was given inputs of its own")
    elif ran.operators:
        lines.append(f"CPU operators, run by NumPy: {len(ran.operators)} ({', '.join(dict.fromkeys(ran.operators))})")
    lines += [f"warning: {message}" for message in facts["relies_on_timing"]]
    if facts["checks"]:
        lines.append("checks: registers, regions, uninitialised reads, weights, accumulators, waits, BLOCKDEP: clean")
    for number, array in enumerate(ran.outputs or ()):
        head = " ".join(str(v) for v in array.reshape(-1)[:8])
        dots = " ..." if array.size > 8 else ""
        lines.append(f"output{number}: {array.dtype}{list(array.shape)} {head}{dots}")
    return lines


def _planned(ran: Simulated) -> str:
    sizes: Sequence[tuple[int, int]] = list(ran.method.planned_bytes.items())
    if not sizes:
        return "nothing planned"
    return ", ".join(f"planned buffer {memory} {size:,} bytes" for memory, size in sizes)
