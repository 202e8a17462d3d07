"""`npu-memplan compile` of a `.pte` file: the same program with less memory.

Invariant: nothing is written before the program that is made gave, on the NPU model with all checks, the same outputs
as the one that it replaces, and each kernel of the NPU wrote the same: whole methods, with stand-ins for operators that
are not known; delegates alone where a method cannot be run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npu_memplan.errors import InternalError
from npu_memplan.executorch.lowered_for import memories_for
from npu_memplan.executorch.one_arena import ARENA, SharedArena, plan_one_arena
from npu_memplan.executorch.replanning import (
    ReplannedDelegate,
    ReplannedTensors,
    ScratchGoal,
    replan_scratch,
    replan_tensors,
)
from npu_memplan.files.arrays import InputError, random_array
from npu_memplan.files.whole_file import write_whole
from npu_memplan.models.executorch.program import Delegate, ExecutorchProgram, Method
from npu_memplan.models.executorch.vela_network import EthosUCall, npu_calls, open_program, require_npu_calls
from npu_memplan.models.executorch.writing import ProgramChanges, rewrite_program
from npu_memplan.models.file import read_file

from ..npu_model.model import NpuModel
from .inputs import MissingKernelError, delegate_inputs, method_inputs
from .model import ExecutorchModel, run_delegate, same_outputs

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
    whole: bool  # whether it was compared as a whole

    def to_text(self) -> str:
        lines = [
            f"method {self.name}, planned buffer {memory}: {self.planned_before.get(memory, 0):,} to {size:,} bytes"
            for memory, size in self.planned.items()
        ]
        lines.append(f"method {self.name}: {self.cycles_before:,} to {self.cycles:,} estimated cycles of the NPU")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenProgram:
    """What came of a file; `arenas` are of `--one-arena`, `delegates` of a program for unchanged firmware."""

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
                 "scratch_bytes": m.scratch, "npu_cycles_before": m.cycles_before, "npu_cycles": m.cycles}
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
                    "nothing was gained for unchanged firmware; --one-arena puts planned tensors and scratch into one "
                    "arena (a change of the firmware: docs/executorch.md)"
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
    """What a runner needs for a program in one arena."""
    import npu_memplan.executorch

    return (Path(npu_memplan.executorch.__file__).parent / "one_arena.h").read_bytes()


def compare_programs(
    old: ExecutorchProgram, new: ExecutorchProgram, one_arena: bool = False, same_kernels: bool = True
) -> list[MethodRow]:
    """Run every method of both on the NPU model; `InternalError` where an output differs, or, with `same_kernels`,
    what a kernel of the NPU writes.
    """
    return [_compare(old, new, number, one_arena, same_kernels) for number in range(len(old.methods))]


def _compare(
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
    return MethodRow(methods[0].name, *planned, scratch[0], scratch[1], *cycles, whole)


def _run_whole(
    old: ExecutorchProgram, new: ExecutorchProgram, methods: tuple[Method, Method], arena: bool, same_kernels: bool
) -> tuple[int, int]:
    models = [
        ExecutorchModel(program, method, where=_where(program, method), one_arena=inside, stand_ins=True)
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


def _where(program: ExecutorchProgram, method: Method) -> Any:
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
            given = _inputs(before, seed)
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


def _inputs(one: EthosUCall, seed: int) -> Sequence[Any]:
    generator = np.random.default_rng(seed)
    values = [random_array(wanted, generator) for wanted in delegate_inputs(one)]
    return [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
