"""The part of a problem that is to blame: leave things out for as long as it stays impossible.

Invariant: the answer is infeasible whenever the whole is, and nothing more can be left out of it
(as far as `infeasible` can tell).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

_T = TypeVar("_T")


def irreducible(whole: Sequence[_T], infeasible: Callable[[list[_T]], bool], stop: Callable[[], bool]) -> list[_T]:
    """Members of `whole` that are infeasible together; `stop` ends the work early.

    Call it when all of them are known to be. Halves are left out first, then ever smaller runs.
    """
    kept = list(whole)
    chunk = max(1, len(kept) // 2)
    while kept and not stop():
        removed = False
        start = 0
        while start < len(kept):
            trial = kept[:start] + kept[start + chunk :]
            if infeasible(trial):
                kept, removed = trial, True
            else:
                start += chunk
        if chunk > 1:
            chunk = max(1, chunk // 2)
        elif not removed:
            break
    return kept
