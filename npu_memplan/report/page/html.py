"""report.html: the memory map of one compiled model, its time axis and timeline, and everything around them.

Invariant: every rectangle it draws is a lifetime of `plan.json`, not a number computed in the page. The slices of the
time axis are those of the trace (`ethosu.time.lanes`), in estimated cycles of the NPU, and launches follow one another
with the host's calls between them; `ends` never decreases and ends where the last slice's operation does. Without
command streams there is no time axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ...artifact import Artifact
from ...artifact.board_fit import fit_of
from ...artifact.model import Call
from ...artifact.timing import utilisation_percent
from ...ethosu.arch import ACCELERATORS
from ...ethosu.time import Cause, Estimate, lanes
from ...options import NO_NPU
from ...problem import BufferKind
from ..colours import AGENT_COLOURS, KIND_COLOURS, KIND_LABELS, agents_of, ink_on, layer_colour
from ..facts.memory import PoolView, memory_view, on_purpose
from ..facts.npu_work import call_estimates, describe_operations, multiplier_use, npu_labels
from ..text.compile_result import shares_text
from .tables import Page, asset_text

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
    """`ends`: the cycle at which each point is over, host calls by their estimate; `slices`; None: unknown."""
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
            slices += _launch_slices(call, time, now, labels)
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
    pairs = list(call_estimates(artifact, directory))
    return [call.function for call, _ in pairs], [time for _, time in pairs]


def _launch_slices(
    call: Call, time: Estimate, now: int, labels: Callable[[str], int]
) -> Sequence[tuple[int, int, int, int, int, int]]:
    """One launch: its operations in order, then what each moves over a port."""
    causes = {cause: i for i, cause in enumerate(Cause)}
    rows, number = [], 0
    for event in lanes("", [(time, describe_operations(call, time))], 0):
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
    """The time of the host in cycles of the NPU's clock."""
    clock, host = artifact.timing.clock_hz if artifact.timing else 0.0, artifact.host_clock_hz
    cycles = sum(row.cycles for row in artifact.host_layers if row.function == call.function)
    return round(cycles * clock / host) if clock and host else 0


SCRIPTS = (
    "base.js",
    "model.js",
    "track.js",
    "plot.js",
    "timeline.js",
    "datatable.js",
    "tables.js",
    "side.js",
    "app.js",
)
_SECTIONS = (("map", "Map"), ("peak", "Peak"), ("operators", "Operators"), ("buffers", "Buffers"))
AGENT_LABELS = {"npu": "NPU", "host": "host", "host+npu": "host and NPU"}


def html_report(artifact: Artifact, directory: Path | None = None) -> str:
    """The text of report.html; `directory` is where the command streams are, for better labels."""
    target = artifact.target
    on = "host only" if target.accelerator == NO_NPU else target.accelerator
    optimise = f"optimise {target.optimise}" if target.optimise else ""
    return Page(
        title=f"{artifact.name} - memory plan",
        heading=escape(artifact.name),
        subtitle=escape(" · ".join(filter(None, (artifact.source, on, target.memory_mode, optimise)))),
        body=asset_text("report.html"),
        footer=f"From {escape(artifact.source)} (SHA-256 {artifact.source_sha256[:16]}…). Sizes are bytes; cycles are "
        "estimates.",
        sections=_SECTIONS,
        scripts=SCRIPTS,
        data=report_data(artifact, directory),
    ).html_text()


def report_data(artifact: Artifact, directory: Path | None = None) -> dict[str, Any]:
    """The data of the page, in columns and with labels written once, so that 10,000 buffers stay small."""
    problem, plan = artifact.problem, artifact.plan
    view = memory_view(problem, plan)
    kinds = list(BufferKind)
    buffer_index = {b.name: i for i, b in enumerate(problem.buffers)}
    numbers: dict[str, int] = {}  # of texts, each of which is kept once

    def labels(text: str) -> int:
        return numbers.setdefault(text, len(numbers))

    made = _layer_labels(artifact)
    buffers = _buffer_columns(artifact, labels, made)
    calls = [
        {
            "index": i,
            "function": call.function,
            "agent": call.agent.value,
            "first": call.points[0],
            "last": call.points[1],
            "reads": [buffer_index[n] for n in call.reads if n in buffer_index],
            "writes": [buffer_index[n] for n in call.writes if n in buffer_index],
            "cycles": call.estimated_cycles,
        }
        for i, call in enumerate(artifact.calls)
    ]
    times = _layer_times(artifact)
    does = npu_labels(artifact, directory)
    points = [labels(f"{p}: {does[t]}" if t in does else p) for t, p in enumerate(problem.points)]
    return {
        "status": plan.status.value,
        **{name: getattr(plan, name) for name in ("planner", "budget", "stopped_early")},
        **{name: getattr(artifact, name) for name in ("npu_operations", "host_operations", "estimated_cycles")},
        "time": time_data(artifact, directory, labels),
        "vela": _vela_facts(artifact),
        "busy": multiplier_use(artifact),
        "constants_bytes": artifact.constants_bytes,
        "stream_bytes": artifact.stream_bytes,
        "end": view.end,
        "kinds": [{"name": k.value, **_legend_entry(KIND_LABELS[k], KIND_COLOURS[k])} for k in kinds],
        "agents": {name: _legend_entry(AGENT_LABELS[name], c) for name, c in AGENT_COLOURS.items()},
        "layers": [_legend_entry(label, layer_colour(i)) for i, label in enumerate(made)],
        "fit": _fit_facts(artifact),
        "pools": [_pool_facts(p) for p in view.pools],
        "buffers": buffers,
        "points": points,
        "operator_of": _operator_of(artifact),
        "labels": list(numbers),
        "shares": sorted([buffer_index[a], buffer_index[b]] for a, b in on_purpose(problem)),
        "calls": calls,
        "clock_hz": artifact.timing.clock_hz if artifact.timing else None,
        "bounds": artifact.timing.main_causes() if artifact.timing else "",
        "operators": [
            {"index": i, "name": o.name, "kind": o.kind, "agent": o.agent.value, "reason": o.reason, **times.get(i, {})}
            for i, o in enumerate(artifact.operators)
        ],
        "notes": list(artifact.notes),
    }


def _vela_facts(artifact: Artifact) -> dict[str, Any]:
    """The bytes by pool of Vela's own placement of the same model, and its stream's cycles in our model."""
    bounds = artifact.timing.vela_stream_bounds if artifact.timing else {}
    return {"bytes": dict(artifact.vela_arena_bytes), "cycles": sum(bounds.values())}


def _layer_times(artifact: Artifact) -> dict[int, dict[str, Any]]:
    """The time of each operator: what its layer's row of the table says."""
    npu = ACCELERATORS.get(artifact.target.accelerator)
    rows: dict[int, dict[str, Any]] = {
        layer.operator: {
            "cycles": layer.cycles,
            "macs": layer.macs,
            "busy": utilisation_percent(layer, npu.macs) / 100 if npu else 0.0,
            "bytes": dict(layer.bytes),
            "bound": layer.bound,
        }
        for layer in artifact.layers
    }
    for row in artifact.host_layers:
        rows.setdefault(row.operator, {})["host"] = row.cycles
    return rows


def _legend_entry(label: str, colour: str) -> dict[str, str]:
    """An entry of a legend; `ink` is what can be read on its colour."""
    return {"label": label, "colour": colour, "ink": ink_on(colour)}


def _operator_of(artifact: Artifact) -> list[int]:
    """The operator of the source model that is computed at each point; -1 where that is not known."""
    found = [-1] * len(artifact.problem.points)
    for call in artifact.calls:
        for point, index in enumerate(call.operators, call.points[0]):
            if 0 <= index < len(artifact.operators) and point < len(found):
                found[point] = index
    return found


def _layer_of(artifact: Artifact) -> dict[str, str]:
    """Point -> the label of its operator, where that is known."""
    pairs = zip(artifact.problem.points, _operator_of(artifact), strict=True)
    labels = [f"{i}: {o.name} ({o.kind})" for i, o in enumerate(artifact.operators)]
    return {point: labels[index] for point, index in pairs if index >= 0}


def _layer_labels(artifact: Artifact) -> list[str]:
    """Labels of the layers that make a buffer, in program order."""
    layer_of = _layer_of(artifact)
    points = {point: number for number, point in enumerate(artifact.problem.points)}
    producers = {b.producer for b in artifact.problem.buffers if b.producer in layer_of}
    return list(dict.fromkeys(layer_of[point] for point in sorted(producers, key=lambda p: points[p])))


def _fit_facts(artifact: Artifact) -> dict[str, Any]:
    """The facts of the first card: whether the model fits what it was compiled for, and how long an inference takes."""
    fit, every = fit_of(artifact), artifact.total_milliseconds
    milliseconds, most = (every[0], max(every)) if every else (None, None)
    if fit is not None:
        rows = [(use.memory.name, use.used_bytes, use.memory.size_bytes) for use in fit.uses]
        where, fits = fit.board.name, fit.shortest_memory is None
    else:
        sizes = [(p.name, artifact.pool_bytes(p.name), p.size_bytes) for p in artifact.problem.pools]
        rows = [(name, used, size) for name, used, size in sizes if size is not None]
        where, fits = "", all(used <= size for _, used, size in rows)
    return {
        "where": where,
        "fits": fits if rows else None,
        "rows": rows,
        "ms": milliseconds,
        "most_ms": most,
        "host": shares_text(artifact),
    }


def _buffer_columns(artifact: Artifact, labels: Callable[[str], int], layers: list[str]) -> dict[str, list[Any]]:
    """One list a field, all in the problem's buffer order."""
    problem = artifact.problem
    numbered = {label: i for i, label in enumerate(problem.points)}
    kind_index = {kind: i for i, kind in enumerate(BufferKind)}
    pool_index = {pool.name: i for i, pool in enumerate(problem.pools)}
    placed = {p.buffer: p for p in artifact.plan.placements}
    layer_of, layer_index = _layer_of(artifact), {label: i for i, label in enumerate(layers)}
    return {
        "layer": [layer_index[layer_of[b.producer]] if b.producer in layer_of else -1 for b in problem.buffers],
        "name": [b.name for b in problem.buffers],
        "size": [b.size_bytes for b in problem.buffers],
        "offset": [placed[b.name].offset_bytes for b in problem.buffers],
        "pool": [pool_index[placed[b.name].pool] for b in problem.buffers],
        "kind": [kind_index[b.kind] for b in problem.buffers],
        "agents": [agents_of(b) for b in problem.buffers],
        "lifetimes": [[t for life in b.lifetimes for t in (life.first, life.last)] for b in problem.buffers],
        "producer": [labels(b.producer) for b in problem.buffers],
        "consumers": [[labels(c) for c in b.consumers] for b in problem.buffers],
        "made": [numbered.get(b.producer, -1) for b in problem.buffers],  # points
        "used": [[numbered[c] for c in b.consumers if c in numbered] for b in problem.buffers],
        "read": [b.read_bytes for b in problem.buffers],
        "write": [b.write_bytes for b in problem.buffers],
        "alignment": [b.alignment for b in problem.buffers],
        "fixed": [int(b.fixed is not None) for b in problem.buffers],
    }


def _pool_facts(view: PoolView) -> dict[str, Any]:
    point, peak = view.curve.peak
    return {
        "name": view.pool.name,
        "capacity": view.pool.size_bytes,
        "used": view.used_bytes,
        "bound": view.lower_bound_bytes,
        "curve": {"starts": list(view.curve.starts), "live": list(view.curve.live)},
        "peak": {"point": point, "bytes": peak},
    }
