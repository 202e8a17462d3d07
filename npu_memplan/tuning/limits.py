"""The fastest programs of one model at limits of its last pool, the least memory for a time, and the default program.

The default (neither a size, a board nor a time is named): the fewest cycles within the arena of Vela's Performance
mode; then, among programs within `_SLACK` of those cycles, the fewest bytes. Where Vela's arena counts other buffers
than a plan does (host operators have scratch, states lie outside), the limit is the bytes of the best plan of Vela's
stream; where Vela refuses the model, those of native lowering's plan. A pool that has a size of its own
(Dedicated_Sram's) may be used up to it, as long as all pools together take no more bytes than Vela's. A board's
memories are larger; where a program of more bytes is faster, a note names it.

Invariant: no larger limit has more cycles than a smaller one tried before. The result is a verified plan within the
limit, or with estimated cycles within the time that is asked for, and no pool keeps the limit as its own size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import gt

from .. import planners, verify
from ..errors import RefusalError
from ..ethosu.time import MemoryMap
from ..options import CompileOptions, Objective
from ..planners import PlanningError
from ..process.incidents import Attempts
from ..request import FASTER, Loaded
from ..sizes import difference_text
from ..stages import Planned
from .ranking import (
    ENDLESS,
    ModelCache,
    Ranking,
    beside_vela,
    endless_pools,
    npu_calls,
    planned_sizes,
    port_bound,
    resize_pools,
    without_limits,
)
from .selection import COMPILERS, OURS, VELA, build_best, search_backends, select_fastest
from .smallest import smallest, smallest_stripes
from .weight_prefetch import is_ended


@dataclass(frozen=True, slots=True)
class Winner:
    """The best program at a limit; it needs `size_bytes` of the pool."""

    limit_bytes: int
    planned: Planned
    cycles: int
    size_bytes: int


class LimitSearch:
    """The fastest of the programs that resolved `options` ask for; `load` reads and lowers the model, once for each."""

    def __init__(
        self, options: CompileOptions, memory_map: MemoryMap, load: Callable[[CompileOptions], Loaded]
    ) -> None:
        self.options, self.memory_map = options, memory_map
        self.pool = options.planned_pools()[-1].name
        self.error: RefusalError | None = None  # of the last limit at which nothing could be made
        self._models = ModelCache(load, endless_pools(options) | {self.pool: ENDLESS})
        self.lower = self._models.lower
        self._won: list[Winner] = []

    def fastest_within(self, limit_bytes: int, enough: float = 0) -> Winner | None:
        """The fastest program in `limit_bytes`, or one of at most `enough` cycles; None where none can be made."""
        requested = replace(self.options, pools={**self.options.pools, self.pool: limit_bytes})
        try:
            best = select_in_pools(requested, self.memory_map, self._models, enough)
        except RefusalError as error:
            self.error = error
        else:
            self._won.append(self._winner(limit_bytes, best))
        fitting = [winner for winner in self._won if winner.size_bytes <= limit_bytes]
        return min(fitting, key=lambda w: (w.cycles, w.size_bytes, w.limit_bytes), default=None)

    def search_own_size(self, found: Winner) -> Winner:
        """The program that a pool of the bytes of `found` gives, which was taken because it is fast enough."""
        while not is_ended():
            made = self.fastest_within(found.size_bytes)
            if made is None or made.size_bytes >= found.size_bytes:
                return made or found
            found = made
        return found

    def least(self) -> Winner | None:
        """The program in the fewest bytes of any; None where one backend makes all, or other pools are too small."""
        if not self.options.has_rivals:
            return None
        try:
            found = smallest(replace(self.options, objective="bytes", max_ms=None), self._models)
        except RefusalError as error:
            self.error = error
            return None
        won = self._winner(0, found)
        won = replace(won, limit_bytes=won.size_bytes, planned=self._resize_pool(found, won.size_bytes))
        self._won.append(won)
        return won

    def _resize_pool(self, planned: Planned, limit_bytes: int) -> Planned:
        """`planned` as what was found at a limit."""
        sized = replace(self.options, pools={**self.options.pools, self.pool: limit_bytes})
        return without_limits(planned, sized, planned_sizes(sized))

    def _winner(self, limit_bytes: int, planned: Planned) -> Winner:
        cycles, _ = Ranking(self.memory_map)(planned)
        used = next(usage.used_bytes for usage in planned.plan.usage if usage.pool == self.pool)
        return Winner(limit_bytes, planned, cycles, used)


def select_in_pools(options: CompileOptions, memory_map: MemoryMap, models: ModelCache, enough: float = 0) -> Planned:
    """The program for resolved `options`, whose pools have sizes; `enough` as for `select_fastest`.

    It is nothing slower than the default program, or in pools larger than Vela's bytes the fastest in these, where that
    fits. A faster program of somewhat smaller pools is taken. With `--effort quick` the default program is not searched
    further. In a board's memories, whose sizes nobody asked for, it has the fewest bytes within `_SLACK` of the fewest
    cycles. Where nothing that is fast fits, it is the smallest.
    """
    usual = _default_in_pools(options, memory_map, models)
    if usual is not None and options.effort == "quick" and not _exceed_default_limits(options, models):
        return usual
    rank = models.ranking(memory_map)
    slack = _SLACK if options.objective == "auto" and not options.pools else 1.0  # only a board has sizes
    try:
        best = select_fastest(options, memory_map, models, slack, enough=enough)
    except PlanningError:
        if not options.has_rivals:
            raise
        return smallest(options, models)
    if slack > 1:
        best = _take_fewest_bytes(best, _stream_cycles(models, options, rank), slack, rank)
        best = without_limits(best, options, planned_sizes(options))
    verify.check_own(best.extracted.problem, best.plan)
    if options.has_rivals:
        best = beside_vela(best, models)
    if usual is not None:
        best = min(best, usual, key=rank)
    best = _select_in_smaller_pools(best, options, models, rank, enough)
    if usual is None or not _exceed_default_limits(options, models):
        return best
    fast = _default_in_pools(replace(options, objective="cycles"), memory_map, models) or usual
    return min(best, without_limits(fast, options, planned_sizes(options)), key=rank)


def _select_in_smaller_pools(
    best: Planned, options: CompileOptions, models: ModelCache, rank: Ranking, enough: float
) -> Planned:
    """`best`, or the fastest that the search finds in pools a little smaller, from each program found on: until some
    pools in a row give programs that are clearly slower. With `--effort quick` the next round sizes are looked at.
    Where nothing fits a smaller pool, stripes of the fewest bytes are compared as well.
    """
    name = options.planned_pools()[-1].name
    if not options.has_rivals or (name not in options.pools and options.objective != "cycles"):
        return best
    quick = options.effort == "quick"
    bits, patience = (_STEP_BITS, 1) if quick else (_FINE_STEP_BITS, _PATIENCE)

    def used_bytes() -> int:
        return next(usage.used_bytes for usage in best.plan.usage if usage.pool == name)

    size, slower = min(options.pools.get(name, ENDLESS), used_bytes() if quick else int(used_bytes() * _ABOVE)), 0
    other: Planned | None = best
    while rank(best)[0] > enough and slower < patience and not is_ended():
        size = _round_size(size - 1, bits)
        if size < used_bytes() * _BELOW:
            break
        sizes = {**options.pools, name: size}
        search = partial(_select_or_none, replace(options, pools=sizes), rank.memory_map, models)
        other = models.keep(("in smaller pools", tuple(sizes.items())), search)
        slower += other is None or rank(other)[0] > _SLOWER * rank(best)[0]
        if other is not None and rank(other) == rank(best):
            size = min(size, used_bytes())  # sizes between take it as well
        if other is not None and rank(other)[0] < rank(best)[0]:
            best, slower = beside_vela(without_limits(other, options, planned_sizes(options)), models), 0
    least = smallest_stripes(options, models, rank) if other is None else None
    return best if least is None or rank(least) >= rank(best) else beside_vela(least, models)


def _round_size(size_bytes: int, bits: int) -> int:
    """The next smaller multiple of a part of it, so that searches for several limits try the same pools."""
    step = max(_ALIGNMENT, 1 << size_bytes.bit_length() >> bits)
    return size_bytes // step * step


def _select_or_none(options: CompileOptions, memory_map: MemoryMap, models: ModelCache) -> Planned | None:
    """The fastest program that one search finds in these pools; None where nothing fits, or a fault ends the search,
    which is reported.
    """
    if min(options.pools.values()) <= 0:
        return None
    attempts = Attempts()
    with attempts.attempt_by("in a smaller pool"):
        return select_fastest(options, memory_map, models)
    attempts.settle_errors(True, (RefusalError,))
    return None


def _default_in_pools(options: CompileOptions, memory_map: MemoryMap, models: ModelCache) -> Planned | None:
    """The program of the same options without sizes; None where that does not fit."""
    usual = _without_sizes(options)
    if not (options.pools and options.has_rivals and usual.resolved_objective is Objective.CYCLES_IN_VELAS_BYTES):
        return None
    tune = tune_on_board if options.board else tune_within_vela
    found = models.keep(("the default", usual.objective), lambda: tune(usual, memory_map, models))
    if found is None or any(u.used_bytes > options.pools.get(u.pool, u.used_bytes) for u in found.plan.usage):
        return None
    extracted = resize_pools(found.extracted, options)
    verify.check_own(extracted.problem, found.plan)
    notes = tuple(note for note in extracted.loaded.notes if not note.startswith(FASTER))
    return replace(found, extracted=replace(extracted, loaded=replace(extracted.loaded, limit_bytes={}, notes=notes)))


def _exceed_default_limits(options: CompileOptions, models: ModelCache) -> bool:
    """Whether a pool is larger than the default program may make it."""
    limits = _default_limits(_without_sizes(options), models)
    return any(size > limits.get(name, 0) for name, size in options.pools.items())


def _without_sizes(options: CompileOptions) -> CompileOptions:
    return replace(options, pools={}, max_ms=None)


_STEP_BITS, _FINE_STEP_BITS = 5, 7  # a smaller pool is a multiple of a 16th to a 32nd of it, or of a 64th to a 128th
_ABOVE, _BELOW = 1.06, 0.95  # times the bytes of the best: the pools that are looked at
_SLOWER, _PATIENCE = 1.03, 3  # times the fewest cycles; so many pools in a row
_STEPS = 6  # limits below the first that is fast enough
_CLOSE = 32  # a part of the limit: closer ones are not told apart
_ALIGNMENT = 16


class SpeedError(RefusalError):
    """No program that was found is fast enough."""


def fast_enough(
    options: CompileOptions, memory_map: MemoryMap, load: Callable[[CompileOptions], Loaded], name: str
) -> Planned:
    """The program with the fewest bytes of the last pool that takes at most `options.max_ms`.

    Raises `SpeedError`, and where no program can be made at all what the last backend raises.
    """
    assert options.max_ms is not None
    most = int(options.max_ms * memory_map.clock_hz / 1000)
    limits = LimitSearch(options, memory_map, load)
    given = options.pools.get(limits.pool)
    first = limits.fastest_within(ENDLESS if given is None else given, most)
    if first is None:
        raise limits.error or SpeedError(f"{name}: no program")
    if given is None:  # with a size, weights are cut to fit it
        first = limits.fastest_within(first.size_bytes, most) or first
    if first.cycles > most:
        raise SpeedError(_too_slow(first, limits, name))
    least = limits.least()
    if least is not None and least.cycles <= most and (given is None or least.size_bytes <= given):
        return _with_reason(least, 0, limits)  # nothing is smaller
    found, slow = first, [0 if least is None else least.size_bytes]
    for _ in range(_STEPS):
        if is_ended():
            break
        limit = _round_size((slow[-1] + found.size_bytes) // 2, _STEP_BITS)
        if limit <= slow[-1] or found.size_bytes - limit <= found.size_bytes // _CLOSE:
            break
        tried = limits.fastest_within(limit, most)
        if tried is None or tried.cycles > most:
            slow.append(limit)
        else:
            found = tried
    found = limits.search_own_size(found)
    return _with_reason(found, max((size for size in slow if size < found.size_bytes), default=0), limits)


def _with_reason(found: Winner, slow: int, limits: LimitSearch) -> Planned:
    """The program for the options requested, with a line that says why."""
    options, clock = limits.options, limits.memory_map.clock_hz
    text = (
        f"--max-ms {options.max_ms:g}: {1000 * found.cycles / clock:.3g} ms in {found.size_bytes:,} bytes of "
        f"{limits.pool}; {f'{slow:,} bytes are not enough' if slow else 'no program needs fewer'}"
    )
    return without_limits(found.planned, options, {limits.pool: options.pools.get(limits.pool)}, (text,))


def _too_slow(first: Winner, limits: LimitSearch, name: str) -> str:
    options, clock = limits.options, limits.memory_map.clock_hz
    least = port_bound(first.planned, limits.memory_map)
    took, given = 1000 * first.cycles / clock, options.pools.get(limits.pool)
    larger = f"--pool {limits.pool} larger than {given:,}, " if given is not None else ""
    return "\n".join(
        [
            f"{name}: no program that was found takes at most {options.max_ms:g} ms on {options.accelerator} "
            f"at {clock / 1e6:g} MHz:",
            f"  requested  {int((options.max_ms or 0) * clock / 1000):,} cycles",
            f"  fastest    {first.cycles:,} cycles, {took:.3g} ms, in {first.size_bytes:,} bytes of {limits.pool}",
            f"  at least   {least:,} cycles, {1000 * least / clock:.3g} ms, to read its constants once",
            f"what to try: {larger}--max-ms {took * 1.005:.3g}, an --accelerator with more multipliers, or a "
            "--system-config whose constants are read faster",
        ]
    )


_SLACK = 1.01  # of the fewest cycles
_NODES = 20_000  # of the plan that gives a limit, and of the one that makes the result small


def tune_within_vela(options: CompileOptions, memory_map: MemoryMap, models: ModelCache) -> Planned | None:
    """The program for resolved `options`, whose pools have a board's sizes or none; None where nothing fits."""
    sizes = planned_sizes(options)
    theirs = _velas_bytes(models, options)
    limits = _default_limits(options, models)
    if not limits:
        return None
    slack, rank = _SLACK if options.objective == "auto" else 1.0, models.ranking(memory_map)

    def select_within(pools: Mapping[str, int]) -> Planned | None:
        """The program with pools of these sizes; None where nothing fits, or nothing runs on the NPU."""
        sized = replace(options, pools={**options.pools, **pools})
        search = partial(search_backends, sized, memory_map, models, always_stripes=False)
        try:
            found = models.keep(("in Vela's bytes", tuple(sized.pools.items())), search)
        except PlanningError:
            return None
        made = []
        for least in {slack, _SLACK}:  # what is searched in fewer bytes may take fewer cycles, too
            best = build_best(found, sized, memory_map, models, least)
            if not any(npu_calls(best.extracted.program)):
                return None
            made.append(_take_fewest_bytes(best, _stream_cycles(models, options, rank), least, rank))
        return min(made, key=rank)

    best = select_within(limits)
    if best is not None and rank(best)[1] > sum(theirs.values()):
        best = select_within({name: theirs.get(name, 0) for name in sizes}) or best
    if best is None:
        return None
    best = without_limits(best, options, sizes)
    loaded = replace(best.extracted.loaded, limit_bytes=limits)
    return beside_vela(replace(best, extracted=replace(best.extracted, loaded=loaded)), models)


def tune_on_board(options: CompileOptions, memory_map: MemoryMap, models: ModelCache) -> Planned:
    """The program for resolved `options` whose pools have a board's sizes alone: that of its memories where it takes no
    more than Vela's arena, else the best within that, with a note of what the other gains.
    """
    best = select_in_pools(options, memory_map, models)
    limits = _default_limits(options, models)
    more = {u.pool: u.used_bytes for u in best.plan.usage if u.used_bytes > limits.get(u.pool, u.used_bytes)}
    within = tune_within_vela(options, memory_map, models) if more else None
    if within is None:
        return best
    rank = models.ranking(memory_map)
    fewer, most = rank(best)[0], rank(within)[0]
    if most <= _SLACK * fewer:
        return within
    pools = " ".join(f"--pool {name}={size}" for name, size in more.items())
    note = f"{FASTER}{pools}, about {fewer:,} cycles ({difference_text(fewer, most)})"
    return without_limits(within, options, planned_sizes(options), (note,))


def _default_limits(options: CompileOptions, models: ModelCache) -> Mapping[str, int]:
    """The bytes that the default program may take of the pools that have no size of their own."""
    theirs, sizes = _velas_bytes(models, options), planned_sizes(options)
    return {name: min(theirs[name], sizes[name] or ENDLESS) for name in _free_pools(options) if theirs.get(name)}


def _free_pools(options: CompileOptions) -> Sequence[str]:
    """The pools that have no size, or a board's alone."""
    return [pool.name for pool in replace(options, board="").planned_pools() if pool.size_bytes is None]


def _velas_bytes(models: ModelCache, options: CompileOptions) -> Mapping[str, int]:
    """Bytes by pool of Vela's arena, or of a plan; nothing where it takes no pool without a size of its own."""
    return models.keep("Vela's bytes", lambda: _measure_velas_bytes(models, options))


def _measure_velas_bytes(models: ModelCache, options: CompileOptions) -> Mapping[str, int]:
    free = _free_pools(options)
    for backend in (VELA, OURS):
        try:
            loaded = models.lower(wanted := replace(options, npu_compiler=COMPILERS[backend]))
        except RefusalError:
            continue
        if any(loaded.vela_arena_bytes.get(name) for name in free):
            return loaded.vela_arena_bytes
        try:
            plan = planners.plan(models.extract(wanted, backend).problem, node_budget=_NODES)
        except PlanningError:
            continue
        return {usage.pool: usage.used_bytes for usage in plan.usage}
    return {}


def _stream_cycles(models: ModelCache, options: CompileOptions, rank: Ranking) -> Sequence[int]:
    """The cycles of Vela's stream under each model; empty where it refuses the model or they cannot be compared."""
    try:
        return rank.vela_cycles(models.lower(replace(options, npu_compiler="vela", stripes=False)))
    except RefusalError:
        return ()


def _take_fewest_bytes(planned: Planned, theirs: Sequence[int], slack: float, rank: Ranking) -> Planned:
    """The same program in the fewest bytes, within `slack` times its cycles by each model and under `theirs`."""
    problem, plan = planned.extracted.problem, planned.plan
    try:
        smaller = Planned(planned.extracted, planners.plan(problem, "auto", seed=plan.seed, node_budget=_NODES))
    except PlanningError:
        return planned
    used = sum(usage.used_bytes for usage in smaller.plan.usage)
    if used >= sum(usage.used_bytes for usage in plan.usage):
        return planned
    own, cycles = map(rank.by_model, (planned, smaller))
    most = [max(one, min(slack * one, other)) for one, other in zip(own, theirs or own, strict=True)]
    if any(map(gt, cycles, most)):
        return planned
    loaded = planned.extracted.loaded
    notes = (*loaded.notes, f"planned again for fewer bytes: {used:,} bytes, {cycles[0]:,} cycles")
    return replace(smaller, extracted=replace(smaller.extracted, loaded=replace(loaded, notes=notes)))
