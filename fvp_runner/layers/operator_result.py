"""The result of a comparison for one operator.

Invariant: data alone; a process that only reads results imports nothing of the NPU model with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Verdict(Enum):
    """Of an operator; the value is printed."""

    EQUAL = "equal"
    DIFFERS = "DIFFERS"  # from what the reference makes of the same inputs
    FOLLOWS = "differs too"  # and so did an input, for which the reference was not run
    HIDDEN = "not visible"


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """One operator of the source model. Counts are of elements that were seen."""

    index: int
    name: str  # of its first output
    kind: str
    verdict: Verdict
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: int | float = 0
    max_ulps: int | None = 0  # of floats, how many representable numbers lie between; None: one is not a number
    where: str = ""  # what wrote the first unequal part
