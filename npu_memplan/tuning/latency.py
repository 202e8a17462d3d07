"""The least memory in which a program is fast enough: `compile --max-ms`.

Invariant: what is taken takes at most the cycles requested, by the estimate, and is a verified plan; the
smaller limits that were looked at are too slow, or nothing fits them.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import RefusalError
from ..ethosu.time import MemoryMap
from ..options import CompileOptions
from ..request import Loaded
from ..stages import Planned
from .bounds import port_bound
from .limit_search import LimitSearch, Winner
from .models import ENDLESS, without_limits
from .weight_prefetch import is_ended

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
    first = limits.at(ENDLESS if given is None else given)
    if first is None:
        raise limits.error or SpeedError(f"{name}: no program")
    if given is None:  # with a size, weights are cut to fit it
        first = limits.at(first.size_bytes) or first
    if first.cycles > most:
        raise SpeedError(_too_slow(first, limits, name))
    least = limits.least()
    if least is not None and least.cycles <= most and (given is None or least.size_bytes <= given):
        return _with_reason(least, 0, limits)  # nothing is smaller
    found, slow = first, 0 if least is None else least.size_bytes
    for _ in range(_STEPS):
        if is_ended():
            break
        limit = (slow + found.size_bytes) // 2 // _ALIGNMENT * _ALIGNMENT
        if found.size_bytes - limit <= found.size_bytes // _CLOSE:
            break
        tried = limits.at(limit)
        if tried is None or tried.cycles > most:
            slow = limit
        else:
            found = tried
    return _with_reason(found, slow, limits)


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
