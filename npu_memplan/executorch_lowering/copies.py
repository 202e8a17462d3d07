"""Weights of a native delegate copied to faster memory while the DMA port is idle, where there is room for them.

Invariant: a program with copies computes what it computed without; while an operation runs, the maps and copies in the
copies' memory have no more bytes than the limit. Whether they have places within it, a plan of all says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..ethosu.lowering import Lowered
from ..ethosu.program.program import NpuProgram
from ..ethosu.schedule.prefetch.compact import compact
from ..ethosu.schedule.prefetch.demand_cache import DemandCache
from ..ethosu.schedule.prefetch.free_space import FreeCapacity, OccupiedRange
from ..ethosu.schedule.prefetch.insert import insert
from ..ethosu.schedule.prefetch.reads import constant_blocks
from ..ethosu.schedule.prefetch.search import WORK, CopySearch
from ..ethosu.schedule.prefetch.slice_tuning import stretched
from ..ethosu.schedule.prefetch.slices import Slicer, Slices
from ..ethosu.schedule.prefetch.timed_program import Place, TimedProgram
from ..ethosu.time import MODELS, MemoryMap

_PARTS = (4, 8, 16, 32)  # of the limit: weights of a slice
_LEAST_SLICE = 2048  # bytes
_FIRST = 8  # a part of the work: of every form, to see which are the best


@dataclass(frozen=True, slots=True)
class CopyBudget:
    """How far copies are searched: so many forms of a program, with so much work each."""

    forms: int
    work: int  # in units of `prefetch.search.WORK`


BUDGETS = {"quick": CopyBudget(1, WORK // 8), "normal": CopyBudget(2, WORK), "max": CopyBudget(4, 4 * WORK)}


@dataclass(frozen=True, slots=True)
class CopySpace:
    """Where copies go: NPU `region`, beside maps that lie `where` they do, below the end of what they may take.

    `names`: the maps of that region.
    """

    memory_map: MemoryMap
    region: int
    where: Place
    names: frozenset[str]

    @property
    def is_faster(self) -> bool:
        """Whether the region lies in another memory than the constants: copies within one are of no use."""
        regions = self.memory_map.regions
        return regions[self.region].name != regions[0].name


def programs_with_copies(lowered: Lowered, space: CopySpace, limit_bytes: int, budget: CopyBudget) -> Iterator[Lowered]:
    """`lowered` with copies of constants within the limit, those of the fewest optimistic cycles by each model of time:
    convolutions whole, or with much weight in slices, which need less room at a time.
    """
    program = lowered.program
    if not space.is_faster or not constant_blocks(program):
        return
    held, forms = _held_ranges(program, space), tuple(_program_variants(lowered, limit_bytes))
    for model in MODELS:  # which one decides is known at the end only
        cache = DemandCache(program.accelerator, replace(space.memory_map, assumptions=model))
        searches = []
        for form, counts in forms:
            timed = TimedProgram(form.program, constant_blocks(form.program), space.where, cache, space.region)
            room = FreeCapacity(list(stretched(held, counts)), limit_bytes, len(timed))
            searches.append((CopySearch(timed, room), form))
        for work in (budget.work // _FIRST, budget.work):
            for search, _ in searches:
                search.further(work)
            searches = sorted(searches, key=lambda pair: pair[0].best.cycles)[: budget.forms]
        for search, form in searches:
            made, _ = insert(search.timed, search.best.copies, space.region, reblocked=True)
            if made is not form.program:
                yield Lowered(made, form.constants)


def _held_ranges(program: NpuProgram, space: CopySpace) -> list[OccupiedRange]:
    """What lies in the region while the program runs."""
    sizes, found = {b.name: b.size_bytes for b in program.buffers}, []
    for name, (first, last) in program.live_ranges().items():
        if name in space.names:
            _, start = space.where(name)
            found.append(OccupiedRange(first, last, start, start + sizes[name]))
    return found


def _program_variants(lowered: Lowered, limit_bytes: int) -> Iterator[tuple[Lowered, Sequence[int]]]:
    """The program, and with weights in slices; of each into how many operations it makes every one of the program."""
    program = lowered.program
    yield lowered, [1] * len(program.operations)
    slicer, seen = Slicer(program, Slices(lowered.constants)), [[1] * len(program.operations)]
    for part in _PARTS:
        parts = slicer.parts(max(limit_bytes // part, _LEAST_SLICE), {})
        counts = [len(made) for made in parts]
        if counts not in seen:
            seen.append(counts)
            yield Lowered(*compact(slicer.joined(parts), slicer.slices.all)), counts
