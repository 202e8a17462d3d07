"""The commands `compile`, `run` and `simulate` for a `.pte` file: the same program with less memory, and one inference.

Invariant: nothing is written before the program that is made gave, on the NPU model with all checks, the same outputs
as the one that it replaces, and each kernel of the NPU wrote the same: whole methods, with stand-ins for operators that
are not known; delegates alone where a method cannot be run. What was not run is named; nothing is called right that was
not compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from npu_memplan.errors import InternalError
from npu_memplan.executorch.board import memories_for
from npu_memplan.executorch.replanning import (
    ARENA,
    ReplannedDelegate,
    ReplannedTensors,
    ScratchGoal,
    SharedArena,
    plan_one_arena,
    replan_scratch,
    replan_tensors,
)
from npu_memplan.files.arrays import InputError, check_outputs, random_array, read_inputs, save_arrays
from npu_memplan.files.paths import write_whole
from npu_memplan.models.executorch.delegates import EthosUCall, npu_calls, open_program, require_npu_calls
from npu_memplan.models.executorch.program import Delegate, ExecutorchProgram, Method, ProgramChanges, rewrite_program
from npu_memplan.models.flatbuffer import read_file
from npu_memplan.sizes import count_text

from ..npu_model.model import NpuModel
from .model import (
    ExecutorchModel,
    MissingKernelError,
    Simulated,
    delegate_inputs,
    method_inputs,
    run_delegate,
    same_outputs,
    simulate_method,
)


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
    system = {name: value for name, value in options.system.items() if name != "board"}
    where = memories_for(calls[0], system, options.system.get("board", ""))
    ran = simulate_method(
        program, method, lambda n, wanted: read_inputs(n, wanted, options.inputs), where, options.checks
    )
    if ran.outputs is None and (options.outputs or options.whole):
        raise MissingKernelError(
            f"{name}: method {method.name!r} calls {', '.join(ran.missing)}, which are not run here; simulate it "
            "without --output, or run it in ExecuTorch's runtime"
        )
    save_arrays(options.outputs, ran.outputs or ())
    document = _json_document(program, ran) | {"npu_clock_hz": where.clock_hz, "checks": options.checks}
    if options.as_json:
        click.echo(json.dumps(document))
    else:
        click.echo("\n".join(_text_lines(document, ran)))


def _json_document(program: ExecutorchProgram, ran: Simulated) -> dict[str, Any]:
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
        "cpu_operators": ran.operator_names,
        "not_run": list(ran.missing),
        "planned_bytes": {str(memory): size for memory, size in ran.method.planned_bytes.items()},
        "scratch_bytes": ran.scratch_bytes,
        "copied_in_bytes": copied_in,
        "copied_out_bytes": copied_out,
        "messages": sorted({message for stats in ran.stats for message in stats.messages}),
        "relies_on_timing": [message for stats in ran.stats for message in stats.timing],
    }


def _text_lines(facts: Mapping[str, Any], ran: Simulated) -> list[str]:
    cycles, clock = facts["npu_cycles"], facts["npu_clock_hz"]
    lines = [
        f"{facts['network']}, method {facts['method']}, on the NPU model of {facts['accelerator']}: "
        f"{count_text(facts['npu_calls'], 'NPU call')}, "
        f"{count_text(facts['npu_operations'], 'operation')}, about {cycles:,} cycles (estimated)",
        f"{cycles / clock * 1e3:.3f} ms at {clock / 1e6:,.0f} MHz",
        f"memory: {_planned_text(ran)}, scratch {facts['scratch_bytes']:,} bytes (temporary allocator); copied in "
        f"{facts['copied_in_bytes']:,}, out {facts['copied_out_bytes']:,}",
    ]
    lines += [f"note: {message}" for message in facts["messages"]]
    if ran.missing:
        names = ", ".join(ran.missing)
        lines.append(f"note: {names} are not run here, so each delegate was given inputs of its own")
    elif ran.operator_names:
        lines.append(
            f"CPU operators, run by NumPy: {len(ran.operator_names)} ({', '.join(dict.fromkeys(ran.operator_names))})"
        )
    lines += [f"warning: {message}" for message in facts["relies_on_timing"]]
    if facts["checks"]:
        lines.append("checks: registers, regions, uninitialised reads, weights, accumulators, waits, BLOCKDEP: clean")
    for number, array in enumerate(ran.outputs or ()):
        head = " ".join(str(v) for v in array.reshape(-1)[:8])
        dots = " ..." if array.size > 8 else ""
        lines.append(f"output{number}: {array.dtype}{list(array.shape)} {head}{dots}")
    return lines


def _planned_text(ran: Simulated) -> str:
    sizes: Sequence[tuple[int, int]] = list(ran.method.planned_bytes.items())
    if not sizes:
        return "nothing planned"
    return ", ".join(f"planned buffer {memory} {size:,} bytes" for memory, size in sizes)


HEADER = "npu_memplan_one_arena.h"
_SEEDS = (0, 1)


@dataclass(frozen=True, slots=True)
class MethodRow:
    """Bytes and cycles of one method; those of the scratch are of its largest delegate."""

    name: str
    planned_before: Mapping[int, int]
    planned: Mapping[int, int]
    scratch_before: int
    scratch: int
    cycles_before: int
    cycles: int
    clock_hz: float  # of the memories that the delegates were compiled for; 0: there are none
    whole: bool  # whether it was compared as a whole

    def to_text(self) -> str:
        lines = [
            f"method {self.name}, planned buffer {memory}: {self.planned_before.get(memory, 0):,} to {size:,} bytes"
            for memory, size in self.planned.items()
        ]
        time = f", {1000 * self.cycles / self.clock_hz:.3f} ms" if self.clock_hz else ""
        lines.append(
            f"method {self.name}: {self.cycles_before:,} to {self.cycles:,} estimated cycles of the NPU{time}, in the "
            "memories that its delegates were compiled for"
        )
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenProgram:
    """The result for a file; `arenas` are of `--one-arena`, `delegates` of a program for unchanged firmware."""

    name: str
    methods: tuple[MethodRow, ...]
    delegates: tuple[ReplannedDelegate, ...]
    arenas: tuple[SharedArena, ...]
    file_bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {
            "network": self.name,
            "file_bytes": self.file_bytes,
            "methods": [
                {"method": m.name, "planned_bytes_before": {str(k): v for k, v in m.planned_before.items()},
                 "planned_bytes": {str(k): v for k, v in m.planned.items()}, "scratch_bytes_before": m.scratch_before,
                 "scratch_bytes": m.scratch, "npu_cycles_before": m.cycles_before, "npu_cycles": m.cycles,
                 "npu_clock_hz": m.clock_hz or None}
                for m in self.methods
            ],
            "delegates": [
                {"method": d.method, "delegate": d.number, "scratch_bytes_before": d.before_bytes,
                 "scratch_bytes": d.scratch_bytes, "bound_bytes": d.bound_bytes, "note": d.note}
                for d in self.delegates
            ],
            "arenas": [
                {"method": a.method.name, "arena_bytes": a.arena_bytes, "bound_bytes": a.bound_bytes,
                 "copied_bytes_before": a.copied_bytes_before, "copied_bytes": a.copied_bytes}
                for a in self.arenas
            ],
        }  # fmt: skip

    def to_text(self) -> str:
        before = max((m.scratch_before for m in self.methods), default=0)
        now = max((m.scratch for m in self.methods), default=0)
        lines = [method.to_text() for method in self.methods if method.planned or method.cycles_before]
        for one in self.delegates:
            lines.append(
                f"method {one.method}, delegate {one.number}: {one.before_bytes:,} to {one.scratch_bytes:,} bytes of "
                + (f"scratch ({one.note})" if one.note else f"scratch, bound {one.bound_bytes:,}")
            )
        for arena in (one for one in self.arenas if one.arena_bytes):
            today = arena.method.planned_bytes.get(ARENA, 0) + before
            lines.append(
                f"method {arena.method.name}, one arena: {arena.arena_bytes:,} bytes with the scratch inside "
                f"({today:,} as two); an inference copies {arena.copied_bytes:,} bytes of inputs and outputs "
                f"({arena.copied_bytes_before:,} before)"
            )
        if self.arenas:
            lines.append(
                f"for a runner with {HEADER}, which is beside the file; firmware that is not changed needs "
                f"{now:,} bytes for scratch beside the planned buffers"
            )
        else:
            lines.append(f"the temporary allocator needs {now:,} bytes for scratch ({before:,} before)")
            if (
                all(m.planned == m.planned_before and m.cycles >= m.cycles_before for m in self.methods)
                and now >= before
            ):
                lines.append(
                    "nothing was gained for unchanged firmware; --emit one-arena puts planned tensors and scratch into "
                    "one arena (a change of the firmware: docs/executorch.md)"
                )
        parts = [m.name for m in self.methods if not m.whole]
        compared = f"the delegates of {', '.join(parts)}" if parts else "outputs of random inputs"
        return "\n".join([*lines, f"{compared} were compared on the NPU model: equal"])


def compile_program(
    path: Path,
    output: Path,
    force: bool = False,
    objective: str = "auto",
    external: tuple[Path, ...] = (),
    one_arena: bool = False,
) -> RewrittenProgram:
    """Write `output`; errors are those of the reader and of the NPU model."""
    header = output.parent / HEADER
    for target in (output, header) if one_arena else (output,):
        if target.is_dir() or (target == output and target.exists() and not force):
            kind, hint = ("a folder", "") if target.is_dir() else ("there already", ", or --force")
            raise InputError(f"{target} is {kind}; give another file with -o{hint}")
    data = read_file(path)
    program = open_program(path.name, data, external)
    require_npu_calls(program)
    delegates: list[ReplannedDelegate] = []
    arenas: list[SharedArena] = []
    tensors: list[ReplannedTensors | None] = []
    changed: dict[Delegate, bytes] = {}
    if one_arena:
        arenas = [plan_one_arena(program, method, objective) for method in program.methods]
        tensors += [one.tensors for one in arenas]
        changed = {delegate: new for one in arenas for delegate, new in one.delegates.items()}
    else:
        delegates = replan_scratch(program, ScratchGoal(objective))
        tensors += [replan_tensors(method) for method in program.methods]
        changed = {one.delegate: one.data for one in delegates if one.data is not None}
    moved = {number: one for number, one in enumerate(tensors) if one is not None}
    places = {number: one.places for number, one in moved.items()}
    sizes = {number: one.planned_bytes for number, one in moved.items()}
    made = rewrite_program(data, program, ProgramChanges(changed, places, sizes))
    after = open_program(path.name, made, external)
    rows = compare_programs(program, after, one_arena)
    if one_arena:
        write_whole(header, one_arena_header())
    write_whole(output, made)
    return RewrittenProgram(path.name, tuple(rows), tuple(delegates), tuple(arenas), len(made))


def one_arena_header() -> bytes:
    """The header that a runner needs for a program in one arena."""
    import npu_memplan.executorch

    return (Path(npu_memplan.executorch.__file__).parent / "one_arena.h").read_bytes()


def compare_programs(
    old: ExecutorchProgram, new: ExecutorchProgram, one_arena: bool = False, same_kernels: bool = True
) -> list[MethodRow]:
    """Run every method of both on the NPU model; `InternalError` where outputs or NPU kernels' writes differ."""
    return [_compare_method(old, new, number, one_arena, same_kernels) for number in range(len(old.methods))]


def _compare_method(
    old: ExecutorchProgram, new: ExecutorchProgram, number: int, one_arena: bool, same_kernels: bool
) -> MethodRow:
    """Run method `number` of both; `InternalError` where an output differs."""
    methods = (old.methods[number], new.methods[number])
    try:
        arenas = (False, True) if one_arena else (False,)
        cycles = [_run_whole(old, new, methods, arena, same_kernels) for arena in arenas][-1]
        whole = True
    except MissingKernelError:
        cycles, whole = _run_delegates(old, new, methods, same_kernels), False
    scratch = [
        max((c.blocks.scratch_bytes for c in npu_calls(program) if c.method is method), default=0)
        for program, method in zip((old, new), methods, strict=True)
    ]
    planned = (methods[0].planned_bytes, methods[1].planned_bytes)
    where = _method_location(old, methods[0])
    return MethodRow(
        methods[0].name, *planned, scratch[0], scratch[1], *cycles, where.clock_hz if where is not None else 0.0, whole
    )


def _run_whole(
    old: ExecutorchProgram, new: ExecutorchProgram, methods: tuple[Method, Method], arena: bool, same_kernels: bool
) -> tuple[int, int]:
    models = [
        ExecutorchModel(program, method, where=_method_location(program, method), one_arena=inside, stand_ins=True)
        for program, method, inside in zip((old, new), methods, (False, arena), strict=True)
    ]
    inputs = method_inputs(methods[0], [*models[0].calls.values()])
    for seed in _SEEDS:
        generator = np.random.default_rng(seed)
        given = [random_array(wanted, generator) for wanted in inputs]
        ran = [model.run(given) for model in models]
        if not same_outputs(ran[0].outputs, ran[1].outputs):
            raise InternalError(f"{old.name}: method {methods[0].name!r} gives another output once planned")
        if same_kernels and ran[0].kernels != ran[1].kernels:
            raise InternalError(f"{old.name}: a kernel of {methods[0].name!r} writes something else once planned")
    before, after = (sum(stats.cycles for stats in one.stats) for one in ran)
    return before, after


def _method_location(program: ExecutorchProgram, method: Method) -> Any:
    calls = [one for one in npu_calls(program) if one.method is method]
    return memories_for(calls[0], {}) if calls else None


def _run_delegates(
    old: ExecutorchProgram, new: ExecutorchProgram, methods: tuple[Method, Method], same_kernels: bool
) -> tuple[int, int]:
    spent = [0, 0]
    pairs = [
        [one for one in npu_calls(program) if one.method is method]
        for program, method in zip((old, new), methods, strict=True)
    ]
    for before, after in zip(*pairs, strict=True):
        models = [NpuModel(one.call.accelerator, where=memories_for(one, {})) for one in (before, after)]
        for seed in _SEEDS:
            given = _method_inputs(before, seed)
            kernels: tuple[list[int], list[int]] = ([], [])
            ran = [
                run_delegate(one, model, given, None, seen)
                for one, model, seen in zip((before, after), models, kernels, strict=True)
            ]
            if (same_kernels and kernels[0] != kernels[1]) or not all(
                np.array_equal(a, b) for (a, _), (b, _) in zip(ran[0][1], ran[1][1], strict=True)
            ):
                raise InternalError(f"{old.name}: delegate {before.delegate} gives another output once planned")
        spent = [total + one[0].cycles for total, one in zip(spent, ran, strict=True)]
    return spent[0], spent[1]


def _method_inputs(one: EthosUCall, seed: int) -> Sequence[Any]:
    generator = np.random.default_rng(seed)
    values = [random_array(wanted, generator) for wanted in delegate_inputs(one)]
    return [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
