"""`memory_planning`: the planners of this package as the algorithm of ExecuTorch's `MemoryPlanningPass`.

Invariant: the plan is verified, keeps every preset memory id and every tensor that lies in another one's bytes, and has
no more bytes than the plan of ExecuTorch's greedy algorithm, which is returned where it is better. Neither TVM nor an
NPU is needed. Nothing of ExecuTorch or PyTorch is imported before a function here is called; graphs and specs stay
opaque to everything else, because the names of ExecuTorch's export side are private and move between versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..errors import NpuMemplanError
from ..planners import PlanningError, plan
from ..problem import AllowedOverlap, Buffer, Lifetime, Plan, Pool, Problem

Spec: TypeAlias = Any  # executorch.exir.tensor.TensorSpec
Graph: TypeAlias = Any  # torch.fx.GraphModule

# Operators whose portable and optimized kernels read element i of an input of the output's own shape before they write
# element i, and never again.
ELEMENTWISE = frozenset((
    "abs", "add", "ceil", "clamp", "cos", "div", "elu", "erf", "exp", "floor", "gelu",
    "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "log", "maximum", "minimum", "mul", "neg", "pow",
    "reciprocal", "relu", "round", "rsqrt", "rsub", "sigmoid", "sign", "silu", "sin", "sqrt", "sub", "tanh",
))  # fmt: skip


class ExirError(NpuMemplanError):
    """The installed ExecuTorch is not as it is expected here."""


@dataclass(frozen=True, slots=True)
class GreedyPlan:
    """The plan of ExecuTorch's own planner of the same tensors: bytes of each buffer, the place of each spec."""

    sizes: list[int]
    places: list[tuple[int, int]]  # memory id, offset


def greedy_plan(alignment: int, specs: Sequence[Spec], graph: Graph, signature: Any, padding: int) -> GreedyPlan:
    """ExecuTorch's greedy plan of `specs`; it also aligns their sizes."""
    try:
        from executorch.exir.memory_planning import greedy
    except ImportError as error:
        raise ExirError(f"ExecuTorch's planner cannot be imported ({error}); install executorch 1.5") from None
    result = greedy(alignment, specs, graph, signature, padding)
    placed = [result.spec_dict[spec] for spec in specs]
    return GreedyPlan(list(result.bufsizes), [(one.mem_id, one.mem_offset) for one in placed])


def algorithm_result(specs: Sequence[Spec], places: Iterable[tuple[int, int]], sizes: list[int]) -> Any:
    """A `MemoryAlgoResult`; specs of one buffer are one object, as they may share bytes."""
    from executorch.exir.memory_planning import MemoryAlgoResult, SpecAllocResult

    placed = (SpecAllocResult(memory, 0, offset) for memory, offset in places)
    return MemoryAlgoResult(dict(zip(specs, placed, strict=True)), sizes)


def storage_of(spec: Spec) -> tuple[Spec, int] | None:
    """The spec whose bytes `spec` lies in and where in them; None for a spec with bytes of its own."""
    base, offset = getattr(spec, "storage_base", None), 0
    if base is not None:
        offset = int(spec.storage_base_offset)
    elif not hasattr(spec, "storage_base"):
        base = getattr(spec, "inplace_base", None)
    return None if base is None else (base, offset)


def lies_in(spec: Spec, base: Spec) -> None:
    """Note that `spec` lies on the bytes of `base`, so that ExecuTorch's verifier accepts it."""
    if hasattr(spec, "storage_base"):
        spec.storage_base, spec.storage_base_offset = base, 0
    elif hasattr(spec, "inplace_base"):
        spec.inplace_base = base


def reserved_bytes(graph: Graph) -> list[int]:
    """Bytes that the bodies of control flow need at the start of each buffer, by memory id."""
    return list(getattr(graph, "input_mem_buffer_sizes", None) or [])


def first_control_flow(graph: Graph) -> int:
    """Position of the first node that runs a body (cond, while, map, scan); 0 where none is found."""
    import torch

    for position, node in enumerate(graph.graph.nodes):
        for argument in node.args if node.op == "call_function" else ():
            if getattr(argument, "op", "") == "get_attr" and isinstance(
                getattr(graph, argument.target, None), torch.fx.GraphModule
            ):
                return position
    return 0


def in_place_pairs(graph: Graph) -> Iterator[tuple[Spec, Spec]]:
    """(input, output) of elementwise operators that may write their output onto that input, which ends there."""
    import torch

    for position, node in enumerate(graph.graph.nodes):
        target = node.target
        if not isinstance(target, torch._ops.OpOverload) and hasattr(target, "_op"):
            target = target._op  # an operator of the Edge dialect
        schema = getattr(target, "_schema", None)
        output = node.meta.get("spec") if node.op == "call_function" else None
        if schema is None or schema.name.rpartition("::")[2] not in ELEMENTWISE or not hasattr(output, "lifetime"):
            continue
        if "out" not in node.kwargs:
            continue
        for argument in node.args:
            given = argument.meta.get("spec") if isinstance(argument, torch.fx.Node) else None
            if given is not None and hasattr(given, "lifetime") and _alike(given, output, position):
                yield given, output


def _alike(given: Spec, output: Spec, position: int) -> bool:
    same = (given.dtype, list(given.shape), list(given.dim_order)) == (
        output.dtype, list(output.shape), list(output.dim_order)
    )  # fmt: skip
    static = not given.is_dynamic_shape_tensor and not output.is_dynamic_shape_tensor
    return given is not output and same and static and not given.const and given.lifetime[1] == position


_DEFAULT = 1  # the memory id of specs that nothing has given one
_LARGEST = 1 << 20  # of a memory id


class BankError(NpuMemplanError):
    """The banks given cannot be used, or the tensors do not fit them."""


def memory_planning(
    banks: Mapping[int, int | None] | None = None,
    *,
    in_place: bool = True,
    planner: str = "auto",
    time_limit_s: float | None = None,
) -> ExecutorchPlanner:
    """An algorithm for `MemoryPlanningPass(memory_planning_algo=memory_planning())`.

    `banks`: bytes of each memory id that tensors without a preset one may use, best first (None: no limit); default:
    memory 1 without a limit. `in_place`: elementwise operators may write onto an input that ends there. Its attribute
    `algorithm` is for a `MemoryPlanningAlgorithmSuite`, `reports` has each graph's result. Raises `BankError` when
    the tensors do not fit, and for banks that mean nothing.
    """
    chosen = {_DEFAULT: None} if banks is None else dict(banks)
    for memory, size in chosen.items():
        if not isinstance(memory, int) or not 1 <= memory < _LARGEST:
            raise BankError(f"memory id {memory!r} is none: ids are whole numbers from 1 on (0 are constants)")
        if size is not None and (not isinstance(size, int) or size <= 0):
            raise BankError(f"bank {memory} has {size!r} bytes; give a whole number above 0, or None for no limit")
    if not chosen:
        raise BankError("no bank is given; give at least one memory id, e.g. {1: 262144}")
    return ExecutorchPlanner(chosen, in_place, planner, time_limit_s)


@dataclass(frozen=True, slots=True)
class PlannedGraph:
    """The result for one graph: bytes in all buffers, greedy's, and what no plan can go below."""

    tensors: int
    planned_bytes: int
    greedy_bytes: int
    bound_bytes: int
    status: str  # of the plan that was made: optimal or feasible
    greedy_kept: bool = False


@dataclass(slots=True, eq=False)
class ExecutorchPlanner:
    """Plans the graph that it is called with; made by `memory_planning`."""

    banks: Mapping[int, int | None]
    in_place: bool
    planner: str
    time_limit_s: float | None
    reports: list[PlannedGraph] = field(default_factory=list)

    def __call__(
        self, alignment: int, specs: Iterable[Spec], graph_module: Graph, graph_signature: Any, extra_padding: int = 0
    ) -> list[int]:
        """Place `specs`; the bytes of each buffer, by memory id."""
        listed = list(specs)
        result, pairs = self._plan(alignment, listed, graph_module, graph_signature, extra_padding)
        for spec, one in result.spec_dict.items():
            spec.mem_id, spec.mem_obj_id, spec.mem_offset = one.mem_id, one.mem_obj_id, one.mem_offset
        for given, output in pairs:
            if (given.mem_id, given.mem_offset) == (output.mem_id, output.mem_offset):
                lies_in(output, given)
        sizes: list[int] = result.bufsizes
        return sizes

    def algorithm(
        self, alignment: int, specs: Iterable[Spec], graph_module: Graph, graph_signature: Any, extra_padding: int = 0
    ) -> Any:
        """The plan as a `MemoryAlgoResult`, without a change to the specs."""
        return self._plan(alignment, list(specs), graph_module, graph_signature, extra_padding)[0]

    def _plan(
        self, alignment: int, specs: Sequence[Spec], graph: Graph, signature: Any, padding: int
    ) -> tuple[Any, list[tuple[Spec, Spec]]]:
        greedy = greedy_plan(alignment, specs, graph, signature, padding)
        extracted = _Extracted(self.banks, alignment, specs, graph, padding)
        pairs = extracted.in_place() if self.in_place else []
        problem = extracted.problem(pairs)
        try:
            found = plan(problem, self.planner, self.time_limit_s)
        except PlanningError as error:
            raise BankError(f"the tensors of the graph do not fit the banks: {error}") from error
        sizes = extracted.sizes(found)
        bound = sum(usage.lower_bound_bytes for usage in found.usage)
        greedy_fits = _fits(specs, greedy, self.banks)
        kept = greedy_fits and sum(greedy.sizes) < sum(sizes)
        places = greedy.places if kept else extracted.places(found)
        chosen = greedy.sizes if kept else sizes
        self.reports.append(PlannedGraph(len(specs), sum(chosen), sum(greedy.sizes), bound, found.status.value, kept))
        return algorithm_result(specs, places, chosen), [] if kept else pairs


def _fits(specs: Sequence[Spec], greedy: GreedyPlan, banks: Mapping[int, int | None]) -> bool:
    """Whether a greedy plan keeps preset memories, and puts all others into the banks."""
    limits = ((size, banks.get(memory)) for memory, size in enumerate(greedy.sizes))
    if any(limit is not None and size > limit for size, limit in limits):
        return False
    placed = zip(specs, greedy.places, strict=True)
    return all(memory in banks if spec.mem_id is None else memory == spec.mem_id for spec, (memory, _) in placed)


class _Extracted:
    """The tensors of a graph as a planning problem.

    The bodies of control flow use the start of their buffers. What they leave there may be their results, which are
    handed on without a copy, so from the first body on nothing else lies there.
    """

    def __init__(
        self, banks: Mapping[int, int | None], alignment: int, specs: Sequence[Spec], graph: Graph, padding: int
    ) -> None:
        self.banks, self.alignment, self.specs, self.graph, self.padding = banks, alignment, specs, graph, padding
        self.number = {id(spec): index for index, spec in enumerate(specs)}
        self.roots = [self._root_spec(spec) for spec in specs]
        self.reserved = {m: size for m, size in enumerate(reserved_bytes(graph)) if m and size}
        self.placed = [i for i, (root, _) in enumerate(self.roots) if root == i and specs[i].allocated_memory]

    def _root_spec(self, spec: Spec) -> tuple[int, int]:
        """The spec whose bytes `spec` lies in, followed to the end, and where in them."""
        offset, seen = 0, {id(spec)}
        while (found := storage_of(spec)) is not None:
            spec, offset = found[0], offset + found[1]
            if id(spec) in seen:
                raise ExirError("the storage_base of tensor specs goes in a circle")
            seen.add(id(spec))
        if id(spec) not in self.number:
            raise ExirError("the storage_base of a tensor spec is not planned with it")
        return self.number[id(spec)], offset

    def in_place(self) -> list[tuple[Spec, Spec]]:
        """Pairs of specs with bytes of their own, in which nothing else lies."""
        shared = {root for index, (root, _) in enumerate(self.roots) if root != index}
        alone = {id(self.specs[i]) for i in self.placed if i not in shared}
        pairs = in_place_pairs(self.graph)
        return [(given, output) for given, output in pairs if {id(given), id(output)} <= alone]

    def problem(self, pairs: Sequence[tuple[Spec, Spec]]) -> Problem:
        buffers = [self._buffer(index) for index in self.placed]
        start = first_control_flow(self.graph) if self.reserved else 0
        end = max([start + 1, len(self.graph.graph.nodes), *(b.lifetimes[0].last for b in buffers)])
        for memory, size in self.reserved.items():
            lifetime = Lifetime(start, end)
            buffers.append(Buffer(f"bodies{memory}", size, (lifetime,), 1, (_pool(memory),), fixed=(_pool(memory), 0)))
        used = {m for m in (spec.mem_id for spec in self.specs) if m is not None} | {*self.banks} | {*self.reserved}
        pools = [Pool(_pool(memory), self._limit(memory), self.alignment) for memory in self._spec_order(used)]
        overlaps = []
        for given, output in {(id(a), id(b)): (a, b) for a, b in pairs}.values():
            names = (f"t{self.number[id(given)]}", f"t{self.number[id(output)]}")
            overlaps.append(AllowedOverlap(*names, 0, 0, "elementwise"))
        return Problem(tuple(buffers), tuple(pools), overlaps=tuple(overlaps), name="executorch")

    def _buffer(self, index: int) -> Buffer:
        spec = self.specs[index]
        first, last = spec.lifetime
        pools = (_pool(spec.mem_id),) if spec.mem_id is not None else tuple(map(_pool, self.banks))
        return Buffer(f"t{index}", spec.allocated_memory, (Lifetime(first, last + 1),), self.alignment, pools)

    def _spec_order(self, used: set[int]) -> list[int]:
        return [*self.banks, *sorted(used - self.banks.keys())]

    def _limit(self, memory: int) -> int | None:
        limit = self.banks.get(memory)
        return None if limit is None else max(0, limit - self.padding)

    def places(self, found: Plan) -> list[tuple[int, int]]:
        """(memory id, offset) of each spec."""
        placements = {one.buffer: (int(one.pool.removeprefix("memory")), one.offset_bytes) for one in found.placements}
        result = []
        for index, (root, offset) in enumerate(self.roots):
            preset = self.specs[index].mem_id
            empty = next(iter(self.banks)) if preset is None else preset
            memory, start = placements.get(f"t{root}", (empty, 0))
            result.append((memory, start + offset))
        return result

    def sizes(self, found: Plan) -> list[int]:
        """Bytes of each buffer by memory id; 0 are constants, and there is always a first."""
        used = {int(usage.pool.removeprefix("memory")): usage.used_bytes for usage in found.usage}
        sizes = [0] * (max([_DEFAULT, *(memory for memory, size in used.items() if size)]) + 1)
        for memory, size in used.items():
            if size:
                sizes[memory] = size + self.padding
        return sizes


def _pool(memory: int) -> str:
    return f"memory{memory}"
