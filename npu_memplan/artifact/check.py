"""What a compile found when it compared its own result with a reference: plain data of plan.json.

Invariant: the same model, options and installation give the same values: no times, no paths, nothing of the machine
but which reference is installed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..problem import Count


class CheckVerdict(Enum):
    """How the results of a compiled program relate to its reference's, on the inputs that were run."""

    EQUAL = "equal"  # every element of every output
    AS_CLAIMED = "as claimed"  # they differ, no further than the claim of the operator that differs first
    DIFFERS = "differs"  # further than is claimed, or the run was stopped
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first operator whose output differs from the reference's, as far as it could be seen."""

    input: str  # as `run --input` takes it
    operator: int = -1  # of the source model; -1: not known
    kind: str = ""
    name: str = ""  # of its first output tensor
    elements: Count = 0  # that were seen
    mismatches: Count = 0
    max_abs_diff: float | None = None  # in `unit`s; None: not a number
    unit: str = ""  # "LSB" of integers; of floats it is the tensor's own
    hidden: tuple[int, ...] = ()  # operators before it whose outputs were not seen
    stopped: str = ""  # why the run had no result


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A program of the same model that was compiled before, and not taken because of its results."""

    flags: tuple[str, ...]  # the options of compile that make it
    reference: str
    difference: FirstDifference


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check. Elements are counted over all outputs and inputs."""

    verdict: CheckVerdict = CheckVerdict.NOT_CHECKED
    reason: str = ""  # why it was not checked
    runner: str = ""  # what ran the program
    reference: str = ""
    reference_version: str = ""
    inputs: tuple[str, ...] = ()  # as `run --input` takes them
    elements: Count = 0
    mismatches: Count = 0
    max_abs_diff: float | None = 0.0  # of all outputs, in `unit`s; None: not a number
    unit: str = ""
    first: FirstDifference | None = None
    given_up: tuple[GivenUp, ...] = ()
    references_disagree: str = ""  # of results that differ: which operators two references make otherwise


NOT_REQUESTED = CheckResult(reason="the check is off")
