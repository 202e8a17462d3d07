"""Forms of native lowering in stripes, that the tuning compares.

Invariant: each is made once, and keeps no more bytes alive than the fast pool has, or as few more as can be.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import Any

from ..ethosu.schedule.prefetch.compact import compact
from ..ethosu.schedule.prefetch.slices import Slices
from ..ethosu.schedule.stripes.apply import apply
from ..ethosu.schedule.stripes.cascade_space import CascadeSpace
from ..ethosu.schedule.stripes.copies import cycles_with_copies
from ..ethosu.schedule.stripes.group import ChannelGroup
from ..ethosu.time import MemoryMap
from ..stages import Extracted
from .budget import SearchBudget
from .cascades import CascadeChoice, at_limit, beside_copies, pareto_front
from .models import ENDLESS
from .rebuild import Cutters, npu_programs, rebuild_problem, slicers
from .weight_prefetch import fast_pool

STRIPES = "native lowering in stripes"  # the backend
_NODES = 20_000  # of a plan of some stripes: there are many to compare
_NEARLY = 0.96  # of the sum of operations' cycles is what the stream of them takes


class _Constants(Enum):
    """Where kernels read them."""

    NEAR = "near"  # copied before into what stripes leave of the pool
    FAR = "far"  # where they are, but for those that groups keep
    ONCE = "once"  # far only for parts that read them again


@dataclass(frozen=True, slots=True)
class _Cut:
    """A form, its functions in stripes where they say so."""

    extracted: Extracted
    groups: Mapping[Any, CascadeSpace]
    cutters: Cutters
    chosen: Mapping[Any, CascadeChoice]
    limit_bytes: int

    @property
    def rank(self) -> tuple[int, int]:
        """What fits, or fits but for fewer bytes, then what takes fewer cycles."""
        chosen = self.chosen.values()
        return sum(max(0, c.size_bytes - self.limit_bytes) for c in chosen), sum(c.cycles for c in chosen)

    def made(self) -> Extracted:
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

    def __init__(self, extracted: Extracted, memory_map: MemoryMap, slices: dict[bytes, Slices]) -> None:
        self.extracted, self._where = extracted, memory_map
        self._cutters, reuse = slicers(extracted, slices), extracted.loaded.request.options.reuse_inputs
        slicer = {v: self._cutters.get(v.name_hint, (None, None))[1] for v in npu_programs(extracted)}
        self._groups = {
            v: CascadeSpace(p, reuse_inputs=reuse, memory_map=memory_map, slicer=slicer[v])
            for v, p in npu_programs(extracted).items()
        }
        self._among: dict[_Constants, dict[Any, CascadeSpace]] = {}
        self._least: dict[_Constants, int] = {}
        self._fronts: list[dict[Any, tuple[CascadeChoice, ...]]] = []  # near, by rows alone and by channels

    def among(self, constants: _Constants) -> dict[Any, CascadeSpace]:
        """Groups of each function."""
        if constants not in self._among:
            near = self._where.with_constants_near()
            memories = self._where if constants is _Constants.FAR else near
            again = self._where if constants is _Constants.ONCE else None
            self._among[constants] = {v: groups.among(memories, again) for v, groups in self._groups.items()}
        return self._among[constants]

    def least_cycles(self, constants: _Constants) -> int:
        """About what no stripes go below: every operation at once, or with its constants kept near."""
        if constants not in self._least:
            self._least[constants] = sum(groups.least_cycles() for groups in self.among(constants).values())
        return self._least[constants]

    def cuts(self, constants: _Constants, limits: Sequence[int]) -> tuple[_Cut, _Cut]:
        """The choices for the first of the `limits`, which fall, by rows alone, and by channels where that is better.

        Where constants are near, a choice for a lower limit may be better; at first those for all limits are looked at.
        """
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

    def beside_copies(self, limit_bytes: int) -> _Cut:
        """The choice with the fewest cycles once its constants are copied into what it leaves of the limit."""
        near, far = self.among(_Constants.NEAR), self.among(_Constants.FAR)
        chosen = {v: beside_copies(near[v], far[v], limit_bytes, _NODES) for v in near}
        return _Cut(self.extracted, near, self._cutters, chosen, limit_bytes)


def in_stripes(forms: Sequence[Extracted], memory_map: MemoryMap, budget: SearchBudget) -> Iterator[Extracted]:
    """The model in stripes: at first those that are estimated to leave most to copies of constants. Then, by rows alone
    and by channels, for each share of the pool the form that is better in it, whose constants are copied into what
    stripes leave; then for larger shares, whose constants are read where they are but for those that groups keep, or
    are read once.
    """
    fast = fast_pool(forms[0].problem.pools, memory_map)
    size = forms[0].problem.pools[fast].size_bytes if fast is not None else None
    if size is None or not forms[0].loaded.request.options.overlaps:
        return
    slices: dict[bytes, Slices] = {}
    known = [_Form(extracted, memory_map, slices) for extracted in forms]
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
        yield beside.made()
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
                    yield best.made()


def _beside_copies(forms: Sequence[_Form], limit_bytes: int) -> _Cut:
    """The best of the forms with copies; one that takes more with room for all copies is not looked at."""
    first, *others = sorted(forms, key=lambda form: form.least_with_copies)
    best = first.beside_copies(limit_bytes)
    for form in others:
        if best.rank > (0, form.least_with_copies):
            best = min(best, form.beside_copies(limit_bytes), key=lambda cut: cut.rank)
    return best


def _better(forms: Sequence[_Form], constants: _Constants, limits: Sequence[int]) -> Sequence[_Cut]:
    """By rows alone, and by channels as well: the best of the forms, which come in the order of what they take at
    least; those that hardly take less than what fits are not looked at.
    """
    best: Sequence[_Cut] = ()
    for form in forms:
        if best and all(cut.rank < (0, _NEARLY * form.least_cycles(constants)) for cut in best):
            break
        cuts = form.cuts(constants, limits)
        best = [min(pair, key=lambda cut: cut.rank) for pair in zip(best or cuts, cuts, strict=True)]
    return best
