"""`npu-memplan compile` of a `.pte` file: the same program with smaller scratch, for the same firmware.

Invariant: nothing is written before every changed delegate gave, on the NPU model with all checks, the same outputs as
the one that it replaces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from npu_memplan.errors import InternalError
from npu_memplan.executorch.lowered_for import memories_for
from npu_memplan.executorch.replanning import ReplannedDelegate, replan_scratch
from npu_memplan.files.arrays import InputError, random_array
from npu_memplan.files.whole_file import write_whole
from npu_memplan.models.executorch.program import Delegate, ExecutorchProgram
from npu_memplan.models.executorch.vela_network import EthosUCall, npu_calls, open_program, require_npu_calls
from npu_memplan.models.executorch.writing import ProgramChanges, rewrite_program
from npu_memplan.models.file import read_file

from ..npu_model.model import NpuModel
from .model import MethodInput, run_delegate

_SEEDS = (0, 1)


@dataclass(frozen=True, slots=True, eq=False)
class RewrittenProgram:
    """What came of a file."""

    name: str
    delegates: tuple[ReplannedDelegate, ...]
    cycles: Mapping[str, tuple[int, int]]  # by method: estimated before and after
    file_bytes: int

    def to_dict(self) -> dict[str, Any]:
        rows = [
            {"method": one.method, "delegate": one.number, "scratch_bytes_before": one.before_bytes,
             "scratch_bytes": one.scratch_bytes, "bound_bytes": one.bound_bytes, "note": one.note}
            for one in self.delegates
        ]  # fmt: skip
        cycles = {method: {"before": before, "after": after} for method, (before, after) in self.cycles.items()}
        return {"network": self.name, "delegates": rows, "npu_cycles": cycles, "file_bytes": self.file_bytes}

    def to_text(self) -> str:
        before, after = (max(pair) for pair in zip(*((d.before_bytes, d.scratch_bytes) for d in self.delegates),
                                                   strict=True))  # fmt: skip
        lines = [f"{self.name}: the temporary allocator needs {after:,} bytes for scratch ({before:,} before)"]
        for one in self.delegates:
            lines.append(
                f"method {one.method}, delegate {one.number}: {one.before_bytes:,} to {one.scratch_bytes:,} bytes"
                + (f" ({one.note})" if one.note else f", bound {one.bound_bytes:,}")
            )
        lines += [f"method {m}: {old:,} to {new:,} estimated cycles" for m, (old, new) in self.cycles.items()]
        return "\n".join([*lines, "the outputs of every changed delegate were compared on the NPU model: equal"])


def compile_program(
    path: Path, output: Path, force: bool = False, objective: str = "auto", external: tuple[Path, ...] = ()
) -> RewrittenProgram:
    """Write `output`; errors are those of the reader and of the NPU model."""
    if output.exists() and (output.is_dir() or not force):
        kind = "a folder" if output.is_dir() else "there already"
        raise InputError(f"{output} is {kind}; give another file with -o" + ("" if output.is_dir() else ", or --force"))
    data = read_file(path)
    program = open_program(path.name, data, external)
    require_npu_calls(program)
    delegates = replan_scratch(program, objective)
    changed = {one.delegate: one.data for one in delegates if one.data is not None}
    made = rewrite_program(data, program, ProgramChanges(changed))
    cycles = _compare(program, open_program(path.name, made, external), set(changed))
    write_whole(output, made)
    return RewrittenProgram(path.name, tuple(delegates), cycles, len(made))


def _compare(old: ExecutorchProgram, new: ExecutorchProgram, changed: set[Delegate]) -> dict[str, tuple[int, int]]:
    """Estimated cycles of each method before and after; `InternalError` where an output differs."""
    spent: dict[str, tuple[int, int]] = {}
    for before, after in zip(npu_calls(old), npu_calls(new), strict=True):
        known = spent.get(before.method.name, (0, 0))
        models = [NpuModel(one.call.accelerator, where=memories_for(one, {})) for one in (before, after)]
        differ = before.method.delegates[before.delegate] in changed
        for seed in _SEEDS if differ else _SEEDS[:1]:
            given = _inputs(before, seed)
            ran = [run_delegate(one, model, given) for one, model in zip((before, after), models, strict=True)]
            for (left, _), (right, _) in zip(ran[0][1], ran[1][1], strict=True):
                if not np.array_equal(left, right):
                    raise InternalError(
                        f"{old.name}: delegate {before.delegate} gives another output once it is planned"
                    )
        spent[before.method.name] = (known[0] + ran[0][0].cycles, known[1] + ran[1][0].cycles)
    return spent


def _inputs(one: EthosUCall, seed: int) -> list[Any]:
    generator = np.random.default_rng(seed)
    tensors = [one.network.tensors[index] for index in one.call.inputs]
    values = [random_array(MethodInput(t.name, t.dtype, t.shape), generator) for t in tensors]
    return [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in values]
