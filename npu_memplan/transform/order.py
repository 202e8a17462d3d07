"""Reorders independent calls so that less memory is live at the worst point.

Invariant: the order of everything with effects is kept (packed calls, in-place calls, branches,
casts); only pure calls between them move, and only when the peak of the whole function, measured
with the lifetimes that planning uses, gets lower.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import ir, relax

from ..extract.build import build
from ..extract.program import views
from ..extract.relax.walk import walk
from ..extract.tir import operator_of
from ..options import NO_NPU, CompileOptions
from ..problem import Pool
from ..problem.pressure import pressure_of
from ..request import Request
from ..vocabulary import ORDER_PEAKS, RELAX_VIEWS

STATES = 20_000
"""Search states up to which the best order is found for certain; above, the beam decides."""
BEAM = 48


@dataclass(frozen=True, slots=True)
class _Task:
    """A binding: bytes it needs while it runs, storages it makes and storages it touches."""

    scratch: int
    makes: tuple[int, ...]
    uses: tuple[int, ...]
    needs: int  # bit set of tasks that must come first


def reorder(module: Any, name: str = "main") -> Any:
    """`module` (in legal form) with the bindings of function `name` in a better order, if there is one."""
    gv = module.get_global_var(name)
    function = module[gv]
    if not isinstance(function.body, relax.SeqExpr):
        return module
    before = _peak(module, name)
    blocks = _Reorder(module, name).blocks()
    body = relax.SeqExpr(blocks, function.body.body)
    changed = relax.Function(function.params, body, function.ret_ty, function.is_pure, function.attrs)
    candidate = ir.IRModule(dict(module.functions.items()), module.attrs, dict(module.global_infos.items()))
    candidate.update_func(gv, changed)
    after = _peak(candidate, name)
    if after >= before:
        return module
    candidate.update_func(gv, changed.with_attr(ORDER_PEAKS, [before, after]))
    return candidate


def _peak(module: Any, name: str) -> int:
    requested = Request(CompileOptions(NO_NPU, overlaps=False), (Pool("any"),), io_in_pools=False)
    problem, _ = build(walk(module, name), requested)
    return pressure_of(problem).peak_bytes


class _Reorder:
    def __init__(self, module: Any, name: str) -> None:
        program = walk(module, name)
        self.function = program.function
        self.values = program.values
        self.sizes: dict[Any, int] = {t: t.size_bytes or 0 for t in program.tensors}
        self.kept = {view.tensor for view in program.results}
        self.scratch: dict[str, int] = {}
        for call in program.calls:
            self.scratch.setdefault(call.function, sum(i.size_bytes or 0 for i in call.internals))

    def blocks(self) -> list[Any]:
        bindings = [b for block in self.function.body.blocks for b in block.bindings]
        last_use = {t: i for i, b in enumerate(bindings) for t in self.touched(b)}
        ordered: list[Any] = []
        segment: list[Any] = []
        for index, binding in enumerate([*bindings, None]):
            if binding is not None and _movable(binding):
                segment.append(binding)
                continue
            ordered += self.best(segment, last_use, index)
            segment = []
            if binding is not None:
                ordered.append(binding)
        return [relax.BindingBlock(ordered)]

    def touched(self, binding: Any) -> set[Any]:
        """Storages that a binding reads or writes."""
        found: set[Any] = set()
        for var in (binding.var, *relax.analysis.free_vars(binding.value)):
            value = self.values.get(var)
            if value is not None:
                found.update(view.tensor for view in views(value))
        return found

    def best(self, segment: Sequence[Any], last_use: dict[Any, int], end: int) -> list[Any]:
        """The segment in its best order; `end` is the index of the binding after it."""
        if len(segment) < 3:
            return list(segment)
        number: dict[Any, int] = {}
        producer: dict[Any, int] = {b.var: i for i, b in enumerate(segment)}
        tasks = []
        made: set[int] = set()
        for binding in segment:
            ids = tuple(sorted(number.setdefault(t, len(number)) for t in self.touched(binding)))
            calls = operator_of(binding.value) == "relax.call_tir"
            fresh = {number[view.tensor] for view in views(self.values[binding.var])} if calls else set()
            makes = tuple(sorted(fresh - made))
            made.update(makes)
            needs = sum({1 << producer[v] for v in relax.analysis.free_vars(binding.value) if v in producer})
            callee = getattr(getattr(binding.value, "args", [None])[0], "name_hint", "")
            tasks.append(_Task(self.scratch.get(callee, 0), makes, ids, needs))
        sizes = [self.sizes.get(tensor, 0) for tensor in number]
        stays = [tensor in self.kept or last_use.get(tensor, -1) >= end for tensor in number]
        return [segment[i] for i in _search(tasks, sizes, stays)]


def _movable(binding: Any) -> bool:
    if isinstance(binding, relax.MatchCast):
        return False
    value = binding.value
    if isinstance(value, ir.Call):
        return operator_of(value) in ("relax.call_tir", *RELAX_VIEWS)
    return isinstance(value, ir.Var | ir.Tuple) or type(value).__name__ in ("TupleGetItem", "GenericConst")


class _Search:
    """Cost of orders: bytes of storages made and not yet dead, plus scratch while a task runs."""

    def __init__(self, tasks: Sequence[_Task], sizes: Sequence[int], stays: Sequence[bool]) -> None:
        self.tasks, self.sizes, self.stays = tasks, sizes, stays
        self.users = [0] * len(sizes)
        for i, task in enumerate(tasks):
            for storage in task.uses:
                self.users[storage] |= 1 << i
        made = {s for task in tasks for s in task.makes}
        self.start = sum(size for i, size in enumerate(sizes) if i not in made)

    def after(self, done: int, level: int, task: int) -> tuple[int, int]:
        """(bytes live afterwards, highest meanwhile) when `task` runs next."""
        t = self.tasks[task]
        during = level + sum(self.sizes[s] for s in t.makes)
        done |= 1 << task
        freed = sum(self.sizes[s] for s in t.uses if not self.stays[s] and not self.users[s] & ~done)
        return during - freed, during + t.scratch

    def ready(self, done: int) -> list[int]:
        """Tasks whose needs are met."""
        return [i for i, t in enumerate(self.tasks) if not done >> i & 1 and not t.needs & ~done]


def _search(tasks: Sequence[_Task], sizes: Sequence[int], stays: Sequence[bool]) -> list[int]:
    """The order with the lowest peak; the given one when no better is found."""
    search = _Search(tasks, sizes, stays)
    given = list(range(len(tasks)))
    peak, level, done = 0, search.start, 0
    for i in given:
        level, high = search.after(done, level, i)
        peak, done = max(peak, high), done | 1 << i
    found, complete = _exact(search, peak)
    return found or (given if complete else _beam(search, peak) or given)


def _exact(search: _Search, limit: int) -> tuple[list[int] | None, bool]:
    """Best first over sets of done tasks: the first complete set has the lowest peak.

    The order if one has a peak below `limit`, and whether the search ran to its end.
    """
    everything = (1 << len(search.tasks)) - 1
    best: dict[int, tuple[int, int, int]] = {0: (0, -1, 0)}  # done -> peak, last task, done before it
    queue = [(0, 0, 0, search.start)]  # peak, -tasks done, done, bytes live
    closed: set[int] = set()
    while queue:
        peak, negative_count, done, level = heapq.heappop(queue)
        if done in closed:
            continue
        closed.add(done)
        if done == everything:
            order = []
            while done:
                _, task, done = best[done]
                order.append(task)
            return order[::-1], True
        if len(closed) > STATES:
            return None, False
        for task in search.ready(done):
            state = done | 1 << task
            below, high = search.after(done, level, task)
            reached = max(peak, high)
            if reached < limit and (state not in best or reached < best[state][0]):
                best[state] = (reached, task, done)
                heapq.heappush(queue, (reached, negative_count - 1, state, below))
    return None, True


def _beam(search: _Search, limit: int) -> list[int] | None:
    """The best order among the `BEAM` most promising beginnings of every length."""
    front: list[tuple[int, int, int, tuple[int, ...]]] = [(0, search.start, 0, ())]
    for _ in search.tasks:
        following: dict[int, tuple[int, int, int, tuple[int, ...]]] = {}
        for peak, level, done, order in front:
            for task in search.ready(done):
                below, high = search.after(done, level, task)
                entry = (max(peak, high), below, done | 1 << task, (*order, task))
                if entry[0] < limit and (entry[2] not in following or entry[:2] < following[entry[2]][:2]):
                    following[entry[2]] = entry
        front = heapq.nsmallest(BEAM, following.values())
    return list(front[0][3]) if front else None
