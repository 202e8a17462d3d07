"""Constants that lie in the fast pool for good, put there once before the first run, chosen by cycles saved per byte.

Invariant: the pool stays within its size, or within the bytes that `--resident` adds to what the program without this
needs; the program taken is verified, and never slower by the estimate than the one without resident constants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from .. import verify
from ..errors import RefusalError
from ..ethosu.program.program import BufferRole, NpuProgram
from ..ethosu.schedule.constants import GRAIN, ConstantBlock, compact, constant_blocks
from ..ethosu.schedule.prefetch.copies import Chosen, choose, with_resident
from ..ethosu.schedule.prefetch.timed_program import TimedProgram
from ..options import Resident
from ..planners.bounds import with_bounds
from ..problem import BufferKind, Placement, Plan, PlanStatus
from ..process.incidents import report_phase
from ..stages import Extracted, Planned
from .candidate import called_once, constants_argument, planned_again, rebuild_problem
from .ranking import PlacedCall, Ranking
from .weight_prefetch import fast_pool, is_ended, read_in_place, search_prefetching

_SHARES = (1.0, 0.75, 0.5, 0.25)  # of the room without copies, that is for resident constants; all of it first


def make_resident(planned: Planned, select_near: Callable[[], Planned | None]) -> Planned:
    """`planned` with constants in its fast pool for good, as far as `--resident` asks for.

    `select_near` gives the best program for constants that lie in the fast pool: whole convolutions, say, where
    `planned` has slices of them for its copies.
    """
    options = planned.extracted.loaded.request.options
    requested = Resident.parse(options.resident)
    memory_map = options.memory_map() if requested.most_bytes != 0 else None
    if memory_map is None:
        return planned
    report_phase("choosing resident constants")
    fast = fast_pool(planned.extracted.problem.pools, memory_map)
    if fast is None:
        return _add_note(planned, "no constants are resident: no pool is read faster than they are")
    rank = Ranking(memory_map)
    near = select_near()
    searches = [_Search(planned, rank, fast, requested, shares=_SHARES[: 1 if near else None])]
    if near is not None:
        near = _resize_fast_pool(_noted_as(near, planned), fast, searches[0].pool.size_bytes)
        searches.append(_Search(near, rank, fast, requested, searches[0].used_bytes(planned)))
    best = _best(planned, searches)
    verify.check_own(best.extracted.problem, best.plan)
    return best


def _best(planned: Planned, searches: Sequence[_Search]) -> Planned:
    """The fewest cycles, then bytes, of all candidates; and of `planned` as it is where not all is requested."""
    made = [one for search in searches for one in search.candidates()]
    first = searches[0]
    if made or not first.requested.whole:
        best = min(made if first.requested.whole else (planned, *made), key=first.rank)
        if best is planned:
            return _add_note(best, "no constants are resident: none of them saves cycles in the room that there is")
        return best
    raise RefusalError(
        f"--resident all needs {first.all_bytes:,} bytes of pool {first.pool.name} for constants beside the "
        f"{first.used_bytes(first.plain or planned):,} bytes of the plan, and it has {first.limit:,}; give a "
        "larger --pool, or leave the choice to --resident auto"
    )


def share_room(
    planned: Sequence[Planned], joint: Plan, requested: Resident, weights: Sequence[float]
) -> list[Planned] | None:
    """Networks with constants in what a joint plan leaves of their pool; None where what is requested has no room.

    `weights`: what a cycle of each counts, by how often it runs. Of each network everything else stays where it is,
    below its resident constants.
    """
    pools = planned[0].extracted.problem.pools
    maps = [memory_map for one in planned if (memory_map := one.extracted.loaded.request.options.memory_map())]
    found_fast = {fast_pool(pools, memory_map) for memory_map in maps}
    fast = found_fast.pop() if len(found_fast) == 1 else None
    if fast is None:
        return list(planned)
    pool = pools[fast]
    networks = [_Network(one, Ranking(memory_map), fast) for one, memory_map in zip(planned, maps, strict=True)]
    timed = [network.time_calls(network.planned) for network in networks]
    programs = [program for calls in timed for _, program in calls]
    everything = sum(constant.size_bytes for program in programs for constant in program.constants)
    used = next(usage.used_bytes for usage in joint.usage if usage.pool == pool.name)
    room = everything if pool.size_bytes is None else pool.size_bytes - _round_size(used)
    if (requested.is_automatic and pool.size_bytes is None) or (requested.whole and everything > room):
        return None
    most = min(room, everything if requested.most_bytes is None else requested.most_bytes)
    repeated = [weight for weight, calls in zip(weights, timed, strict=True) for _ in calls]
    chosen = iter(choose(programs, most, repeated))
    made = []
    for network, calls in zip(networks, timed, strict=True):
        mine = [(call, program, which) for (call, program), which in zip(calls, chosen, strict=False) if which]
        found = [network.planned, *map(network.on_top, network.make_resident(network.planned, mine))]
        made.append(min(found, key=network.rank))
    return made


class _Network:
    """A planned program, some of whose constants may become resident in pool `fast`."""

    def __init__(self, planned: Planned, rank: Ranking, fast: int) -> None:
        self.planned, self.rank, self.fast = planned, rank, fast
        self.pool = planned.extracted.problem.pools[fast]

    def on_top(self, extracted: Extracted) -> Planned:
        plan, at = self.planned.plan, _round_size(self.used_bytes(self.planned))
        known = {p.buffer: p for p in plan.placements}
        placements = []
        for buffer in extracted.problem.buffers:
            if buffer.name in known:
                placements.append(known[buffer.name])
            else:
                placements.append(Placement(buffer.name, self.pool.name, at))
                at += _round_size(buffer.size_bytes)
        made = Plan(tuple(placements), (), PlanStatus.FEASIBLE, plan.planner, plan.seed)
        return Planned(extracted, with_bounds(extracted.problem, made))

    def make_resident(
        self, plain: Planned, chosen: Sequence[tuple[PlacedCall, TimedProgram, Chosen]]
    ) -> Iterator[Extracted]:
        """`plain` with these constants resident: kernels in their own blocks, and in the best ones."""
        for reblocked in (False, True) if chosen else ():
            changed, constants, added = {}, [], {}
            for call, timed, which in chosen:
                old, name = constants_argument(plain.extracted, call), call.invoke.function
                assert old is not None
                data = old.value.numpy().tobytes()
                program, added[name] = with_resident(timed, which, data, self.fast + 1, reblocked)
                changed[name], rest = _drop_unread_constants(program, data)
                constants.append((old, rest))
            yield rebuild_problem(plain.extracted, changed, constants, added)

    def time_calls(self, planned: Planned) -> list[tuple[PlacedCall, TimedProgram]]:
        """The calls that can have resident constants."""
        problem, found = planned.extracted.problem, []
        for call in called_once(planned.extracted):
            if constants_argument(planned.extracted, call) is None:
                continue
            place = call.places(problem, planned.plan).__getitem__
            demand_cache = self.rank.demand_cache(call.program.accelerator)
            found.append((call, TimedProgram(call.program, _blocks(call), place, demand_cache, self.fast + 1)))
        return found

    def used_bytes(self, planned: Planned) -> int:
        """The bytes of the pool that `planned` uses."""
        return next(usage.used_bytes for usage in planned.plan.usage if usage.pool == self.pool.name)


class _Search(_Network):
    """A program with more and fewer copies and resident constants.

    `used_bytes`: of the pool, without resident constants; by default what `planned` uses. `shares`: of the room without
    copies, that resident constants have.
    """

    def __init__(
        self,
        planned: Planned,
        rank: Ranking,
        fast: int,
        requested: Resident,
        used_bytes: int | None = None,
        shares: Sequence[float] = _SHARES,
    ) -> None:
        super().__init__(planned, rank, fast)
        self.shares = shares
        self.requested = requested
        if requested.is_automatic and self.pool.size_bytes is None:
            raise RefusalError(
                f"--resident auto uses the room that pool {self.pool.name} leaves, but it has no size; give one with "
                f"--pool {self.pool.name}=SIZE or --board, or say how much with --resident SIZE"
            )
        plain = read_in_place(planned.extracted)
        self.all_bytes = sum(
            t.constants[k].size_bytes for _, t in self.time_calls(planned) for k in range(len(t.constants))
        )
        self.all_bytes = max(self.all_bytes, sum(b.size_bytes for c in called_once(plain) for b in _blocks(c)))
        most = self.all_bytes if requested.most_bytes is None else min(requested.most_bytes, self.all_bytes)
        self.most = most + -most % GRAIN
        self.limit = self.pool.size_bytes
        if self.limit is None:
            self.limit = _round_size(self.used_bytes(planned) if used_bytes is None else used_bytes) + self.most
        # without its copies, in all of the memory
        self.plain = planned_again(planned, plain, fast, self.limit)

    def candidates(self) -> Iterator[Planned]:
        """The candidates that were found; all with every constant resident where that is requested."""
        for one in self._candidates():
            if one is not None and (not self.requested.whole or _resident_bytes(one) >= self.all_bytes):
                yield one

    def _candidates(self) -> Iterator[Planned | None]:
        """Resident constants beside the copies that the program makes, and with copies made anew of the others."""
        assert self.limit is not None
        if not self.requested.whole:
            yield self._beside(min(self.most, self.limit - _round_size(self.used_bytes(self.planned))))
        if self.plain is None:
            return
        most = min(self.most, self.limit - _round_size(self.used_bytes(self.plain)))
        for share in self.shares[:1] if most >= self.all_bytes else self.shares:
            if is_ended():
                return
            yield self._replace_copies(int(most * share))

    def _beside(self, most_bytes: int) -> Planned | None:
        """The program as it is, with resident constants above everything else."""
        chosen = self._chosen(self.planned, most_bytes)
        return min((self.on_top(one) for one in self.make_resident(self.planned, chosen)), key=self.rank, default=None)

    def _replace_copies(self, most_bytes: int) -> Planned | None:
        """The program without its copies, with resident constants, and with copies of others around both."""
        assert self.plain is not None
        assert self.limit is not None
        found = []
        for extracted in self.make_resident(self.plain, self._chosen(self.plain, most_bytes)):
            made = planned_again(self.plain, extracted, self.fast, self.limit)
            if made is not None:
                found.append(made)
        if not found:
            return None
        best = min(found, key=self.rank)
        if all(not _blocks(call) for call in called_once(best.extracted)):
            return best
        searched = search_prefetching(_resize_fast_pool(best, self.fast, self.limit), self.rank)
        return _resize_fast_pool(searched, self.fast, self.pool.size_bytes)

    def _chosen(self, plain: Planned, most_bytes: int) -> list[tuple[PlacedCall, TimedProgram, Chosen]]:
        timed = self.time_calls(plain)
        chosen = choose([one for _, one in timed], most_bytes)
        return [(call, one, which) for (call, one), which in zip(timed, chosen, strict=True) if which]


def _blocks(call: PlacedCall) -> tuple[ConstantBlock, ...]:
    return constant_blocks(call.program)


def _drop_unread_constants(program: NpuProgram, data: bytes) -> tuple[NpuProgram, bytes]:
    """`program` and its constants without what is read from elsewhere; constants are never empty."""
    program, rest = compact(program, data)
    if rest:
        return program, rest
    buffers = tuple(
        replace(b, size_bytes=GRAIN, shape=(GRAIN,)) if b.role is BufferRole.CONSTANTS else b for b in program.buffers
    )
    return replace(program, buffers=buffers), bytes(GRAIN)


def _resident_bytes(planned: Planned) -> int:
    return sum(b.size_bytes for b in planned.extracted.problem.buffers if b.kind is BufferKind.RESIDENT)


def _resize_fast_pool(planned: Planned, fast: int, size_bytes: int | None) -> Planned:
    """`planned` with another size of its fast pool."""
    extracted = planned.extracted
    pools = tuple(
        replace(pool, size_bytes=size_bytes) if index == fast else pool
        for index, pool in enumerate(extracted.problem.pools)
    )
    return replace(planned, extracted=replace(extracted, problem=replace(extracted.problem, pools=pools)))


def _round_size(size_bytes: int) -> int:
    return size_bytes + -size_bytes % GRAIN


def _noted_as(near: Planned, planned: Planned) -> Planned:
    """`near` with the notes of `planned`: its own are of constants that lie near."""
    loaded, first = near.extracted.loaded, planned.extracted.loaded
    note = f"resident constants: {loaded.backend or 'the program'} was selected again for constants in the fast pool"
    loaded = replace(loaded, notes=(*first.notes, note), vela_stream_bounds=first.vela_stream_bounds)
    return replace(near, extracted=replace(near.extracted, loaded=loaded))


def _add_note(planned: Planned, note: str) -> Planned:
    loaded = planned.extracted.loaded
    return replace(planned, extracted=replace(planned.extracted, loaded=replace(loaded, notes=(*loaded.notes, note))))
