"""What the facts of a checked run mean for what a compile claims.

Invariant: results are called equal only when every element of every output was, and a difference is called claimed
only when every operator that was seen to differ on the inputs that it got claims as much.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fvp_runner.checked_run.facts import InputFacts, RunFacts
from fvp_runner.layers.operator_result import OperatorResult, Verdict

from ..artifact import Artifact
from ..artifact.check import CheckResult, CheckVerdict, FirstDifference
from ..artifact.parts import Operator
from ..exactness import Claim, Exactness
from ..options import NO_NPU
from ..problem import Agent
from ..report.text.checked import how_much
from ..vocabulary import TFLITE_RESHAPING

_ULPS = 4  # what two C libraries' functions, each within two, may be apart


@dataclass(frozen=True, slots=True)
class Judged:
    """What a check is about: operators with their claims, the unit of outputs' differences, and what runs it."""

    operators: Sequence[Operator]
    unit: str  # "LSB" of integers; of floats it is the tensor's own
    runner: str


def judge(artifact: Artifact, facts: RunFacts) -> CheckResult:
    """The result of a check of `artifact`."""
    runner = "host C" if artifact.target.accelerator == NO_NPU else "NPU model and host C"
    return judge_program(Judged(artifact.operators, unit_of(slot.dtype for slot in artifact.outputs), runner), facts)


def unit_of(dtypes: Iterable[str]) -> str:
    """Of the differences of outputs of these types."""
    return "" if any(dtype.startswith("float") for dtype in dtypes) else "LSB"


def judge_program(program: Judged, facts: RunFacts) -> CheckResult:
    """The result of a check of `program`."""
    if facts.refused:
        return CheckResult(reason=facts.refused)
    outputs = [output for run in facts.runs for output in run.outputs]
    result = CheckResult(
        CheckVerdict.EQUAL,
        runner=program.runner,
        reference=facts.reference,
        reference_version=facts.reference_version,
        inputs=tuple(run.input for run in facts.runs),
        elements=sum(output.elements for output in outputs),
        mismatches=sum(output.mismatches for output in outputs),
        max_abs_diff=_finite(max((output.max_abs_diff for output in outputs), default=0.0)),
        unit=program.unit,
        references_disagree=facts.references_disagree,
    )
    found = [_verdict(program, run) for run in facts.runs if run.differs]
    reported = next((one for one in found if one[0] is CheckVerdict.DIFFERS), found[0] if found else None)
    return result if reported is None else replace(result, verdict=reported[0], first=reported[1])


def _verdict(program: Judged, run: InputFacts) -> tuple[CheckVerdict, FirstDifference]:
    """Of a run that differs: by the first operator that differs further than it claims, or else the first."""
    differing = [row for row in run.operators if row.verdict is Verdict.DIFFERS]
    further = [row for row in differing if not _covered(program.operators, run, row)]
    first, row = _first(program, run, next(iter((*further, *differing)), None))
    return CheckVerdict.AS_CLAIMED if _covered(program.operators, run, row) else CheckVerdict.DIFFERS, first


def _first(
    program: Judged, run: InputFacts, row: OperatorResult | None
) -> tuple[FirstDifference, OperatorResult | None]:
    """The difference of a run that is reported, and its operator if that is known; `row`: the one that was seen."""
    if run.stopped:
        if run.operator < 0:
            return FirstDifference(run.input, stopped=run.stopped), None
        known = program.operators[run.operator]
        return FirstDifference(run.input, run.operator, known.kind, known.name, stopped=run.stopped), None
    if row is None and len(program.operators) == 1:  # there is no other
        only, (output, *_) = program.operators[0], [o for o in run.outputs if o.mismatches]
        row = OperatorResult(
            0, only.name, only.kind, Verdict.DIFFERS, output.elements, output.mismatches,
            int(output.max_abs_diff) if program.unit else output.max_abs_diff, output.max_ulps,
        )  # fmt: skip
    if row is None:
        outputs = run.outputs
        return FirstDifference(
            run.input,
            elements=sum(output.elements for output in outputs),
            mismatches=sum(output.mismatches for output in outputs),
            max_abs_diff=_finite(max(output.max_abs_diff for output in outputs)),
            unit=program.unit,
        ), None
    hidden = (o.index for o in run.operators if o.index < row.index and o.verdict is Verdict.HIDDEN)
    return FirstDifference(
        run.input, row.index, row.kind, row.name, row.elements, row.mismatches, _finite(row.max_abs_diff),
        "LSB" if isinstance(row.max_abs_diff, int) else "",
        tuple(index for index in hidden if program.operators[index].kind not in TFLITE_RESHAPING),
    ), row  # fmt: skip


def _covered(operators: Sequence[Operator], run: InputFacts, row: OperatorResult | None) -> bool:
    """Whether claims allow what was found."""
    if run.stopped:
        return False
    if row is None:  # operators cannot be distinguished
        if run.limits and any(o.max_abs_diff > most for o, most in zip(run.outputs, run.limits, strict=True)):
            return False
        return any(operator.claim.exactness is not Exactness.EXACT for operator in operators)
    level = operators[row.index].claim.exactness
    hidden = (o.index for o in run.operators if o.index < row.index and o.verdict is Verdict.HIDDEN)
    if level is Exactness.EXACT:  # what was not seen may have differed before it
        return any(operators[index].claim.exactness is not Exactness.EXACT for index in hidden)
    if level is Exactness.STEP:
        return isinstance(row.max_abs_diff, int) and row.max_abs_diff <= 1  # floats have no steps
    if level is Exactness.ULPS:
        return row.max_ulps is not None and row.max_ulps <= _ULPS
    return level is Exactness.UNPROVEN


def is_right(operators: Sequence[Operator], result: CheckResult) -> bool:
    """Whether no other program need be tried: nothing differs further than claimed, and of what is claimed nothing is
    an unproven operator of the NPU that is off by more than a step.
    """
    first = result.first
    if result.verdict is CheckVerdict.DIFFERS:
        return False
    if first is None or first.operator < 0:
        return True
    found = operators[first.operator]
    unproven = found.agent is Agent.NPU and found.claim.exactness is Exactness.UNPROVEN
    return not (unproven and first.unit == "LSB" and (first.max_abs_diff or 0) > 1)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def suspects(operators: Sequence[Operator], first: FirstDifference) -> tuple[str, ...]:
    """Kinds of operators on the NPU that may have made the first difference, the likeliest first."""
    places: Iterable[int] = (first.operator, *reversed(first.hidden))
    if first.operator < 0:
        places = range(len(operators))
    found = [operators[index] for index in places]
    return tuple(dict.fromkeys(o.kind for o in found if o.agent is Agent.NPU))


def with_result(artifact: Artifact, result: CheckResult) -> Artifact:
    """`artifact` with its check; an operator that differs further than it claims no longer claims it."""
    operators, first = list(artifact.operators), result.first
    if result.verdict is CheckVerdict.DIFFERS and first is not None and first.operator >= 0:
        found = operators[first.operator]
        found_out = f"stopped: {first.stopped}" if first.stopped else how_much(first)
        claim = Claim(Exactness.DIFFERS, result.reference, f"{found_out} on input {first.input}")
        operators[first.operator] = replace(found, claim=claim)
    return replace(artifact, operators=tuple(operators), check=result)
