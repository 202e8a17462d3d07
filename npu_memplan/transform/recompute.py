"""Recomputation: calls run again before later readers, so that a plan fits the pools at the least extra cost.

Invariant: what runs again is the same kernel on the same values, so results are those of the function before, bit for
bit: only calls of PrimFuncs of known effect, and none whose tensors something else may change or hold (a call in place,
a branch, a packed function). Names of bytes (reshapes, tuples, views) follow what was made last. A schedule is searched
by its live bytes, and accepted by the bytes of its plan. With tensors in place or overlapping, a plan needs fewer bytes
than are live, so the limit of the search is moved until the plan just fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import tvm_ffi
from tvm import ir, relax

from ..extract.build import build
from ..extract.program import Invoke, RelaxTensor, views
from ..extract.tir import nodes_of, operator_of
from ..extract.walk import walk
from ..host_time import host_work
from ..planners.model import PlanningError
from ..planners.recompute import Task, TaskGraph, TaskSchedule, least_live_bytes, live_bytes, recompute
from ..request import Loaded, Request
from ..vocabulary import RECOMPUTED, RELAX_VIEWS
from .order import required_bytes

_PURE = ("relax.call_tir", "relax.call_dps_packed")
_OPAQUE = frozenset(("tirx.call_extern", "tirx.tvm_call_packed", "tirx.tvm_call_cpacked", "tirx.call_llvm_intrin"))


class CallTasks:
    """The calls of function `name` as tasks of `graph`, with the sizes of the buffers that `requested` plans."""

    def __init__(self, module: Any, name: str, requested: Request) -> None:
        self.module, self.name = module, name
        program = walk(module, name)
        self.function, self.values = program.function, program.values
        problem, _ = build(program, requested)
        self.sizes = {buffer.name: buffer.size_bytes for buffer in problem.buffers}
        self.kernels: dict[str, Invoke] = {}
        for call in program.calls:
            self.kernels.setdefault(call.function, call)
        self.bindings = [b for block in self.function.body.blocks for b in block.bindings]
        self.tasks = [b for b in self.bindings if not self._names_only(b)]
        self.graph = self._graph({view.tensor for view in program.results})

    def _names_only(self, binding: Any) -> bool:
        """Whether a binding only gives existing bytes another name."""
        value = binding.value
        if isinstance(binding, relax.MatchCast):
            return False
        if isinstance(value, ir.Call) and operator_of(value) not in RELAX_VIEWS:
            return False
        if not isinstance(value, ir.Call | ir.Var | ir.Tuple) and type(value).__name__ != "TupleGetItem":
            return False
        given = {t for v in relax.analysis.free_vars(value) for t in self._tensors(v)}
        return set(self._tensors(binding.var)) <= given

    def _tensors(self, var: Any) -> Iterator[RelaxTensor]:
        value = self.values.get(var)
        return iter(()) if value is None else (view.tensor for view in views(value))

    def _graph(self, results: set[RelaxTensor]) -> TaskGraph:
        numbers: dict[RelaxTensor, int] = {}
        held: set[int] = set()  # what other calls may change, or go on holding
        made: set[int] = set()
        found = []
        for binding in self.tasks:
            read = {n for v in relax.analysis.free_vars(binding.value) for n in self._numbers(v, numbers)}
            touched = [*self._numbers(binding.var, numbers)]
            makes = tuple(n for n in dict.fromkeys(touched) if n not in made and n not in read)
            if operator_of(binding.value) not in _PURE:
                held |= read.union(touched)
            made |= {*makes, *read}
            found.append((binding, tuple(sorted(read)), makes))
        kept = {numbers[t] for t in results if t in numbers}
        costs = {name: self._work(call) for name, call in self.kernels.items()}
        tasks = []
        for binding, reads, makes in found:
            called = self.kernels.get(_callee(binding.value))
            if called is None or operator_of(binding.value) != "relax.call_tir":
                tasks.append(Task(reads, makes, repeatable=False))
                continue
            scratch = sum(self.sizes.get(i.name, i.size_bytes or 0) for i in called.internals)
            again = not held.intersection((*reads, *makes)) and not kept.intersection(makes) and _is_known(called)
            tasks.append(Task(reads, makes, scratch, costs[called.function], again))
        return TaskGraph(tuple(tasks), tuple(self.sizes.get(t.name, 0) for t in numbers), frozenset(kept))

    def _numbers(self, var: Any, numbers: dict[RelaxTensor, int]) -> list[int]:
        return [numbers.setdefault(tensor, len(numbers)) for tensor in self._tensors(var)]

    @staticmethod
    def _work(call: Invoke) -> float:
        """Arithmetic operations of a call, and the bytes that it loads and stores."""
        work = host_work(call.primfunc)
        return work.operations + work.bytes

    def reorder_calls(self, order: Sequence[int]) -> Any:
        """The module with the calls in the order of a schedule."""
        body = _Emitter(self.bindings, self.tasks).run(order, self.function.body.body)
        old = self.function
        function = relax.Function(old.params, body, old.ret_ty, old.is_pure, old.attrs)
        module = ir.IRModule(
            dict(self.module.functions.items()), self.module.attrs, dict(self.module.global_infos.items())
        )
        module.update_func(module.get_global_var(self.name), function)
        return module


class _Emitter:
    """Bindings of a schedule; a variable stands for what was made last of it."""

    def __init__(self, bindings: Sequence[Any], tasks: Sequence[Any]) -> None:
        done = {b.var for b in tasks}
        self.names = {b.var: b for b in bindings if b.var not in done}
        self.tasks = tasks
        self.latest: dict[Any, Any] = {}
        self.emitted: list[Any] = []
        self.named: dict[Any, Any] = {}  # (name, what its parts stand for) -> variable

    def run(self, order: Sequence[int], result: Any) -> Any:
        seen: set[int] = set()
        for index in order:
            binding = self.tasks[index]
            value = self.current(binding.value)
            if index not in seen:
                seen.add(index)
                again = binding.var
                if isinstance(binding, relax.MatchCast):
                    self.emitted.append(relax.MatchCast(again, value, binding.ty))
                    continue
            else:
                again = relax.Var(binding.var.name, binding.var.ty)
                self.latest[binding.var] = again
            self.emitted.append(relax.VarBinding(again, value))
        result = self.current(result)
        return relax.SeqExpr([relax.BindingBlock(self.emitted)], result)

    def current(self, value: Any) -> Any:
        """An expression with every variable that it uses as it is now."""
        now = {var: self.value_of(var) for var in relax.analysis.free_vars(value)}
        if all(var.same_as(other) for var, other in now.items()):
            return value
        return tvm_ffi.structural_map(value, (ir.Var, lambda v: now.get(v, v)))

    def value_of(self, var: Any) -> Any:
        """The value that stands for a variable."""
        binding = self.names.get(var)
        if binding is None:
            return self.latest.get(var, var)
        parts = tuple(self.value_of(v) for v in relax.analysis.free_vars(binding.value))
        key = (var, parts)
        if key not in self.named:
            first = not any(known is var for known, _ in self.named)
            self.named[key] = var if first else relax.Var(var.name, var.ty)
            self.emitted.append(relax.VarBinding(self.named[key], self.current(binding.value)))
        return self.named[key]


def _callee(value: Any) -> str:
    return getattr(value.args[0], "name_hint", "") if isinstance(value, ir.Call) and value.args else ""


def _is_known(call: Invoke) -> bool:
    """Whether a PrimFunc does nothing but load, compute and store: it has no result other than its tensors."""
    called = {operator_of(found) for found in nodes_of(call.primfunc.body, ir.Call)}
    return bool(call.nodes) and not called & _OPAQUE


ATTEMPTS = 6
CLOSE = 1.02
"""Limits of the search this near to each other count as equal."""


QUICK = "first-fit"
"""The planner that judges schedules: a plan needs no more than it says."""


def fit(module: Any, requested: Request) -> Any:
    """`module` with calls of the function run again so that its plan fits the pools; else `PlanningError`."""
    sizes = [pool.size_bytes for pool in requested.pools]
    available = sum(size or 0 for size in sizes)
    required = required_bytes(Loaded.from_module(requested, module), requested.options.planner)
    if None in sizes or required <= available:
        return module
    tasks = CallTasks(module, requested.function, requested)
    graph = tasks.graph
    limit = peak = max(live_bytes(graph, graph.order), default=0)
    best, above, least = None, peak, required
    floor = least_live_bytes(graph)
    limit = max(floor, int(peak * available / required))
    below = 0
    for _ in range(ATTEMPTS):
        schedule = recompute(graph, limit)
        if schedule is None:
            below = max(below, limit)
            limit = (limit + above) // 2
        else:
            changed = tasks.reorder_calls(schedule.order)
            used = required_bytes(Loaded.from_module(requested, changed), QUICK)
            least = min(least, used)
            if used <= available:
                below, best = limit, (changed, schedule)
            else:
                above = limit
            near = int(limit * available / used)
            limit = max(floor, near if below < near < above else (below + above) // 2)
        if below and above <= below * CLOSE:
            break
    if best is None:
        raise PlanningError(
            f"{requested.function!r} needs {required} bytes, {least} with what can be computed again (its largest call"
            f" alone has {floor} live); the pools have {available}, {least - available} too few; give larger pools, or"
            " one without a size behind them",
            pool=requested.pools[0].name,
            required_bytes=least,
            available_bytes=available,
        )
    return _describe_schedule(*best, requested.function, sum(task.cost for task in graph.tasks))


def _describe_schedule(module: Any, schedule: TaskSchedule, name: str, cost: float) -> Any:
    """The module with what runs again in an attribute of its function."""
    gv = module.get_global_var(name)
    extra = len(schedule.order) - len(set(schedule.order))
    percent = f"{100 * schedule.extra_cost / cost:.1f}"
    module.update_func(gv, module[gv].with_attr(RECOMPUTED, [str(extra), percent]))
    return module
