"""When everything of a program happens, in estimated cycles of the NPU: for the page's time axis and its timeline.

Invariant: the slices are those of the trace (`ethosu.time.lanes`), launches follow one another with the host's calls
between them; `ends` never decreases and ends where the last slice's operation does. Nothing without command streams.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ...artifact import Artifact
from ...artifact.parts import Call
from ...ethosu.time import Cause, Estimate, lanes
from ..colours import ink_on
from ..facts.work import described, estimates

CAUSE_COLOURS = {  # of what bounds an operation
    Cause.MULTIPLY: "#2f9e6e",
    Cause.OUTPUT: "#17a2b0",
    Cause.READ: "#e8a33d",
    Cause.WRITE: "#8b5fbf",
    Cause.LATENCY: "#d1495b",
}
LANES = ("host", "kernels", "DMA", "DMA beside DMA", "AXI port 0", "AXI port 1")
_OF_THREAD = {1: 1, 2: 2, 5: 3, 3: 4, 4: 5}  # lane of each thread of the trace; 0 is the host's
_COLUMNS = ("lane", "start", "cycles", "cause", "point", "title")


def time_data(artifact: Artifact, directory: Path | None, labels: Callable[[str], int]) -> dict[str, Any] | None:
    """`ends`: the cycle at which each point is over; `slices` in columns; None where a stream is not known.

    The host's calls are as long as their rough estimate says, spread evenly over their points; 0 where there is none.
    """
    times = dict(zip(*_by_function(artifact, directory), strict=True))
    if not times or any(call.macs is not None and call.function not in times for call in artifact.calls):
        return None
    ends = [0] * len(artifact.problem.points)
    slices: list[tuple[int, int, int, int, int, int]] = []
    now = 0
    for call in artifact.calls:
        first, last = call.points
        if call.function in times:
            time = times[call.function]
            slices += _slices(call, time, now, labels)
            for point, share in enumerate(time.shares, first):
                ends[point] = (ends[point - 1] if point > first else now) + share.cycles
            now += time.total
        else:
            cycles = _host_cycles(artifact, call)
            if cycles:
                slices.append((0, now, cycles, -1, first, labels(call.function)))
            for point in range(first, last):
                ends[point] = now + cycles * (point + 1 - first) // (last - first)
            now += cycles
    if not now:
        return None
    for point in range(1, len(ends)):
        ends[point] = max(ends[point], ends[point - 1])
    return {
        "ends": ends,
        "lanes": list(LANES),
        "causes": [
            {"label": cause.value, "colour": CAUSE_COLOURS[cause], "ink": ink_on(CAUSE_COLOURS[cause])}
            for cause in Cause
        ],
        "slices": {name: [row[i] for row in slices] for i, name in enumerate(_COLUMNS)},
    }


def _by_function(artifact: Artifact, directory: Path | None) -> tuple[list[str], list[Estimate]]:
    pairs = list(estimates(artifact, directory))
    return [call.function for call, _ in pairs], [time for _, time in pairs]


def _slices(
    call: Call, time: Estimate, now: int, labels: Callable[[str], int]
) -> Sequence[tuple[int, int, int, int, int, int]]:
    """One launch: its operations in order, then what each moves over a port."""
    causes = {cause: i for i, cause in enumerate(Cause)}
    rows, number = [], 0
    for event in lanes("", [(time, described(call, time))], 0):
        if event["ph"] != "X":
            continue
        cause = -1
        if event["cat"] == "port":
            operation = event["args"]["operation"]
        else:
            operation, number = number, number + 1
            cause = causes[time.shares[operation].bound.cause]
        place = (_OF_THREAD[event["tid"]], now + event["ts"], event["dur"], cause, call.points[0] + operation)
        rows.append((*place, labels(event["name"])))
    return rows


def _host_cycles(artifact: Artifact, call: Call) -> int:
    """Of the NPU's clock, roughly."""
    clock, host = artifact.timing.clock_hz if artifact.timing else 0.0, artifact.host_clock_hz
    cycles = sum(row.cycles for row in artifact.host_layers if row.function == call.function)
    return round(cycles * clock / host) if clock and host else 0
