"""The text about a compile's results: the claims by rule, and the outcome of the check.

Invariant: the text names a program that was not compared with its reference, with the reason, and calls nothing of it
exact but expected to be so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence

from ...artifact import Artifact
from ...artifact.check import CheckResult, CheckVerdict, FirstDifference, GivenUp
from ...artifact.parts import Operator
from ...exactness import summary


def results(artifact: Artifact) -> list[str]:
    """`result_lines` of an artifact."""
    return result_lines(artifact.operators, artifact.check)


def result_lines(operators: Iterable[Operator], check: CheckResult) -> list[str]:
    """Lines: the count of claims with what a check found, and what is not exact."""
    ran = check.verdict is not CheckVerdict.NOT_CHECKED
    lines = summary(((operator.kind, operator.claim) for operator in operators), ran)
    if not lines:
        return []
    if not ran:
        lines[0] += f": {check.reason}" if check.reason else ""
    elif check.verdict is CheckVerdict.DIFFERS:
        lines[0] = f"Results: {difference(check)}; by rule {lines[0].removeprefix('Results: ')}"
    else:
        lines[0] = f"{lines[0]}; {outcome(check)}"
    return [*lines, f"  {check.references_disagree}"] if check.references_disagree else lines


def outcome(check: CheckResult) -> str:
    """What a check found, in one clause."""
    if check.verdict is CheckVerdict.NOT_CHECKED:
        return f"expected exact (not run): {check.reason}"
    if check.verdict is CheckVerdict.DIFFERS:
        return difference(check)
    count = len(check.inputs)
    text = f"checked on {count} input{'s' if count > 1 else ''} ({check.runner})"
    if check.verdict is CheckVerdict.AS_CLAIMED:
        text += f": {_apart(check.elements, check.mismatches, check.max_abs_diff, check.unit)}, as claimed"
    return text


def difference(check: CheckResult) -> str:
    """`NOT exact: ...` of a check that found more than was claimed."""
    first = check.first
    assert first is not None
    if first.stopped:
        return f"NOT exact: the run on input {first.input} was stopped: {first.stopped}"
    outputs = _apart(check.elements, check.mismatches, check.max_abs_diff, check.unit)
    place = f", first in {_operator(first)}: {how_much(first)}" if first.operator >= 0 else ""
    return f"NOT exact: {outputs}, against {check.reference} on input {first.input}{place}"


def how_much(first: FirstDifference) -> str:
    """`118 of 126 elements differ, by up to 25 LSB`."""
    return _apart(first.elements, first.mismatches, first.max_abs_diff, first.unit)


def why_given_up(gone: GivenUp, taken: Sequence[str]) -> str:
    """Which program was not taken, why, and which was: by the options that make it."""
    first = gone.difference
    text = f"{shlex.join(taken)} was taken: in the program of {shlex.join(gone.flags)} "
    if first.stopped:
        return f"{text}the run on input {first.input} was stopped: {first.stopped}"
    what = _operator(first) if first.operator >= 0 else "an output"
    return f"{text}{what} differs from {gone.reference} on input {first.input}: {how_much(first)}"


def _operator(first: FirstDifference) -> str:
    before = ", ".join(map(str, first.hidden))
    unseen = f" (operators {before} before it were not seen)" if before else ""
    return f"operator {first.operator} {first.kind} {first.name!r}{unseen}"


def _apart(elements: int, mismatches: int, most: float | None, unit: str) -> str:
    far = "some are not a number" if most is None else f"by up to {most:g}{f' {unit}' if unit else ''}"
    return f"{mismatches:,} of {elements:,} elements differ, {far}"
