"""From a module to a planning problem: PrimFuncs whose allocations are statements, and a buffer for each storage.

Invariant: `prepare` is idempotent and deterministic, so extraction and rewriting see the same module; NPU PrimFuncs are
left untouched, their allocations are statements already. Every storage that the plan may place is one buffer of the
problem, under the name the walk gave it; what is not in the problem stays where the program put it. An overlap of two
buffers is allowed only when the one operation that was proven safe is the only point where both live.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import ir, relax, s_tir, tirx

from ..problem import Agent, AliasGroup, AllowedOverlap, Buffer, BufferKind, Lifetime, Problem
from ..problem.spans import count_covered
from ..request import Request
from ..vocabulary import is_npu
from .liveness import ALWAYS, PoolAssignment, Storage, accesses_of, branches_of, lifetimes
from .program import (
    Branch,
    Candidate,
    ExtractionError,
    Loop,
    Node,
    Plain,
    Program,
    RelaxTensor,
    Step,
    View,
    lower_bound,
    result_views,
    static_extent,
)
from .symbolic import Sample
from .tir import may_overlap, nodes_of


def prepare(module: Any, user: str = "", known: Collection[Any] = ()) -> Any:
    """`module` with every block-level PrimFunc that `user` refers to lowered to loops, but for those `known`."""
    functions = dict(module.functions.items())
    blocked = {
        gv: f
        for gv, f in functions.items()
        if isinstance(f, tirx.PrimFunc) and f not in known and not is_npu(f) and _has_blocks(f)
    }
    if blocked and user:
        used = {name for gv, f in functions.items() if gv.name_hint == user for name in nodes_of(f.body, ir.GlobalVar)}
        blocked = {gv: f for gv, f in blocked.items() if gv in used}
    if not blocked:
        return module
    lowered = _to_loops(tvm.IRModule(blocked))
    result = tvm.IRModule(dict(module.functions.items()), module.attrs, dict(module.global_infos.items()))
    for gv, f in lowered.functions.items():
        body = tvm_ffi.structural_map(f.body, (tirx.For, _mark_unit_loop))
        result.update_func(module.get_global_var(gv.name_hint), tirx.PrimFunc(f.params, body, f.ret_type, f.attrs))
    return result


UNIT = "npu_memplan.unit"


def _mark_unit_loop(loop: Any) -> Any:
    """A loop of one iteration that lowering kept (of a schedule's pragma); it stays in the kernel."""
    if static_extent(loop.extent) != 1 or loop.annotations or loop.kind != tirx.ForKind.SERIAL:
        return loop
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, loop.body, loop.thread_binding, {UNIT: True}, loop.step
    )


def _has_blocks(function: Any) -> bool:
    found = tvm_ffi.structural_walk(function.body, (s_tir.SBlock, lambda s: tvm_ffi.VisitInterrupt(True)), order="pre")
    return found is not None


def _to_loops(module: Any) -> Any:
    # TVM's own order up to LowerOpaqueBlock, after which nothing about blocks is left to lower.
    passes = [
        s_tir.transform.CanonicalizeLoop(),
        s_tir.transform.LowerCrossThreadReduction(),
        s_tir.transform.LowerInitBlock(),
        s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
        s_tir.transform.ConvertBlocksToOpaque(),
        s_tir.transform.LiftThreadBinding(),
        s_tir.transform.ManifestSharedMemoryLocalStage(),
        s_tir.transform.CompactBufferAllocation(),
        s_tir.transform.LowerAutoCopy(),
        s_tir.transform.UnifyThreadBinding(),
        s_tir.transform.LowerMatchBuffer(),
        s_tir.transform.StmtSimplify(),
        s_tir.transform.InjectPermutedLayout(),
        s_tir.transform.AnnotateIrregularLoop(),
        s_tir.transform.InjectSoftwarePipeline(),
        s_tir.transform.TransformMmaBufferLayout(),
        s_tir.transform.LowerOpaqueBlock(),
        tirx.transform.StmtSimplify(),  # also folds what TVMScript would fold when it reads the text back
    ]
    return ir.transform.Sequential(passes)(module)


OWNS, GETS = "the caller owns it", "the caller gets it"
"""Why a boundary tensor is not planned: its bytes are no matter of the function's."""


def build(
    program: Program, requested: Request, sample: Sample | None = None
) -> tuple[Problem, dict[Storage, tuple[Lifetime, ...]]]:
    """The problem of `program` on the pools that are `requested`, and the lifetimes of all its storages.

    With constant pools the program must have been walked with `constants`. Storages whose sizes depend on shape symbols
    are as in the `sample`; without one they are no buffers.
    """
    sizes = sample.sizes_bytes() if sample is not None else {}
    if requested.io_in_pools:
        _check_boundary(program)
    ordered = program.number_points()
    lives = lifetimes(program)
    end = max(1, len(ordered))
    groups = _merge_groups(program.nodes)
    _settle_external(program, groups, requested.io_in_pools, sizes)
    if requested.io_in_pools:
        _check_places(program)
    traffic = _Traffic(ordered)
    results = {view.tensor for view in program.results}
    placed = [
        s
        for s, life in lives.items()
        if (s.size_bytes is not None or s in sizes) and (life or s in results) and not getattr(s, "external", "")
    ]
    homes = PoolAssignment(requested.pools, requested.constant_pools, program, placed)
    least = requested.alignment if sample is None else max(requested.alignment, sample.extents.alignment)
    planned = {}
    for s in placed:
        life = lives[s]
        if s.kind is BufferKind.INPUT and not requested.options.reuse_inputs:
            life = (Lifetime(0, end),)
        planned[s] = _buffer(s, sizes.get(s, s.size_bytes), life, least, traffic, homes.pools_for(s))
    declared = (*program.tensors, *(internal for call in program.calls for internal in call.internals))
    storages = [s for s in declared if s in planned]
    candidates = [c for call in program.calls for c in call.overlaps]
    wanted = requested.options.overlaps and may_overlap(program.function)
    overlaps = _overlaps(candidates, ordered, planned, lives, program, groups, sample) if wanted else ()
    problem = Problem(
        buffers=tuple(planned[s] for s in storages),
        pools=homes.pools(),
        aliases=tuple(_alias_groups(groups, planned)),
        overlaps=overlaps,
        points=tuple(s.label for s in ordered) or ("return",),
        name=program.name,
        accesses=accesses_of(program, planned, len(ordered)),
        branches=branches_of(program),
    )
    return problem, lives


def _check_boundary(program: Program) -> None:
    """Inputs and results in pools are tensors, inputs of sizes that are known or bounded, results written by calls."""
    for parameter in program.function.params:
        for leaf in result_views(program.values[parameter]):
            if isinstance(leaf, Plain) and not isinstance(leaf.expr.ty, relax.ShapeType):
                found = f"parameter {leaf.expr.name!r} of {program.name!r} is no tensor ({leaf.expr.ty})"
                raise _not_in_pools(f"{found}, so it cannot lie in a pool; leave inputs and outputs")
    for tensor in program.inputs:
        if tensor.size_bytes is None or tensor.external:
            extents = [e if static_extent(e) is None else static_extent(e) for e in tensor.shape]
            shape = ", ".join(map(str, extents)) or "unknown"
            raise _not_in_pools(
                f"input {tensor.name!r} of {program.name!r} has the shape ({shape}), which is not known at compile"
                " time: it cannot lie in a pool; give its symbols bounds (tir_var_upper_bound), bind them"
                " (relax.transform.BindSymbolicVars), or leave inputs and outputs"
            )
    if not all(isinstance(leaf, View) for leaf in result_views(program.result)):
        raise _not_in_pools(
            f"a result of {program.name!r} is a constant or has no bytes, so it cannot lie in a pool; return a"
            " tensor that a call computes, or leave outputs"
        )


def _check_places(program: Program) -> None:
    """Refuse a program with a result that cannot be planned."""
    for tensor in (view.tensor for view in program.results):
        if tensor.external or tensor.size_bytes is None:
            why = tensor.external or "its size has no upper bound"
            found = f"result {tensor.name!r} of {program.name!r} cannot lie in a pool: {why}"
            raise _not_in_pools(f"{found}; leave inputs and outputs")


def _not_in_pools(text: str) -> ExtractionError:
    return ExtractionError(f"{text} to the caller (use_workspace_io=False)")


def _buffer(
    storage: Storage,
    size_bytes: int | None,
    life: tuple[Lifetime, ...],
    alignment: int,
    traffic: _Traffic,
    pools: tuple[str, ...],
) -> Buffer:
    assert size_bytes is not None
    alignment = max(alignment, storage.least_alignment)
    if isinstance(storage, RelaxTensor):
        agents = frozenset(storage.agents or {Agent.HOST})
        if storage.kind in _BOUNDARY:
            agents |= {Agent.HOST}
    else:
        agents = frozenset({storage.agent})
    return Buffer(
        name=storage.name,
        size_bytes=size_bytes,
        lifetimes=life,
        alignment=alignment,
        pools=pools,
        agents=agents,
        kind=storage.kind,
        read_bytes=traffic.read.get(storage, 0),
        write_bytes=traffic.written.get(storage, 0),
        producer="the model" if storage.kind is BufferKind.CONSTANT else traffic.producer.get(storage, ""),
        consumers=tuple(traffic.consumers.get(storage, {})),
    )


_BOUNDARY = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.STATE)


class _Traffic:
    """Bytes moved and what moved them, for spilling by cost and for reports."""

    def __init__(self, ordered: Sequence[Step]) -> None:
        self.read: dict[Storage, int] = {}
        self.written: dict[Storage, int] = {}
        self.producer: dict[Storage, str] = {}
        self.consumers: dict[Storage, dict[str, None]] = {}
        for step in ordered:
            for access in step.accesses:
                storage, amount = access.storage, count_covered(access.spans)
                if access.writes:
                    self.written[storage] = self.written.get(storage, 0) + amount
                    self.producer.setdefault(storage, step.label)
                else:
                    self.read[storage] = self.read.get(storage, 0) + amount
                    self.consumers.setdefault(storage, {})[step.label] = None


def _merge_groups(nodes: Sequence[Node]) -> list[set[RelaxTensor]]:
    """Sets of tensors that share one placement because an `if` chooses between them."""
    groups: list[set[RelaxTensor]] = []
    for node in nodes:
        if isinstance(node, Loop):
            groups += _merge_groups(node.body)
        elif isinstance(node, Branch):
            groups += _merge_groups(node.then) + _merge_groups(node.other)
            for merge in node.merges:
                joined = set(merge)
                rest = []
                for group in groups:
                    if group & joined:
                        joined |= group
                    else:
                        rest.append(group)
                groups = [*rest, joined]
    return groups


def _settle_external(
    program: Program, groups: Sequence[set[RelaxTensor]], io_in_pools: bool, sizes: Mapping[Storage, int]
) -> None:
    """Mark the tensors that the caller owns, and keep groups together: all planned or none."""
    if not io_in_pools:
        for tensor in program.inputs:
            tensor.external = tensor.external or OWNS
        for view in program.results:
            view.tensor.external = view.tensor.external or GETS
    for group in groups:
        reasons = sorted({t.external for t in group if t.external})
        if not reasons and any(t.size_bytes is None and t not in sizes for t in group):
            reasons = ["its size has no upper bound"]
        for tensor in group if reasons else ():
            tensor.external = tensor.external or reasons[0]
        if any(t.view for t in group):
            for tensor in group:
                tensor.view = True


def _alias_groups(groups: Sequence[set[RelaxTensor]], planned: dict[Storage, Buffer]) -> list[AliasGroup]:
    result = []
    for group in groups:
        names = sorted(t.name for t in group if t in planned)
        if len(names) > 1:
            result.append(AliasGroup(names[0], tuple((name, 0) for name in names)))
    return sorted(result, key=lambda g: g.name)


def _overlaps(
    candidates: Sequence[Candidate],
    ordered: Sequence[Step],
    planned: dict[Storage, Buffer],
    lives: dict[Storage, tuple[Lifetime, ...]],
    program: Program,
    groups: Sequence[set[RelaxTensor]],
    sample: Sample | None,
) -> tuple[AllowedOverlap, ...]:
    """Overlaps at the points where the first buffer dies and the second is born."""
    given, results = set(program.inputs), {view.tensor for view in program.results}
    # the content of these is read when the last point has passed: results, and what becomes one
    lasting = results.union(program.kept, *(group for group in groups if group & results))
    allowed: dict[tuple[str, str], AllowedOverlap] = {}

    def alone(first: Storage, second: Storage, begin: int, last: int) -> bool:
        if first is second or first not in planned or second not in planned or second in given:
            return False
        if first.kind in ALWAYS or first in lasting:  # there is no point after the last one
            return False
        # Not after a read of its own: what is read first must have been there before.
        if not any(life.first == begin for life in lives[second]):
            return False
        # Nor while any step reads the first later on.
        if not any(life.last == last + 1 for life in lives[first]):
            return False
        # What was proven is proven of all points between; the second may be dead at some, as it is between stripes.
        common = _common(lives[first], lives[second])
        return all(begin <= start and stop <= last + 1 for start, stop in common)

    def allow(found: AllowedOverlap) -> None:
        if (found.first, found.second) not in allowed and (found.second, found.first) not in allowed:
            allowed[found.first, found.second] = found

    named = {storage.name: storage for storage in planned}
    for c in candidates:
        first, second = named.get(c.allowed.first), named.get(c.allowed.second)
        if first is not None and second is not None and alone(first, second, c.step.point, c.last.point):
            allow(c.allowed)
    for step in ordered:
        if step.origin is None:
            continue
        written = dict.fromkeys(a.storage for a in step.accesses if a.writes)
        read = dict.fromkeys(a.storage for a in step.accesses if not a.writes)
        for second in written:
            for first in read:
                if first in written or not alone(first, second, step.point, step.point):
                    continue
                highest = step.origin.distance(first, second)
                if highest is not None and sample is not None:
                    highest = sample.distance(first.name, second.name, highest)
                elif highest is not None and static_extent(highest) is None:  # offsets must hold for all values
                    highest = lower_bound(highest, program.bounds)
                if isinstance(highest, int) and highest > -planned[second].size_bytes:
                    reason = f"{step.label}: proven from its loads and stores"
                    allow(AllowedOverlap(first.name, second.name, None, highest, reason))
    for unread in _unread(program, ordered, lasting.union(*groups)):
        if unread in planned and planned[unread].lifetimes == (Lifetime(0, 1),):
            for other in planned:  # but for what is there before the first point, as it is
                if other not in given and other.kind not in ALWAYS and any(life.first == 0 for life in lives[other]):
                    allow(AllowedOverlap(unread.name, other.name, reason="the input is never read"))
    return tuple(allowed.values())


def _unread(program: Program, ordered: Sequence[Step], known: set[RelaxTensor]) -> list[RelaxTensor]:
    """Inputs that are never read; those at `known` are."""
    touched = {access.storage for step in ordered for access in step.accesses}
    return [t for t in program.inputs if t.kind is BufferKind.INPUT and t not in known and t not in touched]


def _common(a: Sequence[Lifetime], b: Sequence[Lifetime]) -> list[tuple[int, int]]:
    """The points that two lifetimes share, as ranges."""
    return sorted((max(x.first, y.first), min(x.last, y.last)) for x in a for y in b if x.meets(y))
