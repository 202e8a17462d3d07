"""Both producers of NPU operations compete, own lowering also in stripes: who fits, then fewest cycles, then bytes.

Invariant: every entrant is a program like any other, planned and verified; who is taken, and against whom, is said in
one line. Own lowering is not made where Vela's stream takes what its constants' port needs anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from .. import planners
from ..errors import NpuMemplanError
from ..ethosu.program.primfunc import from_primfunc
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.stripes.apply import apply
from ..ethosu.schedule.stripes.groups import Group, Groups
from ..ethosu.time import MemoryMap
from ..extract import pose
from ..options import CompileOptions
from ..planners import PlanningError, prefetch
from ..stages import Loaded, Planned, Posed
from ..transform.stripes import at_limit, front
from ..vocabulary import is_npu
from .bound import bound_of, port_bound
from .modules import posed_again
from .ranking import Ranking
from .travel import fast_pool, travel

VELA, OURS, STRIPES = "Vela's stream", "own lowering", "own lowering in stripes"
_CLOSE = 1.03  # times the port's bound, which is the same for all: no other is made
_SHARES = (1.0, 0.85, 0.75, 0.6, 0.45, 0.3, 0.2)  # of the pool: what stripes may keep alive
_FAR_SHARES = (1.0, 0.85)  # the same where constants are read in place


def fastest(options: CompileOptions, where: MemoryMap, load: Callable[[CompileOptions], Loaded]) -> Planned:
    """The best program of the producers asked for, in pools of the sizes given; `load` reads and lowers the model.

    Raises what the last producer raises where none can be planned.
    """
    rank = Ranking(where)
    first: Planned | None = None
    failed: NpuMemplanError | None = None
    ours: list[Planned] = []
    reason: NpuMemplanError | None = None
    if options.npu_compiler != "tvm":
        asked = replace(options, npu_compiler="vela", stripes=False)
        lifted, failed = _attempt(lambda: [_planned(_named(load(asked), VELA))])
        first = travel(lifted[0], rank) if lifted else None
        if first is not None and rank(first)[0] <= _CLOSE * port_bound(first, where):
            return _said(first, rank, (), options)
    if options.npu_compiler != "vela":
        ours, reason = _attempt(lambda: list(_ours(load, replace(options, npu_compiler="tvm", stripes=False), where)))
    second = travel(ours[0], rank, ours[1:]) if ours else None
    both = sorted((made for made in (first, second) if made is not None), key=rank)
    if not both:
        raise failed or reason or NpuMemplanError("no producer was asked for")
    return _said(both[0], rank, both[1:], options)


def _attempt(make: Callable[[], list[Planned]]) -> tuple[list[Planned], NpuMemplanError | None]:
    try:
        return make(), None
    except NpuMemplanError as error:
        return [], error


def _named(loaded: Loaded, maker: str) -> Loaded:
    return replace(loaded, maker=maker)


def _planned(loaded: Loaded) -> Planned:
    posed = pose(loaded)
    options = loaded.request.options
    return Planned(posed, prefetch.plan(posed.problem, options.planner, options.time_limit_s, options.seed))


def _ours(load: Callable[[CompileOptions], Loaded], options: CompileOptions, where: MemoryMap) -> Iterator[Planned]:
    """Own lowering, whole and in stripes that keep ever fewer bytes alive; an error only where nothing fits."""
    loaded = _named(load(options), OURS)
    posed = pose(loaded)
    missed: PlanningError | None = None
    some = False
    for made in (posed, *_striped(posed, where)):
        try:
            plan = planners.plan(made.problem, options.planner, options.time_limit_s, options.seed)
        except PlanningError as error:
            missed = missed or error
        else:
            some = True
            yield Planned(made, plan)
    if not some and missed is not None:
        raise missed


def _striped(posed: Posed, where: MemoryMap) -> Iterator[Posed]:
    loaded = posed.loaded
    fast = fast_pool(posed.problem.pools, where)
    size = posed.problem.pools[fast].size_bytes if fast is not None else None
    if size is None or not loaded.request.options.overlaps:
        return
    programs = {v: from_primfunc(f) for v, f in loaded.module.functions.items() if is_npu(f)}
    seen: list[object] = []
    for near, chosen in _stripings(programs, size, where, loaded.request.options.reuse_inputs):
        if any(chosen.values()) and chosen not in seen:
            seen.append(chosen)
            cut = {v.name_hint: apply(programs[v], groups, near) for v, groups in chosen.items() if groups}
            yield posed_again(replace(posed, loaded=_named(loaded, STRIPES)), cut)


_Groups = dict[Any, tuple[Group, ...]]  # by function


def _stripings(
    programs: dict[Any, NpuProgram], size: int, where: MemoryMap, reuse: bool
) -> Iterator[tuple[MemoryMap, _Groups]]:
    """Which operations are made in stripes, and where their constants were taken to be: near, copied into what stripes
    leave of the pool, or far, read where they are but for those that groups keep.
    """
    near = where.with_constants_near()
    limits = [int(size * share) for share in _SHARES]
    fronts = {v: front(Groups(p, reuse_inputs=reuse, where=near), limits) for v, p in programs.items()}
    for limit in limits:
        fitting = {v: [c for c in found if c.size_bytes <= limit] for v, found in fronts.items()}
        yield near, {v: (fitting[v] or [found[0]])[-1].groups for v, found in fronts.items()}
    far = {v: Groups(p, reuse_inputs=reuse, where=where) for v, p in programs.items()}
    for share in _FAR_SHARES:
        yield where, {v: at_limit(groups, int(size * share)).groups for v, groups in far.items()}


def _said(best: Planned, rank: Ranking, others: Sequence[Planned], asked: CompileOptions) -> Planned:
    """`best`, with the line that says why, as what was asked for."""
    loaded = replace(best.posed.loaded, request=replace(best.posed.loaded.request, options=asked))
    text = f"{_figures(best, rank)}, {bound_of(best, rank):,} at least"
    text += "".join(f"; {_figures(other, rank)}" for other in others)
    return replace(best, posed=replace(best.posed, loaded=replace(loaded, notes=(*loaded.notes, f"taken: {text}"))))


def _figures(planned: Planned, rank: Ranking) -> str:
    cycles, used = rank(planned)
    return f"{planned.posed.loaded.maker}, {cycles:,} cycles in {used:,} bytes"
