"""The texts that `compile` prints: the verdict, the outcome of the check, what would lower a pool, why a model does not
fit.

Invariant: the verdict is one line; what is estimated says so, and without a size to fit into nothing "fits". The text
names a program that was not compared with its reference, with the reason, and calls nothing of it exact but expected to
be so. An advice's `at_most_bytes` counts the whole program, not the peak alone: if some buffers shrink, the pool stays
as high as the rest of the program needs elsewhere. The message about a pool that is too small has required, available
and excess in bytes and KiB, the peak point with its operation, up to five of the largest buffers there with kind and
producer, and the options that need less memory.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...artifact import Artifact
from ...artifact.board_fit import fit_of
from ...artifact.model import CheckResult, CheckVerdict, FirstDifference, GivenUp, Operator
from ...exactness import claim_lines
from ...knobs import HOST, SEARCH, SECOND_MEMORY, SIZE, TuningKnob, useful_knobs
from ...options import NO_NPU, CompileOptions
from ...planners.model import PlanningError
from ...problem import Buffer, BufferKind, Problem
from ...sizes import bytes_and_kib, count_text, kib_text, milliseconds_text, percent_text
from ...text_table import align_rows
from ..facts.memory import PoolView
from ..facts.npu_work import NpuFindings

BOUNDARY = (BufferKind.INPUT, BufferKind.OUTPUT, BufferKind.STATE)
COPIED = (BufferKind.WEIGHTS,)


@dataclass(frozen=True, slots=True)
class Advice:
    """Something that could lower the pool by at most `at_most_bytes`."""

    text: str
    at_most_bytes: int


def advice(
    artifact: Artifact, view: PoolView, live: Sequence[Buffer], idle: Sequence[Buffer], findings: NpuFindings
) -> tuple[Advice, ...]:
    """Advice for one pool, the largest possible gain first; `live` at its peak, `idle` and untouched there."""
    sizes = {b.name: b.size_bytes for b in artifact.problem.buffers}
    there = {r.buffer for r in view.rectangles}

    def options_of(knob: TuningKnob) -> str:
        flags = knob.flag_text(artifact.target, view.used_bytes)
        return f" ({flags})" if flags else ""

    edge = {b.name: b.size_bytes for b in idle if b.kind in BOUNDARY}
    inner = {b.name: b.size_bytes for b in idle if b.kind not in (*BOUNDARY, BufferKind.CONSTANT)}
    copied = {b.name: b.size_bytes for b in artifact.problem.buffers if b.kind in COPIED and b.name in there}
    scratch = {b.name: b.size_bytes for b in live if b.kind is BufferKind.HOST_SCRATCH}
    lost = {p.buffer: p.lost_bytes for p in findings.paddings if p.buffer in there}
    where = "that wait at the peak without being used"
    smaller = {f"a smaller {top.name}, the largest buffer there": {top.name: top.size_bytes} for top in live[:1]}
    smaller |= {
        f"graph inputs, outputs or states {where} ({_some_names(edge)}): memory of their own": edge,
        f"tensors {where} ({_some_names(inner)}): a second pool to spill to{options_of(SECOND_MEMORY)}": inner,
        f"weights that are copied to RAM ahead of use{options_of(SIZE)}": copied,
        "less scratch in the host operator there": scratch,
        "channel counts that are multiples of 16: NHCWB16 bricks are padded up to them": lost,
    }
    pair = _pair_without_overlap(artifact, [b for b in live if b not in idle])
    if pair:
        text = (
            f"an output that may lie on its input: {pair[0]} and {pair[1]} may not share bytes here "
            "(proven only for element-wise operations and rows that are already consumed)"
        )
        smaller[text] = {pair[1]: min(sizes[name] for name in pair)}
    longer = f"{options_of(SEARCH)}, or more SECONDS of --effort"
    if artifact.target.has_rivals:  # its place is part of the search, and smaller ones may cost cycles
        longer = f", at some cycles (--pool {view.pool.name}={view.lower_bound_bytes})"
    better = f"a better placement of the same buffers{longer}"
    found = [Advice(better, view.used_bytes - view.lower_bound_bytes)]
    found += [Advice(text, possible_gain(view, by_bytes)) for text, by_bytes in smaller.items()]
    return tuple(sorted((a for a in found if a.at_most_bytes > 0), key=lambda a: -a.at_most_bytes))


def possible_gain(view: PoolView, smaller_by: Mapping[str, int]) -> int:
    """Bytes that the pool could lose at most if these buffers lost these bytes: its height less what
    the fullest point would still have live."""
    if not smaller_by:
        return 0
    change: dict[int, int] = dict.fromkeys(view.curve.starts, 0)
    for r in view.rectangles:
        if r.buffer in smaller_by:
            change[r.first] = change.get(r.first, 0) + smaller_by[r.buffer]
            change[r.last] = change.get(r.last, 0) - smaller_by[r.buffer]
    live = dict(zip(view.curve.starts, view.curve.live, strict=True))
    now, less, most = 0, 0, 0
    for point in sorted(change):
        now = live.get(point, now)
        less += change[point]
        most = max(most, now - less)
    return max(0, view.used_bytes - most)


def _some_names(names: Mapping[str, int]) -> str:
    first = list(names)[:3]
    return ", ".join(first) + (f" and {len(names) - len(first)} more" if len(names) > len(first) else "")


def _pair_without_overlap(artifact: Artifact, busy: Sequence[Buffer]) -> tuple[str, str] | None:
    """The largest input and the output of the operation at the peak, when nothing allows them to overlap."""
    for output in busy:
        if not output.producer or output.producer in output.consumers:
            continue
        for source in busy:
            if source is not output and output.producer in source.consumers:
                pair = {source.name, output.name}
                allowed = any({o.first, o.second} == pair for o in artifact.problem.overlaps)
                return None if allowed else (source.name, output.name)
    return None


def verdict(artifact: Artifact) -> str:
    """`kws: fits; sram 20,752 of 65,536 bytes, optimal; NPU about 0.112 to 0.118 ms (estimated)`, where the CPU has
    calls `about 0.337 to 0.343 ms (estimated): NPU 34 %, CPU 66 % (8 calls)`.
    """
    fit = fit_of(artifact)
    bounded = any(pool.size_bytes is not None for pool in artifact.problem.pools)
    fits = fit.verdict if fit is not None else "fits" if bounded else ""
    where = f"{fits} on {fit.board.name}" if fit is not None and fit.shortest_memory is None else fits
    parts = [where, f"{_pools_text(artifact)}, {artifact.plan.status.value}"]
    parts.append(time_text(artifact))
    return f"{artifact.name}: " + "; ".join(part for part in parts if part)


def time_text(artifact: Artifact) -> str:
    """The time of one inference, and the shares of NPU and CPU."""
    npu, total, calls = artifact.npu_milliseconds, artifact.total_milliseconds, host_calls(artifact)
    if npu and artifact.host_cycles is None:
        return "; ".join((f"NPU about {milliseconds_text(npu)} (estimated)", *([f"CPU: {calls}"] if calls else [])))
    if npu:
        return f"about {milliseconds_text(total)} (estimated; the range is the NPU's): {shares_text(artifact)}"
    if not calls:
        return ""
    alone = artifact.host_operations == len(artifact.calls)
    idle = "nothing runs on the NPU; " if alone and artifact.target.accelerator != NO_NPU else ""
    if total:
        return f"{idle}CPU about {milliseconds_text(total)} (estimated), {calls}"
    known = ":" if artifact.host_cycles is None else f" about {artifact.host_cycles:,} cycles (estimated),"
    return f"{idle}CPU{known} {calls}"


def shares_text(artifact: Artifact) -> str:
    """`NPU 8.3 %, CPU 91.7 % (8 calls)` of the time; the calls alone where only one of them takes time."""
    npu, total, calls = artifact.npu_milliseconds, artifact.total_milliseconds, host_calls(artifact)
    if not npu or artifact.host_cycles is None:
        return f"CPU: {calls}" if calls else ""
    shares = (percent_text(part, total[0]) for part in (npu[0], total[0] - npu[0]))
    return f"NPU {next(shares)}, CPU {next(shares)} ({calls})"


def host_calls(artifact: Artifact) -> str:
    """`8 calls, 2 of them not estimated`, of the CPU; nothing where it has none."""
    count, unknown = artifact.host_operations, artifact.unknown_calls
    if not count:
        return ""
    calls = count_text(count, "call")
    if not unknown:
        return calls
    return f"{calls}, {unknown} of them not estimated" if unknown < count else f"{calls}, not estimated"


def _pools_text(artifact: Artifact) -> str:
    sizes = []
    for pool in artifact.problem.pools:
        used = artifact.pool_bytes(pool.name)
        if used or not pool.read_only:
            sizes.append(f"{pool.name} {used:,}" + ("" if pool.size_bytes is None else f" of {pool.size_bytes:,}"))
    return f"{', '.join(sizes)} bytes"


def result_texts(artifact: Artifact) -> list[str]:
    """`result_lines` of an artifact."""
    return result_lines(artifact.operators, artifact.check)


def result_lines(operators: Iterable[Operator], check: CheckResult) -> list[str]:
    """Lines: the count of claims with what a check found, and what is not exact."""
    ran = check.verdict is not CheckVerdict.NOT_CHECKED
    lines = claim_lines(((operator.kind, operator.claim) for operator in operators), ran)
    if not lines:
        return []
    if not ran:
        lines[0] += f": {check.reason}" if check.reason else ""
    elif check.verdict is CheckVerdict.DIFFERS:
        lines[0] = f"Results: {difference_text(check)}; by rule {lines[0].removeprefix('Results: ')}"
    else:
        lines[0] = f"{lines[0]}; {check_outcome(check)}"
    return [*lines, f"  {check.references_disagree}"] if check.references_disagree else lines


def check_outcome(check: CheckResult) -> str:
    """The outcome of a check, in one clause."""
    if check.verdict is CheckVerdict.NOT_CHECKED:
        return f"expected exact (not run): {check.reason}"
    if check.verdict is CheckVerdict.DIFFERS:
        return difference_text(check)
    count = len(check.inputs)
    text = f"checked on {count} input{'s' if count > 1 else ''} ({check.runner})"
    if check.verdict is CheckVerdict.AS_CLAIMED:
        text += f": {_distance_text(check.elements, check.mismatches, check.max_abs_diff, check.unit)}, as claimed"
    return text


def difference_text(check: CheckResult) -> str:
    """`NOT exact: ...` of a check that found more than was claimed."""
    first = check.first
    assert first is not None
    if first.stopped:
        return f"NOT exact: the run on input {first.input} was stopped: {first.stopped}"
    outputs = _distance_text(check.elements, check.mismatches, check.max_abs_diff, check.unit)
    place = f", first in {_operator_text(first)}: {how_much(first)}" if first.operator >= 0 else ""
    return f"NOT exact: {outputs}, against {check.reference} on input {first.input}{place}"


def how_much(first: FirstDifference) -> str:
    """`118 of 126 elements differ, by up to 25 LSB`."""
    return _distance_text(first.elements, first.mismatches, first.max_abs_diff, first.unit)


def why_given_up(gone: GivenUp, taken: Sequence[str]) -> str:
    """The program that was not taken, why, and the one that was, each by the options that make it."""
    first = gone.difference
    text = f"{shlex.join(taken)} was taken: in the program of {shlex.join(gone.flags)} "
    if first.stopped:
        return f"{text}the run on input {first.input} was stopped: {first.stopped}"
    what = _operator_text(first) if first.operator >= 0 else "an output"
    return f"{text}{what} differs from {gone.reference} on input {first.input}: {how_much(first)}"


def _operator_text(first: FirstDifference) -> str:
    before = ", ".join(map(str, first.hidden))
    unseen = f" (operators {before} before it were not seen)" if before else ""
    return f"operator {first.operator} {first.kind} {first.name!r}{unseen}"


def _distance_text(elements: int, mismatches: int, most: float | None, unit: str) -> str:
    far = "some are not a number" if most is None else f"by up to {most:g}{f' {unit}' if unit else ''}"
    return f"{mismatches:,} of {elements:,} elements differ, {far}"


SHOWN = 5


def does_not_fit(
    error: PlanningError, problem: Problem, source: str, options: CompileOptions, *, needs_npu: bool = False
) -> PlanningError:
    """`error` with the message for `npu-memplan compile SOURCE` with resolved `options` and the model
    `problem.name`; `needs_npu`: a program of the host alone is none.
    """
    return replace(error, message=does_not_fit_text(error, problem, source, options, needs_npu=needs_npu))


def does_not_fit_text(
    error: PlanningError, problem: Problem, source: str, options: CompileOptions, *, needs_npu: bool = False
) -> str:
    """The message, several lines without a newline at the end."""
    certainty = "" if error.proven else f" ({error.source}; a smaller plan is not excluded)"
    if error.by_backend and not error.proven:
        certainty = f" ({error.source})"
    lines = [
        f"{problem.name} does not fit pool {error.pool}:",
        f"  required   {bytes_and_kib(error.required_bytes)}{certainty}",
        f"  available  {bytes_and_kib(error.available_bytes)}",
        f"  excess     {bytes_and_kib(error.excess_bytes)}",
    ]
    if error.by_backend:
        lines.append("what a program of each backend needs:")
        needs = [(backend, f"{size:,} bytes", f"({kib_text(size)})") for backend, size in error.by_backend]
        lines += align_rows(needs, right={1, 2})
    if error.point is not None:
        where = f", {error.point_label}" if error.point_label else ""
        lines.append(f"the peak is at point {error.point}{where}; the largest buffers there:")
    elif error.largest:
        lines.append("the largest of the buffers that cannot be together:")
    buffers = {b.name: b for b in problem.buffers}
    rows = []
    for buffer, size in error.largest[:SHOWN]:
        known = buffers.get(buffer)
        kind = known.kind.value if known else ""
        producer = f"made by {known.producer or 'the caller'}" if known else ""
        rows.append((buffer, kind, f"{size:,} bytes", f"({kib_text(size)})", producer))
    lines += align_rows(rows, right={2, 3})
    lines.append("what to try:")
    if any(pool.name == error.pool and pool.read_only for pool in problem.pools):
        lines.append(f"  --constant-pool {error.pool}={error.required_bytes}, if the memory is there")
        lines.append("  one more --constant-pool behind it, for what it does not hold")
        return "\n".join(lines)
    budget = error.available_bytes
    able = [
        knob
        for knob in useful_knobs(options, budget, source, searched=error.proven)
        if not (needs_npu and knob is HOST)
    ]
    lines += align_rows([(knob.flag_text(options, budget), knob.does) for knob in able], right=set())
    if not error.proven and not (error.by_backend and options.effort == "max"):
        lines.append(f"  --effort {'max' if error.by_backend else 'SECONDS'}, for a longer search")
    lines.append(f"  --pool {error.pool}={error.required_bytes}, if the memory is there")
    return "\n".join(lines)
