"""Whether a program is checked, the process that checks it, and what the result means for what the compile claims.

Invariant: nothing that generated C or a reference does ends this process or reaches its streams; the worker imports
nothing from the working directory, and has ended with all that it started when `run_in_worker` returns. The call and
the command line take precedence over the environment; otherwise the amount of work decides, never a clock. Results are
called equal only when every element of every output was, and a difference is called claimed only when every operator
that was seen to differ on the inputs that it got claims as much.

A unit of work is at most about a millisecond of a PC. It was measured on networks of 3 M to 1,750 M MACs with an NPU
(kws_ref_model, person_detect, mobilenet_v2, hand_landmark, deeplab, ssd_traffic, a residual network), and on six
without.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from importlib import metadata

import msgspec

from fvp_runner import (
    FACTS,
    FAULT,
    PHASE,
    PROGRAM,
    REFERENCE,
    InputFacts,
    OperatorResult,
    RunFacts,
    RunRequest,
    Verdict,
)

from ..artifact import Artifact
from ..artifact.model import CheckResult, CheckVerdict, FirstDifference, Operator
from ..errors import InternalError, NpuMemplanError
from ..exactness import Claim, Exactness
from ..files.folders import scratch_folder
from ..options import NO_NPU
from ..problem import Agent
from ..process.programs import end_program, python_child, start_program
from ..report.text.compile_result import how_much
from ..sizes import count_text
from ..vocabulary import TFLITE_RESHAPING

LIMIT = 5_000
LIMIT_OF_SEARCHES = 20_000  # of compiles that compare many programs, and take longer themselves

_OF_AN_OPERATION = 2  # the NPU model reads, checks and times each once
_MACS = 1_000_000  # of the NPU model in a unit
_REFERENCE_MACS = 300_000
_CONSTANT_BYTES = 3_000  # weights are decoded once
_OF_A_HOST_CALL = 20  # the C compiler
_HOST_CYCLES = 1_000_000
_REFERENCE_CYCLES = 300_000


@dataclass(frozen=True, slots=True)
class CheckWork:
    """The work that a check of a program runs, once and for every input."""

    npu_operations: int
    npu_macs: int
    constants_bytes: int
    host_operations: int = 0  # of C that is compiled
    host_calls: int = 0
    host_cycles: int = 0
    loops: bool = False  # how often they turn is not known

    def __add__(self, other: CheckWork) -> CheckWork:
        return CheckWork(
            self.npu_operations + other.npu_operations,
            self.npu_macs + other.npu_macs,
            self.constants_bytes + other.constants_bytes,
            self.host_operations + other.host_operations,
            self.host_calls + other.host_calls,
            self.host_cycles + other.host_cycles,
            self.loops or other.loops,
        )

    def units_of_work(self, inputs: int) -> int:
        """The units of work on so many inputs."""
        once = _OF_AN_OPERATION * self.npu_operations + _OF_A_HOST_CALL * self.host_operations
        if self.npu_operations:
            once += self.constants_bytes // _CONSTANT_BYTES
        each = self.npu_macs // _MACS + self.npu_macs // _REFERENCE_MACS
        return once + inputs * (each + self.host_cycles // _HOST_CYCLES + self.host_cycles // _REFERENCE_CYCLES)

    def too_much(self, inputs: int, limit: int = LIMIT) -> str:
        """Why a check needs --check; "" if it is not."""
        if self.loops:
            return "how often its WHILE turns is not known; --check runs it"
        found = self.units_of_work(inputs)
        if found <= limit:
            return ""
        operations = count_text(self.npu_operations, "NPU operation")
        npu = f"{self.npu_macs:,} MACs in {operations}" if self.npu_macs else ""
        host = (
            f"{count_text(self.host_calls, 'host call')} of about {self.host_cycles:,} cycles"
            if self.host_cycles
            else ""
        )
        description = " and ".join(part for part in (npu, host) if part)
        return f"{description} are {found:,} work units, more than the limit of {limit:,}; --check does it"


def work_of(artifact: Artifact) -> CheckWork:
    """The work of a check of `artifact`."""
    return CheckWork(
        artifact.npu_operations,
        artifact.npu_macs or 0,
        artifact.constants_bytes,
        artifact.host_operations,
        sum(call.agent is Agent.HOST for call in artifact.calls),
        artifact.host_cycles or 0,
        any(operator.kind == "WHILE" for operator in artifact.operators),
    )


VARIABLE = "NPU_MEMPLAN_CHECK"  # auto, always or never


class CheckModeError(NpuMemplanError):
    """The environment names an unknown mode."""


class CheckMode(Enum):
    """When results are checked."""

    AUTO = "auto"  # where that is little work compared with the compile
    ALWAYS = "always"  # however much work that is
    NEVER = "never"


def check_mode(requested: bool | None = None) -> CheckMode:
    """The mode that is `requested`; None: the environment's, else `AUTO`."""
    if requested is not None:
        return CheckMode.ALWAYS if requested else CheckMode.NEVER
    text = os.environ.get(VARIABLE, "").strip() or CheckMode.AUTO.value
    try:
        return CheckMode(text)
    except ValueError:
        known = ", ".join(mode.value for mode in CheckMode)
        raise CheckModeError(f"{VARIABLE} is {text!r}; it may be one of: {known}") from None


_ULPS = 4  # what two C libraries' functions, each within two, may be apart


@dataclass(frozen=True, slots=True)
class Judged:
    """The subject of a check: operators with their claims, the unit of outputs' differences, and what runs it."""

    operators: Sequence[Operator]
    unit: str  # "LSB" of integers; of floats it is the tensor's own
    runner: str


def judge_run(artifact: Artifact, facts: RunFacts) -> CheckResult:
    """The result of a check of `artifact`."""
    runner = "host C" if artifact.target.accelerator == NO_NPU else "NPU model and host C"
    return judge_program(Judged(artifact.operators, unit_of(slot.dtype for slot in artifact.outputs), runner), facts)


def unit_of(dtypes: Iterable[str]) -> str:
    """The unit of the differences of outputs of these types."""
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
        reference_version=_package_version(facts.reference_package),
        inputs=tuple(run.input for run in facts.runs),
        elements=sum(output.elements for output in outputs),
        mismatches=sum(output.mismatches for output in outputs),
        max_abs_diff=_finite_value(max((output.max_abs_diff for output in outputs), default=0.0)),
        unit=program.unit,
        references_disagree=facts.references_disagree,
    )
    found = [_run_verdict(program, run) for run in facts.runs if run.has_difference]
    reported = next((one for one in found if one[0] is CheckVerdict.DIFFERS), found[0] if found else None)
    return result if reported is None else replace(result, verdict=reported[0], first=reported[1])


def _run_verdict(program: Judged, run: InputFacts) -> tuple[CheckVerdict, FirstDifference]:
    """The verdict on a run that differs: by the first operator that differs further than it claims, or the first."""
    differing = [row for row in run.operators if row.verdict is Verdict.DIFFERS]
    further = [row for row in differing if not _claims_cover(program.operators, run, row)]
    first, row = _first_reported(program, run, next(iter((*further, *differing)), None))
    return CheckVerdict.AS_CLAIMED if _claims_cover(program.operators, run, row) else CheckVerdict.DIFFERS, first


def _first_reported(
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
            max_abs_diff=_finite_value(max(output.max_abs_diff for output in outputs)),
            unit=program.unit,
        ), None
    hidden = (o.index for o in run.operators if o.index < row.index and o.verdict is Verdict.HIDDEN)
    return FirstDifference(
        run.input, row.index, row.kind, row.name, row.elements, row.mismatches, _finite_value(row.max_abs_diff),
        "LSB" if isinstance(row.max_abs_diff, int) else "",
        tuple(index for index in hidden if program.operators[index].kind not in TFLITE_RESHAPING),
    ), row  # fmt: skip


def _claims_cover(operators: Sequence[Operator], run: InputFacts, row: OperatorResult | None) -> bool:
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
    """Whether no other program need be tried: nothing differs further than claimed, and of what is claimed nothing may
    be an unproven operator of the NPU that is off by more than a step.
    """
    first = result.first
    if result.verdict is CheckVerdict.DIFFERS:
        return False
    if first is None:
        return True
    suspects = operators if first.operator < 0 else (operators[first.operator],)
    unproven = any(o.agent is Agent.NPU and o.claim.exactness is Exactness.UNPROVEN for o in suspects)
    return not (unproven and first.unit == "LSB" and (first.max_abs_diff or 0) > 1)


def _package_version(package: str) -> str:
    """The version of the reference's package; empty where the reference is a program of its own."""
    try:
        return metadata.version(package) if package else ""
    except metadata.PackageNotFoundError:
        return ""


def _finite_value(value: float) -> float | None:
    return value if math.isfinite(value) else None


def likely_kinds(operators: Sequence[Operator], first: FirstDifference) -> tuple[str, ...]:
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


_TIMEOUT_S = 600.0  # no check that is done unasked comes near it

_CODE = "from fvp_runner.checked_run.worker import main; main(int(sys.argv[1]))"


@dataclass(slots=True, eq=False)
class _Worker:
    """A process that waits for its request; `answers` is our end of its pipe."""

    process: subprocess.Popen[bytes]
    answers: int
    closing: contextlib.ExitStack


_started: list[_Worker] = []


def start_worker() -> None:
    """Begin a worker's imports while this process compiles; it only saves time."""
    if not _started:
        with contextlib.suppress(OSError):
            _started.append(_start_worker())


@atexit.register
def _end_started() -> None:
    while _started:
        _end_worker(_started.pop())


def _start_worker() -> _Worker:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder("check"))
        ours, theirs = os.pipe()
        stack.callback(os.close, ours)
        try:
            process = start_program(
                python_child(_CODE, str(theirs), flags=("-S",)),
                folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs,),
            )
        finally:
            os.close(theirs)
        stack.callback(end_program, process)
        return _Worker(process, ours, stack.pop_all())


def _end_worker(worker: _Worker) -> int:
    """End a worker with all that it started; its exit status."""
    code = worker.process.poll()
    worker.closing.close()
    return worker.process.returncode if code is None else code


def run_in_worker(request: RunRequest) -> RunFacts:
    """The findings of the worker. A process that ended by itself is the reference's doing, or the program's, by its
    phase.

    Raises `InternalError` with the trace of a fault of ours.
    """
    try:
        worker = _started.pop() if _started else _start_worker()
    except OSError as error:
        return RunFacts(refused=f"no process could be started: {error.strerror or error}")
    try:
        assert worker.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            # a path may have bytes that are no UTF-8, which msgspec's JSON does not take
            worker.process.stdin.write(json.dumps(msgspec.to_builtins(request)).encode() + b"\n")
            worker.process.stdin.flush()
        messages, in_time = _read_messages(worker)
    finally:
        code = _end_worker(worker)
    return _facts_from(request, messages, in_time, code)


def _read_messages(worker: _Worker) -> tuple[list[dict[str, object]], bool]:
    """The worker's messages until it closed its end, and whether it did in time."""
    text, deadline = bytearray(), time.monotonic() + _TIMEOUT_S
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([worker.answers], [], [], left)[0]:
            break
        data = os.read(worker.answers, 1 << 16)
        if not data:
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.process.wait(5)  # its exit status is about to be known
            return _whole_lines(text), True
        text += data
    return _whole_lines(text), False


def _whole_lines(text: bytearray) -> list[dict[str, object]]:
    """Whole lines; of one that was cut off nothing is known."""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith(b"\n")]


def _facts_from(request: RunRequest, messages: list[dict[str, object]], in_time: bool, code: int) -> RunFacts:
    last = messages[-1] if messages else {}
    if FAULT in last:
        raise InternalError(str(last[FAULT]))
    facts = msgspec.convert(last[FACTS], RunFacts) if FACTS in last else RunFacts()
    if FACTS in last and PHASE not in last:
        return facts
    phase = last.get(PHASE, "")
    if not in_time:
        return RunFacts(refused=f"it had not ended after {_TIMEOUT_S:g} s")
    ended = f"ended with {_exit_status_text(code)}"
    if phase == REFERENCE:
        return RunFacts(refused=f"the reference {ended}")
    if phase == PROGRAM:
        stopped = InputFacts(request.inputs[len(facts.runs)], stopped=f"the compiled C {ended}")
        return RunFacts("", facts.reference, facts.reference_package, (*facts.runs, stopped))
    if phase:  # single operators were looked at: without them the facts stand
        return facts
    raise InternalError(f"the process {ended} before it began")


def _exit_status_text(code: int) -> str:
    """An exit status in words."""
    if code < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-code).name
    return f"exit code {code}"
