"""Small compiled pieces of the exact search: hashing, chance, growing arrays, which section next.

Invariant: what is compiled is pure, but for `chance`, which moves its own state on. Numba caches
callers without looking here: after a change, delete `__pycache__`.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from numba import njit

_U = np.uint64


def chances(seed: int) -> Any:
    """The state that `chance` begins with: one odd number of 64 bits."""
    return np.array([(seed * 0x9E3779B97F4A7C15 + 0x1234567) & ((1 << 64) - 1) | 1], np.uint64)


def compiling(function: Any, *arguments: Any) -> tuple[Any, float]:
    """What `function` answers, and the seconds of a call for which numba compiled it; 0.0 when it had been."""
    before, started = sum(function.stats.cache_misses.values()), time.monotonic()
    answer = function(*arguments)
    compiled = sum(function.stats.cache_misses.values()) > before
    return answer, time.monotonic() - started if compiled else 0.0


@njit(cache=True)  # type: ignore[untyped-decorator]
def mix(x: Any) -> Any:
    """A well mixed 64-bit hash of `x`."""
    x ^= x >> _U(30)
    x *= _U(0xBF58476D1CE4E5B9)
    x ^= x >> _U(27)
    x *= _U(0x94D049BB133111EB)
    return x ^ (x >> _U(31))


@njit(cache=True)  # type: ignore[untyped-decorator]
def grown(array: Any) -> Any:
    """The array with as many zeros again."""
    return np.concatenate((array, np.zeros_like(array)))


@njit(cache=True)  # type: ignore[untyped-decorator]
def section_key(rule: int, count: int, slack: int, floor: int, weight: float, ceiling: int) -> float:
    """The less, the sooner a section is filled. One candidate is no choice: it comes first under every rule."""
    if count <= 1:
        return -1.0
    if rule == 0:
        return count + floor / (ceiling + 1.0)
    if rule == 1:
        return floor + count * 1e-3
    if rule == 2:
        return floor + slack / (ceiling + 1.0)
    if rule == 3:
        return count / weight + floor / (ceiling + 1.0) * 1e-6
    if rule == 4:
        return floor / weight + count * 1e-3
    return count * (slack + ceiling * 0.01) / weight


@njit(cache=True)  # type: ignore[untyped-decorator]
def chance(state: Any) -> float:
    """A number in [0, 1) from `state`, a uint64[1] that is not 0 (xorshift)."""
    x = state[0]
    x ^= x << _U(13)
    x ^= x >> _U(7)
    x ^= x << _U(17)
    state[0] = x
    return float(x >> _U(11)) / 9007199254740992.0
