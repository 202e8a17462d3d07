"""A extracted program with other programs for some of its NPU functions.

Invariant: what is not replaced stays as it is, the attributes of replaced functions included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..ethosu.program.primfunc import cache_program, to_primfunc
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.prefetch.slices import Slicer, Slices
from ..extract.program import Fixed
from ..stages import Extracted, extract_problem
from .placed import PlacedCall, npu_calls

Cutters = Mapping[str, tuple[Any, Slicer]]  # of functions: their constants in main, and what cuts them


def called_once(extracted: Extracted) -> list[PlacedCall]:
    """NPU calls whose function is called by nobody else."""
    called = Counter(call.function for call in extracted.program.calls)
    return [call for call in npu_calls(extracted.program) if called[call.invoke.function] == 1]


def slicers(extracted: Extracted, slices: dict[bytes, Slices]) -> Cutters:
    """Of NPU functions with one buffer of constants. `slices`: those that were made of them, whoever reads them."""
    found = {}
    for call in called_once(extracted):
        held = [(a.expr, a.expr.value.numpy()) for a in call.invoke.arguments if isinstance(a, Fixed)]
        if len(held) == 1 and held[0][1].dtype == np.uint8:
            data = held[0][1].tobytes()
            found[call.invoke.function] = held[0][0], Slicer(call.program, slices.setdefault(data, Slices(data)))
    return found


def rebuild_problem(
    extracted: Extracted, changed: Mapping[str, NpuProgram], constants: Sequence[tuple[Any, bytes]] = ()
) -> Extracted:
    """`extracted` with other programs for some NPU functions, and other bytes for some constants of main."""
    module = extracted.loaded.module
    functions = dict(module.functions.items())
    for variable, function in module.functions.items():
        if variable.name_hint in changed:
            made = changed[variable.name_hint]
            functions[variable] = cache_program(with_attributes_of(function, to_primfunc(made)), made)
        elif variable.name_hint == "main" and constants:
            functions[variable] = tvm_ffi.structural_map(function, (tvm.ir.GenericConst, _replacing(constants)))
    loaded = replace(extracted.loaded, module=tvm.IRModule(functions, module.attrs))
    again = extract_problem(loaded).under_terms(extracted.terms)
    return replace(again, problem=replace(again.problem, pools=extracted.problem.pools))


def _replacing(constants: Sequence[tuple[Any, bytes]]) -> Callable[[Any], Any]:
    made = [(old, relax.const(np.frombuffer(data, np.uint8), "uint8")) for old, data in constants]
    return lambda constant: next((new for old, new in made if constant.same_as(old)), constant)


def with_attributes_of(function: Any, made: Any) -> Any:
    """`made`, with the attributes of `function` that it has not."""
    kept = {str(k): v for k, v in function.attrs.items() if str(k) not in made.attrs}
    return made.with_attr(kept) if kept else made
