"""NPU functions in stripes, so that their buffers need fewer bytes, and native lowering in stripes for the tuning.

Invariant: a function is changed only where a plan of its buffers, made by the ordinary planner, needs fewer bytes; of
several such choices, when a pool has a size, the one with the fewest cycles that fits; else the one with the least
bytes cubed times cycles, so that a per cent of bytes is worth three of cycles: stripes are for programs short of
memory. Each form is made once, and keeps no more bytes alive than the fast pool has, or as few more as can be. Choosing
stripes of one program needs no TVM; only the functions for a whole model import it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

from .. import planners
from ..ethosu.program.primfunc import from_primfunc, to_primfunc
from ..ethosu.program.program import BufferRole
from ..ethosu.schedule.blocks import places
from ..ethosu.schedule.constants import Slices, compact
from ..ethosu.schedule.rams import round_up
from ..ethosu.schedule.stripes.cascade_space import (
    CascadeSpace,
    apply,
    choose,
    copy_names,
    cycles_with_copies,
    least_bytes,
)
from ..ethosu.schedule.stripes.group import ChannelGroup, Group
from ..ethosu.time import MemoryMap
from ..problem import AllowedOverlap, Buffer, Lifetime, Placement, Plan, Pool, Problem
from ..request import StripeOptions
from ..stages import Extracted
from ..vocabulary import is_npu
from .ranking import ENDLESS, DecodedConstants, stream_cycles

if TYPE_CHECKING:
    from .candidate import Cutters, SearchBudget

_STEP, _WIDE_STEP = 105, 115  # per cent, from one limit to the next; where a choice is estimated beside copies
_LONGEST_NEAR = 8  # operations of a group whose constants are copied: no longer one was the best of a benchmark network
_FASTER = 0.998  # of the cycles of a choice with fewer bytes: others are not worth a plan
_BELOW = (90, 95)  # per cent
_FAR = 110  # per cent: what is planned for so much more hardly ever fits into less
_NODES = 20_000  # of a plan of some stripes: there are many to compare
_PLANNED = 3  # choices that are planned, best first, until one fits
_POOL = "arena"
_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class CascadeChoice:
    """Some groups of a program, what they need and what they cost; no groups: everything at once."""

    groups: tuple[Group, ...]
    size_bytes: int
    cycles: int


def stripe(module: Any, options: StripeOptions) -> Any:
    """`module` with the NPU functions in stripes."""
    import tvm

    functions = dict(module.functions.items())
    for variable, function in functions.items():
        if is_npu(function):
            program = from_primfunc(function)
            groups = CascadeSpace(
                program,
                io_in_pools=options.io_in_pools,
                reuse_inputs=options.reuse_inputs,
                memory_map=options.memory_map,
            )
            chosen = best_choice(groups, options.capacity_bytes)
            if chosen.groups:
                made = to_primfunc(apply(program, chosen.groups, groups.costs.blocks))
                kept = {str(k): v for k, v in function.attrs.items() if str(k) not in made.attrs}
                functions[variable] = made.with_attr(kept) if kept else made
    return tvm.IRModule(functions, module.attrs)


def best_choice(groups: CascadeSpace, capacity_bytes: int | None = None) -> CascadeChoice:
    """The choice with the fewest cycles that fits the capacity, or with the fewest bytes where none does; without one,
    that with the least bytes cubed times cycles.
    """
    whole = _measure_choice(groups, ())
    found = [whole]
    least = least_bytes(groups)
    for limit, choice in _choices(groups, whole, least):
        found.append(choice)
        if capacity_bytes is None and limit**3 * whole.cycles >= min(map(_product, found)):
            break  # not even stripes at no cost would make up for the bytes
        if capacity_bytes is not None and limit > max(capacity_bytes, least) * _STEP // 100:
            break
    if capacity_bytes is None:
        return min(found, key=_product)
    fits = [choice for choice in found if choice.size_bytes <= capacity_bytes]
    if fits:
        return min(fits, key=lambda c: (c.cycles, c.size_bytes))
    return min(found, key=lambda c: (c.size_bytes, c.cycles))


def pareto_front(groups: CascadeSpace, limits: Sequence[int] = ()) -> tuple[CascadeChoice, ...]:
    """Choices from the least bytes to those of the whole program, each with fewer cycles than all that need less.

    The bytes are those of a plan of the program's own buffers; a pool of as many bytes makes the choice. Looked for
    at steps of five per cent, and at `limits`; where there are some, not far above or below all of them.
    """
    whole = _measure_choice(groups, (), _NODES)
    found = [whole, *(choice for _, choice in _choices(groups, whole, least_bytes(groups), limits, _NODES))]
    best: list[CascadeChoice] = []
    for choice in sorted(found, key=lambda c: (c.size_bytes, c.cycles)):
        if not best or choice.cycles < best[-1].cycles:
            best.append(choice)
    return tuple(best)


def _product(choice: CascadeChoice) -> int:
    return choice.size_bytes**3 * choice.cycles


def at_limit(groups: CascadeSpace, limit_bytes: int, node_budget: int) -> CascadeChoice:
    """The choice with the fewest summed cycles among those whose plan within `node_budget` keeps the limit."""
    return _measure_choice(groups, choose(groups, limit_bytes), node_budget)


def beside_copies(near: CascadeSpace, far: CascadeSpace, limit_bytes: int, node_budget: int) -> CascadeChoice:
    """The choice with the fewest cycles by an estimate of copies of its constants in the bytes that it leaves; those of
    everything at once, if that is estimated best. Its cycles are that estimate. `near` has the constants beside the
    maps, `far` where they are.
    """
    estimated: dict[tuple[Group, ...], int] = {}
    for limit in (limit_bytes, *reversed(tuple(_limits(least_bytes(near), limit_bytes, _WIDE_STEP)))):
        chosen = choose(near, limit)
        if estimated and cycles_of(near, chosen) >= min(estimated.values()):
            break  # fewer bytes take more
        if chosen not in estimated:
            estimated[chosen] = cycles_with_copies(near, far, chosen, limit_bytes)
    found: list[CascadeChoice] = []
    fewest_bytes_first = reversed(estimated)
    for chosen in sorted(fewest_bytes_first, key=estimated.__getitem__)[:_PLANNED]:
        found.append(replace(_measure_choice(near, chosen, node_budget), cycles=estimated[chosen]))
        if found[-1].size_bytes <= limit_bytes:
            break
    return min(found, key=lambda c: (max(0, c.size_bytes - limit_bytes), c.cycles))


def _choices(
    groups: CascadeSpace, whole: CascadeChoice, least: int, limits: Sequence[int] = (), node_budget: int | None = None
) -> Iterator[tuple[int, CascadeChoice]]:
    """Choices and the limits that they were made for, from the least bytes on; most are faster than all before."""
    fewest = inf
    seen: set[tuple[Group, ...]] = {()}
    looked_at = {*_limits(least, whole.size_bytes), *(n for n in limits if least < n < whole.size_bytes)}
    if limits:
        low, high = min(limits) * 100 // _FAR, max(limits) * _FAR // 100
        looked_at = {limit for limit in looked_at if low <= limit <= high or limit <= least}
    for limit in sorted(looked_at):
        chosen = choose(groups, limit)
        cycles = cycles_of(groups, chosen)
        if chosen not in seen and (limit <= least or cycles < fewest * _FASTER):
            fewest = cycles
            seen.add(chosen)
            yield limit, _measure_choice(groups, chosen, node_budget)


def _limits(least: int, most: int, step: int = _STEP) -> Iterator[int]:
    """Limits at which groups are chosen: from a little below their own bound, as a plan may need less."""
    yield from (least * below // 100 for below in _BELOW)
    while least < most:
        yield least
        least = least * step // 100 + 1


def _measure_choice(groups: CascadeSpace, chosen: tuple[Group, ...], node_budget: int | None = None) -> CascadeChoice:
    """`chosen` in the directions that a plan of both prefers, and the bytes of a plan of those."""
    requested = chosen, node_budget
    if requested not in groups.measured:
        groups.measured[requested] = _choose_directions(groups, chosen, node_budget)
    known: CascadeChoice = groups.measured[requested]
    return known


def _choose_directions(groups: CascadeSpace, chosen: Sequence[Group], node_budget: int | None) -> CascadeChoice:
    """The choice of `chosen` in the directions that lose the fewest overlaps, planned in these."""
    both = [(group, groups.turn_upwards(group)) for group in chosen]
    problem = _problem(groups, chosen, [(*down.overlaps, *up.overlaps) for down, up in both])
    made = _plan_once(groups, problem, node_budget)
    placed = {p.buffer: p for p in made.placements}
    directed = tuple(min(pair, key=lambda group: _count_refused_pairs(group, placed, groups.sizes)) for pair in both)
    if any(group.upwards for group in directed):
        problem = _problem(groups, directed, [group.overlaps for group in directed])
        made = _plan_once(groups, problem, node_budget)
    (usage,) = made.usage
    return CascadeChoice(directed, usage.used_bytes, _estimate_cycles(groups, directed, made))


def _plan_once(groups: CascadeSpace, problem: Problem, node_budget: int | None) -> Plan:
    """A plan; groups that differ inside may have the same buffers."""
    key = problem.buffers, problem.overlaps, node_budget
    if key not in groups.plans:
        groups.plans[key] = planners.plan(problem, node_budget=node_budget)
    known: Plan = groups.plans[key]
    return known


def _estimate_cycles(groups: CascadeSpace, chosen: Sequence[Group], made: Plan) -> int:
    """Cycles of the whole stream, with the waits of `made`."""
    memory_map = groups.costs.memory_map
    program = apply(groups.program, chosen, groups.costs.blocks, groups.slicer)
    placed = {p.buffer: p.offset_bytes for p in made.placements}
    beyond = max(usage.used_bytes for usage in made.usage)
    region_of = places(program, memory_map)
    at: dict[str, tuple[int, int]] = {}
    for buffer in program.buffers:
        region, base = region_of(buffer.name)
        if buffer.role is BufferRole.LUT:
            base = buffer.original_offset
        elif buffer.name in placed:
            base = placed[buffer.name]
        elif buffer.role is not BufferRole.CONSTANTS:  # it lies elsewhere
            base, beyond = round_up(beyond, _ALIGNMENT), round_up(beyond, _ALIGNMENT) + buffer.size_bytes
        at[buffer.name] = region, base
    return stream_cycles(program, at, memory_map, groups.costs.resource_uses)


def cycles_of(groups: CascadeSpace, chosen: Sequence[Group]) -> int:
    """Estimated cycles of all operations, those of no group made at once."""
    inside = {index for group in chosen for index in range(group.first, group.last + 1)}
    cycles = sum(group.cycles for group in chosen)
    return cycles + sum(groups.whole_cycles(i) for i in range(len(groups.program.operations)) if i not in inside)


def _count_refused_pairs(group: Group, placed: dict[str, Placement], sizes: dict[str, int]) -> int:
    """The number of pairs that share bytes in a plan at distances that `group` does not allow."""
    distances = [(o, placed[o.second].offset_bytes - placed[o.first].offset_bytes) for o in group.overlaps]
    return sum(-sizes[o.second] < d < sizes[o.first] and not o.permits(d) for o, d in distances)


def _problem(groups: CascadeSpace, chosen: Sequence[Group], overlaps: Sequence[Sequence[AllowedOverlap]]) -> Problem:
    """The buffers of a program at points that are operations; those of a group live for all of it."""
    sizes = dict(groups.sizes)
    heads: dict[int, int] = {}  # of operations in a group: its first
    tails: dict[int, int] = {}  # and what comes behind it
    short: set[str] = set()  # buffers of a turn
    for group in chosen:
        sizes |= group.rolling_buffer_bytes
        short.update(group.turn_spans)
        inside = range(group.first, group.last + 1)
        heads |= dict.fromkeys(inside, group.first)
        tails |= dict.fromkeys(inside, group.last + 1)
    buffers = []
    for name, (first, last) in groups.live.items():
        life = (first, last + 1) if name in short else (heads.get(first, first), tails.get(last, last + 1))
        buffers.append(Buffer(name, sizes[name], (Lifetime(*life),)))
    names = copy_names(groups.program, chosen)
    for group in chosen:
        now = (Lifetime(group.first, group.last + 1),)
        buffers += [Buffer(names[index], kept.size_bytes, now) for index, kept in group.kept.items()]
    allowed = [o.allowed for o in groups.chains.whole_overlaps if o.last not in heads]
    allowed += [o for pair in overlaps for o in pair]
    return Problem(tuple(buffers), (Pool(_POOL),), overlaps=tuple(dict.fromkeys(allowed)))


STRIPES = "native lowering in stripes"  # the backend
_NEARLY = 0.96  # of the sum of operations' cycles is what the stream of them takes


class _Constants(Enum):
    """The places where kernels read constants."""

    NEAR = "near"  # copied before into what stripes leave of the pool
    FAR = "far"  # where they are, but for those that groups keep
    ONCE = "once"  # far only for parts that read them again


@dataclass(frozen=True, slots=True)
class _Cut:
    """A form with groups chosen for its functions."""

    extracted: Extracted
    groups: Mapping[Any, CascadeSpace]
    cutters: Cutters
    chosen: Mapping[Any, CascadeChoice]
    limit_bytes: int

    @property
    def rank(self) -> tuple[int, int]:
        """The rank of a choice: one that fits, or fits but for fewer bytes, then one that takes fewer cycles."""
        chosen = self.chosen.values()
        return sum(max(0, c.size_bytes - self.limit_bytes) for c in chosen), sum(c.cycles for c in chosen)

    def build(self) -> Extracted:
        """The problem of the form with the groups that were chosen for each function."""
        from .candidate import rebuild_problem

        extracted = replace(self.extracted, loaded=replace(self.extracted.loaded, backend=STRIPES))
        changed, constants = {}, []
        for variable, choice in self.chosen.items():
            if choice.groups:
                name, known = variable.name_hint, self.groups[variable]
                changed[name] = made = apply(known.program, choice.groups, known.costs.blocks, known.slicer)
                if known.slicer and any(isinstance(group, ChannelGroup) for group in choice.groups):
                    changed[name], data = compact(made, known.slicer.slices.all)
                    constants.append((self.cutters[name][0], data))
        return rebuild_problem(extracted, changed, constants)


class _Form:
    """A lowering of the model, cut into stripes for limits of the pool."""

    def __init__(
        self, extracted: Extracted, memory_map: MemoryMap, slices: dict[bytes, Slices], decoded: DecodedConstants
    ) -> None:
        from .candidate import npu_programs, slicers

        self.extracted, self._where = extracted, memory_map
        self._cutters, reuse = slicers(extracted, slices, decoded), extracted.loaded.request.options.reuse_inputs
        slicer = {v: self._cutters.get(v.name_hint, (None, None))[1] for v in npu_programs(extracted)}
        self._groups = {
            v: CascadeSpace(p, reuse_inputs=reuse, memory_map=memory_map, slicer=slicer[v])
            for v, p in npu_programs(extracted).items()
        }
        self._among: dict[_Constants, dict[Any, CascadeSpace]] = {}
        self._least: dict[_Constants, int] = {}
        self._fronts: list[dict[Any, tuple[CascadeChoice, ...]]] = []  # near, by rows alone and by channels

    def with_pools(self, extracted: Extracted) -> _Form:
        """The same where `extracted`, of the same module, has pools of other sizes; what is known is known to both."""
        other = copy(self)
        other.extracted, other._fronts = extracted, []
        return other

    def among(self, constants: _Constants) -> dict[Any, CascadeSpace]:
        """Groups of each function."""
        if constants not in self._among:
            near = self._where.with_constants_near()
            memories = self._where if constants is _Constants.FAR else near
            again = self._where if constants is _Constants.ONCE else None
            longest = {"longest": _LONGEST_NEAR} if constants is _Constants.NEAR else {}
            self._among[constants] = {v: g.among(memories, again, **longest) for v, g in self._groups.items()}
        return self._among[constants]

    def least_cycles(self, constants: _Constants) -> int:
        """About what no stripes go below: every operation at once, or with its constants kept near."""
        if constants not in self._least:
            self._least[constants] = sum(groups.least_cycles() for groups in self.among(constants).values())
        return self._least[constants]

    def cuts(self, constants: _Constants, limits: Sequence[int]) -> tuple[_Cut, _Cut]:
        """The choices for the first of the falling `limits`, by rows alone, and by channels where that is better."""
        both = self.among(constants)
        ways = [{v: groups.by_rows() for v, groups in both.items()}, both]
        if constants is not _Constants.NEAR:
            chosen = [{v: at_limit(groups, limits[0], _NODES) for v, groups in way.items()} for way in ways]
        else:
            self._fronts = self._fronts or [{v: pareto_front(g, limits) for v, g in way.items()} for way in ways]
            chosen = [
                {v: ([c for c in found if c.size_bytes <= limits[0]] or found[:1])[-1] for v, found in way.items()}
                for way in self._fronts
            ]
        rows, deep = (_Cut(self.extracted, both, self._cutters, c, limits[0]) for c in chosen)
        return rows, deep if deep.rank < rows.rank else rows

    @cached_property
    def least_with_copies(self) -> int:
        """About what no stripes go below: every operation at once, with room for all copies."""
        near, far = self.among(_Constants.NEAR), self.among(_Constants.FAR)
        return sum(cycles_with_copies(near[v], far[v], (), ENDLESS) for v in near)

    def fewest_bytes(self) -> _Cut:
        """The choice with the fewest bytes; its constants are read where they are."""
        far = self.among(_Constants.FAR)
        return _Cut(self.extracted, far, self._cutters, {v: best_choice(far[v], 0) for v in far}, 0)

    def beside_copies(self, limit_bytes: int) -> _Cut:
        """The choice with the fewest cycles once its constants are copied into what it leaves of the limit."""
        near, far = self.among(_Constants.NEAR), self.among(_Constants.FAR)
        chosen = {v: beside_copies(near[v], far[v], limit_bytes, _NODES) for v in near}
        return _Cut(self.extracted, near, self._cutters, chosen, limit_bytes)


class CascadeCache:
    """The forms of one model in some memories, and all results about their stripes, for pools of all sizes."""

    def __init__(self, memory_map: MemoryMap, decoded: DecodedConstants) -> None:
        self._memory_map, self._decoded = memory_map, decoded
        self._slices: dict[bytes, Slices] = {}
        self._forms: dict[int, _Form] = {}  # by the identity of their modules, which they keep

    def _form(self, extracted: Extracted) -> _Form:
        """The form `extracted`, in pools of its sizes."""
        key = id(extracted.loaded.module)
        if key not in self._forms:
            self._forms[key] = _Form(extracted, self._memory_map, self._slices, self._decoded)
        return self._forms[key].with_pools(extracted)

    def fewest_bytes(self, extracted: Extracted) -> Extracted | None:
        """`extracted` in the stripes that need the fewest bytes; None where everything at once needs no more."""
        cut = self._form(extracted).fewest_bytes()
        return cut.build() if any(choice.groups for choice in cut.chosen.values()) else None

    def cut_forms(self, forms: Sequence[Extracted], budget: SearchBudget) -> Iterator[Extracted]:
        """The model in stripes: at first those that are estimated to leave most to copies of constants. Then, by rows
        alone and by channels, for each share of the pool the form that is better in it, whose constants are copied into
        what stripes leave; then for larger shares, whose constants are read where they are but for those that groups
        keep, or are read once.
        """
        from .weight_prefetch import fast_pool

        fast = fast_pool(forms[0].problem.pools, self._memory_map)
        size = forms[0].problem.pools[fast].size_bytes if fast is not None else None
        if size is None or not forms[0].loaded.request.options.overlaps:
            return
        known = list(map(self._form, forms))
        seen: list[object] = []

        def new(cut: _Cut) -> bool:
            """Whether it is in stripes, and none before was the same."""
            groups = [(str(v), c.groups) for v, c in cut.chosen.items()]
            if not any(made for _, made in groups) or (cut.extracted, groups) in seen:
                return False
            seen.append((cut.extracted, groups))
            return True

        beside = _beside_copies(known, size)
        if new(beside):
            yield beside.build()
        for constants, shares in (
            (_Constants.NEAR, budget.shares),
            (_Constants.FAR, budget.in_place_shares),
            (_Constants.ONCE, budget.read_once_shares),
        ):
            limits = [int(size * share) for share in shares]
            ordered = sorted(known, key=lambda form: form.least_cycles(constants))
            for index in range(len(limits)):
                for best in _better(ordered, constants, limits[index:]):
                    if new(best):
                        yield best.build()


def _beside_copies(forms: Sequence[_Form], limit_bytes: int) -> _Cut:
    """The best of the forms with copies; one that takes more with room for all copies is not looked at."""
    first, *others = sorted(forms, key=lambda form: form.least_with_copies)
    best = first.beside_copies(limit_bytes)
    for form in others:
        if best.rank > (0, form.least_with_copies):
            best = min(best, form.beside_copies(limit_bytes), key=lambda cut: cut.rank)
    return best


def _better(forms: Sequence[_Form], constants: _Constants, limits: Sequence[int]) -> Sequence[_Cut]:
    """The best of the forms, by rows alone and by channels as well, which come in the order of what they take at least;
    those that hardly take less than what fits are not looked at.
    """
    best: Sequence[_Cut] = ()
    for form in forms:
        if best and all(cut.rank < (0, _NEARLY * form.least_cycles(constants)) for cut in best):
            break
        cuts = form.cuts(constants, limits)
        best = [min(pair, key=lambda cut: cut.rank) for pair in zip(best or cuts, cuts, strict=True)]
    return best
