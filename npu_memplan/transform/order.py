"""The stage `lower`: the passes over a read module that the options ask for, which reorder independent calls and make
stripes.

Invariant: each pass takes an IRModule and its options and gives an IRModule. The order of everything with effects is
kept (packed calls, in-place calls, branches, casts); only pure calls between them move. Calls are moved, and functions
cut into stripes, only where a plan of the whole program then needs fewer bytes; the sizes of pools are no limit there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from tvm import ir, relax

from .. import planners
from ..ethosu.program.overlap import shared_bytes
from ..extract import prepare
from ..extract.liveness import ALWAYS
from ..extract.program import Internal, Invoke, RelaxTensor, Step, View, steps, views
from ..extract.tir import may_overlap, operator_of
from ..extract.walk import walk
from ..problem.operator_order import GraphOperator, GraphStorage, InPlace, OperatorGraph
from ..request import Loaded
from ..stages import extract_problem
from ..vocabulary import ORDER_PEAKS, RELAX_VIEWS


def required_bytes(
    loaded: Loaded, planner: str = "auto", node_budget: int | None = None, outlines: dict[Any, Any] | None = None
) -> int:
    """Bytes that all pools together need, whatever their sizes."""
    problem = extract_problem(loaded, outlines).problem
    unlimited = replace(problem, pools=tuple(replace(pool, size_bytes=None) for pool in problem.pools))
    return sum(usage.used_bytes for usage in planners.plan(unlimited, planner, node_budget=node_budget).usage)


_NODES = 20_000  # of the plans that are compared
_ALIGNMENT = 16


def reorder(loaded: Loaded, outlines: dict[Any, Any] | None = None) -> Loaded:
    """`loaded` (in legal form) with the calls of its function in a better order, if there is one."""
    outlines = {} if outlines is None else outlines
    name = loaded.request.function
    gv = loaded.module.get_global_var(name)
    function = loaded.module[gv]
    if not isinstance(function.body, relax.SeqExpr) or _have_one_order(function):
        return loaded
    module = prepare(loaded.module, name)
    blocks = _Reorder(module, loaded, outlines).blocks()
    if blocks is None:
        return loaded
    changed = relax.Function(
        function.params, relax.SeqExpr(blocks, function.body.body), function.ret_ty, function.is_pure, function.attrs
    )
    made = ir.IRModule(dict(module.functions.items()), module.attrs, dict(module.global_infos.items()))
    made.update_func(gv, changed)
    versions = (loaded, replace(loaded, module=made))
    peaks = [required_bytes(one, node_budget=_NODES, outlines=outlines) for one in versions]
    if peaks[1] >= peaks[0]:
        return loaded
    made.update_func(gv, changed.with_attr(ORDER_PEAKS, {**(function.attrs.get(ORDER_PEAKS) or {}), name: peaks}))
    return replace(loaded, module=made)


def _have_one_order(function: Any) -> bool:
    """Whether every call reads what the call before it made, so that none can move."""
    behind: dict[Any, int] = {}  # of a variable: the call that made it
    count = 0
    for block in function.body.blocks:
        for binding in block.bindings:
            read = [behind.get(v, -1) for v in relax.analysis.free_vars(binding.value)]
            if _movable(binding) and operator_of(binding.value) != "relax.call_tir":
                behind[binding.var] = max(read, default=-1)
                continue
            if count and count - 1 not in read:
                return False
            behind[binding.var] = count
            count += 1
    return True


class _Reorder:
    """Bindings of one function, run after run of those that may move."""

    def __init__(self, module: Any, loaded: Loaded, outlines: dict[Any, Any]) -> None:
        self.program = program = walk(module, loaded.request.function, outlines=outlines)
        options = loaded.request.options
        self._overlaps = options.overlaps and may_overlap(program.function)
        self._kept = {view.tensor for view in program.results}
        if not options.reuse_inputs:
            self._kept.update(program.inputs)
        self._calls = {_first_variable(call): call for call in program.calls}

    def blocks(self) -> list[Any] | None:
        """The function's bindings in the better order; None where there is none."""
        bindings = [b for block in self.program.function.body.blocks for b in block.bindings]
        touched = [self._accessed_tensors(binding) for binding in bindings]
        uses: dict[RelaxTensor, list[int]] = {}
        for index, tensors in enumerate(touched):
            for tensor in tensors:
                uses.setdefault(tensor, []).append(index)
        ordered: list[Any] = []
        start = 0
        for stop, binding in enumerate([*bindings, None]):
            if binding is None or not _movable(binding):
                order = self._graph(bindings[start:stop], uses, start).best_order().operators
                ordered += [bindings[start + index] for index in order]
                ordered += bindings[stop : stop + 1]
                start = stop + 1
        return [relax.BindingBlock(ordered)] if any(map(_differ, ordered, bindings)) else None

    def _accessed_tensors(self, binding: Any) -> dict[RelaxTensor, None]:
        """Storages that a binding reads or writes."""
        known = self.program.values
        variables = (v for v in (binding.var, *relax.analysis.free_vars(binding.value)) if v in known)
        return {view.tensor: None for variable in variables for view in views(known[variable])}

    def _graph(self, segment: Sequence[Any], uses: dict[RelaxTensor, list[int]], start: int) -> OperatorGraph:
        """The bindings from `start` on, none of which has effects."""
        stop = start + len(segment)
        touched = [self._accessed_tensors(binding) for binding in segment]
        number = {tensor: index for index, tensor in enumerate({t: None for found in touched for t in found})}
        producer = {binding.var: index for index, binding in enumerate(segment)}
        given = {*self.program.inputs, *(t for t in number if uses[t][0] < start or t.kind in ALWAYS)}
        kept = {*self._kept, *(t for t in number if uses[t][-1] >= stop or t.kind in ALWAYS)}
        storages = tuple(GraphStorage(t.size_bytes or 0, t in given, t in kept) for t in number)
        operators = []
        last: dict[RelaxTensor, int] = {}  # that touched what lives always, which some write in place
        for index, (binding, tensors) in enumerate(zip(segment, touched, strict=True)):
            after = {producer[v] for v in relax.analysis.free_vars(binding.value) if v in producer}
            for tensor in tensors:
                if tensor.kind in ALWAYS:
                    after |= {last[tensor]} if tensor in last else set()
                    last[tensor] = index
            call = self._calls.get(binding.var)
            names, needed = tuple(number[t] for t in tensors), tuple(sorted(after))
            if call is None:
                operators.append(GraphOperator(names, needed))
                continue
            shared = tuple(_in_place(call, number)) if self._overlaps else ()
            operators.append(GraphOperator(names, needed, _scratch_bytes(call), shared))
        return OperatorGraph(tuple(operators), storages)


def _differ(a: Any, b: Any) -> bool:
    return not a.same_as(b)


def _first_variable(call: Invoke) -> Any:
    """The variable of the first tensor that a call makes."""
    made = (call.arguments[index] for index in sorted(call.results))
    return next((view.tensor.var for view in made if isinstance(view, View)), None)


def _scratch_bytes(call: Invoke) -> int:
    """Most bytes of a call's own allocations that are touched between their first and their last use."""
    spans: dict[Internal, tuple[int, int]] = {}
    for index, step in enumerate(steps(call.nodes)):
        for access in step.accesses:
            if isinstance(access.storage, Internal):
                spans[access.storage] = spans.get(access.storage, (index, index))[0], index
    firsts = {first for first, _ in spans.values()}
    alive = (sum(s.size_bytes or 0 for s, (first, last) in spans.items() if first <= i <= last) for i in firsts)
    return max(alive, default=0)


def _in_place(call: Invoke, number: dict[RelaxTensor, int]) -> Iterator[InPlace]:
    """The bytes that results of a call may share with arguments that are not read after it."""
    named = {tensor.name: tensor for tensor in number}
    for candidate in call.overlaps:
        first, second = named.get(candidate.allowed.first), named.get(candidate.allowed.second)
        if first is not None and second is not None:
            yield from _find_in_place(number, first, second, candidate.allowed.lowest, candidate.allowed.highest)
    touching: dict[RelaxTensor, list[Step]] = {}
    for step in steps(call.nodes):
        for tensor in {a.storage: None for a in step.accesses if isinstance(a.storage, RelaxTensor)}:
            touching.setdefault(tensor, []).append(step)
    for second, (step, *others) in touching.items():
        if others or step.origin is None or not any(a.writes and a.storage is second for a in step.accesses):
            continue
        for read in {a.storage: None for a in step.accesses if not a.writes and a.storage is not second}:
            if isinstance(read, RelaxTensor) and touching[read][-1] is step:
                highest = step.origin.distance(read, second)
                if isinstance(highest, int):
                    yield from _find_in_place(number, read, second, None, highest)


def _find_in_place(
    number: dict[RelaxTensor, int], first: RelaxTensor, second: RelaxTensor, lowest: int | None, highest: int | None
) -> Iterator[InPlace]:
    """The bytes that two tensors may share at the distances `lowest` to `highest`, if there are some."""
    if first in number and second in number and first.size_bytes and second.size_bytes:
        common = shared_bytes(lowest, highest, first.size_bytes, second.size_bytes, _ALIGNMENT)
        if common > 0:
            yield InPlace(number[first], number[second], common)


def _movable(binding: Any) -> bool:
    if isinstance(binding, relax.MatchCast):
        return False
    value = binding.value
    if isinstance(value, ir.Call):
        return operator_of(value) in ("relax.call_tir", *RELAX_VIEWS)
    return isinstance(value, ir.Var | ir.Tuple) or type(value).__name__ in ("TupleGetItem", "GenericConst")


def lower(loaded: Loaded, outlines: dict[Any, Any] | None = None) -> Loaded:
    """`loaded` after its passes; `outlines` keeps what they and later stages have in common."""
    request = loaded.request
    if request.reorder:
        loaded = reorder(loaded, outlines)
    if request.stripes is None:
        return loaded
    from ..tuning.cascades import stripe

    cut = replace(loaded, module=stripe(loaded.module, request.stripes))
    # a function has its own buffers only: what other calls need may make the peak anyway
    alone = len(loaded.module.functions) == 2  # main and one function
    return cut if alone or required_bytes(cut) < required_bytes(loaded) else loaded
