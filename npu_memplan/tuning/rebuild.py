"""An extracted program with other programs for some of its NPU functions.

Invariant: what is not replaced stays as it is, the attributes of replaced functions included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from ..ethosu.program.primfunc import cache_program, from_primfunc, to_primfunc
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.prefetch.slices import Slicer, Slices
from ..extract.program import Fixed
from ..extract.tir import operator_of
from ..stages import Extracted, extract_problem
from ..vocabulary import is_npu
from .placed import PlacedCall, npu_calls

Cutters = Mapping[str, tuple[Any, Slicer]]  # of functions: their constants in main, and what cuts them


def npu_programs(extracted: Extracted) -> dict[Any, NpuProgram]:
    """The programs of the NPU functions, by their variables."""
    return {v: from_primfunc(f) for v, f in extracted.loaded.module.functions.items() if is_npu(f)}


def called_once(extracted: Extracted) -> list[PlacedCall]:
    """NPU calls whose function has no other call."""
    called = Counter(call.function for call in extracted.program.calls)
    return [call for call in npu_calls(extracted.program) if called[call.invoke.function] == 1]


def slicers(extracted: Extracted, slices: dict[bytes, Slices]) -> Cutters:
    """Of NPU functions with one buffer of constants. `slices`: those that were made of them, for all readers."""
    found = {}
    for call in called_once(extracted):
        held = [(a.expr, a.expr.value.numpy()) for a in call.invoke.arguments if isinstance(a, Fixed)]
        if len(held) == 1 and held[0][1].dtype == np.uint8:
            data = held[0][1].tobytes()
            found[call.invoke.function] = held[0][0], Slicer(call.program, slices.setdefault(data, Slices(data)))
    return found


def rebuild_problem(
    extracted: Extracted,
    changed: Mapping[str, NpuProgram],
    constants: Sequence[tuple[Any, bytes]] = (),
    added: Mapping[str, bytes] | None = None,
) -> Extracted:
    """`extracted` with other programs for some NPU functions, and other bytes for some constants of main.

    `added`: of functions that have one parameter more, behind their constants, the bytes of that argument.
    """
    module = extracted.loaded.module
    functions = dict(module.functions.items())
    for variable, function in module.functions.items():
        if variable.name_hint in changed:
            made = changed[variable.name_hint]
            functions[variable] = cache_program(with_attributes_of(function, to_primfunc(made)), made)
        elif variable.name_hint == "main" and constants:
            functions[variable] = tvm_ffi.structural_map(function, (tvm.ir.GenericConst, _replacing(constants)))
        if variable.name_hint == "main" and added:
            functions[variable] = _with_arguments(functions[variable], added)
    loaded = replace(extracted.loaded, module=tvm.IRModule(functions, module.attrs))
    again = extract_problem(loaded).under_terms(extracted.terms)
    return replace(again, problem=replace(again.problem, pools=extracted.problem.pools))


def constants_argument(extracted: Extracted, call: PlacedCall) -> Any | None:
    """The constant of main that a call reads as its only buffer of constants; None where it has another form."""
    for arguments in _arguments(extracted.loaded.module["main"], {call.invoke.function}).values():
        held = [field for field in arguments.fields if isinstance(field, tvm.ir.GenericConst)]
        if len(held) == 1 and held[0].value.dtype == "uint8":
            return held[0]
    return None


def _arguments(main: Any, names: Collection[str]) -> dict[str, Any]:
    """The tuple of arguments of each call of a function in `names`."""
    found: dict[str, Any] = {}

    def visit(expr: Any) -> None:
        if isinstance(expr, tvm.ir.Call) and operator_of(expr) == "relax.call_tir":
            name = expr.args[0].name_hint
            found.update({name: expr.args[1]} if name in names else {})

    relax.analysis.post_order_visit(main, visit)
    return found


def _with_arguments(main: Any, added: Mapping[str, bytes]) -> Any:
    """`main` with a constant more in the arguments of some functions, behind the one that is there."""
    tuples = [(old, added[name]) for name, old in _arguments(main, added.keys()).items()]

    def map_tuple(given: Any) -> Any:
        data = next((data for old, data in tuples if given.same_as(old)), None)
        if data is None:
            return given
        fields: list[Any] = []
        for field in given.fields:
            fields.append(field)
            if isinstance(field, tvm.ir.GenericConst):
                fields.append(relax.const(np.frombuffer(data, np.uint8), "uint8"))
        return relax.Tuple(fields)

    return tvm_ffi.structural_map(main, (tvm.ir.Tuple, map_tuple))


def _replacing(constants: Sequence[tuple[Any, bytes]]) -> Callable[[Any], Any]:
    made = [(old, relax.const(np.frombuffer(data, np.uint8), "uint8")) for old, data in constants]
    return lambda constant: next((new for old, new in made if constant.same_as(old)), constant)


def with_attributes_of(function: Any, made: Any) -> Any:
    """`made`, with the attributes of `function` that it has not."""
    kept = {str(k): v for k, v in function.attrs.items() if str(k) not in made.attrs}
    return made.with_attr(kept) if kept else made
