"""The stage `write`: a compiled model as the files of an artifact directory, with tables and a trace for
Perfetto.

Invariant: every file is listed in plan.json, which is written last, and is complete or absent (written to a temporary
sibling, then renamed). Every number is one of `plan.json` or follows from it; the same plan gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..artifact.board_fit import fit_of
from ..artifact.model import Artifact
from ..artifact.timing import layers_csv
from ..errors import NpuMemplanError, RefusalError
from ..ethosu.arch import accelerator
from ..ethosu.time import lanes, name_event
from ..files.csv_text import csv_text
from ..files.paths import write_files, write_text
from ..options import NO_NPU
from ..sizes import bytes_and_kib
from ..stages import Compiled
from .colours import agents_of
from .facts.memory import PoolView, Rectangle, memory_view
from .facts.npu_work import call_estimates, describe_operations
from .page.html import html_report
from .text.memory_txt import memory_text

_FIGURES = ("constants_bytes", "stream_bytes", "npu_operations", "host_operations", "estimated_cycles", "npu_macs")


class ReportError(NpuMemplanError):
    """A report cannot be written, or names something that is not there."""


def write_reports(artifact: Artifact, directory: Path, streams: Path | None = None) -> dict[str, Path]:
    """Write all report files into `directory`; role -> path.

    `streams` is the artifact's directory, when its command streams are to be read for labels.
    """
    texts = {
        "html": ("report.html", html_report(artifact, streams)),
        "table": ("memory.txt", memory_text(artifact)),
        "buffers": ("buffers.csv", buffers_csv(artifact)),
        "summary": ("summary.csv", summary_csv(artifact)),
        "trace": ("trace.json", trace_json(artifact, streams)),
    }
    files = {role: (name, text.encode()) for role, (name, text) in texts.items()}
    written = write_files(directory, dict(files.values()))
    return {role: written[name] for role, (name, _) in files.items()}


def buffers_csv(artifact: Artifact) -> str:
    """One row a buffer, in the problem's order; lifetimes as `first-last` (half-open), joined by spaces."""
    placed = {p.buffer: p for p in artifact.plan.placements}
    header = (
        "name", "kind", "pool", "offset_bytes", "size_bytes", "alignment", "lifetimes",
        "agents", "read_bytes", "write_bytes", "producer", "consumers",
    )  # fmt: skip
    body = (
        (
            b.name, b.kind.value, placed[b.name].pool, placed[b.name].offset_bytes, b.size_bytes, b.alignment,
            " ".join(f"{t.first}-{t.last}" for t in b.lifetimes), agents_of(b),
            b.read_bytes, b.write_bytes, b.producer, " ".join(b.consumers),
        )
        for b in artifact.problem.buffers
    )  # fmt: skip
    return csv_text(header, body, for_spreadsheets=True)


def summary_csv(artifact: Artifact) -> str:
    """One row. Columns that Vela's summary also has keep Vela's name, unit (KiB) and meaning;
    the others, in bytes, are ours."""
    target, plan = artifact.target, artifact.plan
    used = {u.pool: u for u in plan.usage}
    row: dict[str, object] = {
        "network": artifact.name,
        "accelerator_configuration": target.accelerator.replace("ethos-u", "Ethos_U").replace("-", "_"),
        "system_config": target.system_config,
        "memory_mode": target.memory_mode,
    }
    if target.arena_cache_size_bytes is not None:
        row["arena_cache_size"] = target.arena_cache_size_bytes / 1024
    for area in ("sram", "dram"):
        if area in used:
            row[f"{area}_memory_used"] = used[area].used_bytes / 1024
    for pool in artifact.problem.pools:
        row[f"{pool.name}_used_bytes"] = used[pool.name].used_bytes
        row[f"{pool.name}_lower_bound_bytes"] = used[pool.name].lower_bound_bytes
        row[f"{pool.name}_capacity_bytes"] = pool.size_bytes
    for name, size in artifact.vela_arena_bytes.items():
        row[f"vela_{name}_bytes"] = size
    row |= {name: getattr(artifact, name) for name in _FIGURES}
    row |= {
        "buffers": len(artifact.problem.buffers),
        "points": memory_view(artifact.problem, plan).end,
        "planner": plan.planner,
        "status": plan.status.value,
    }
    return csv_text(tuple(row), [tuple(row.values())], for_spreadsheets=True)


def trace_json(artifact: Artifact, streams: Path | None = None) -> str:
    """A trace for ui.perfetto.dev or chrome://tracing: time runs along x (one point is 1 us), calls and
    buffers are slices, live bytes are a counter. With `streams`, the NPU's estimated work on an axis of its own."""
    view = memory_view(artifact.problem, artifact.plan)
    events: list[dict[str, Any]] = [name_event("process_name", artifact.name, 1)]
    for tid, agent in enumerate(("host", "npu"), 1):
        events.append(name_event("thread_name", f"{agent} calls", 1, tid))
        for call in artifact.calls:
            if call.agent.value == agent:
                events.append(
                    _trace_slice(call.function, 1, tid, *call.points, {"reads": call.reads, "writes": call.writes})
                )
    kinds = {b.name: b for b in artifact.problem.buffers}
    for pid, pool in enumerate(view.pools, 2):
        events.append(name_event("process_name", f"pool {pool.pool.name}", pid))
        live = 0
        for start, _, live in pool.curve.steps(view.end):
            events.append({"name": "live bytes", "ph": "C", "pid": pid, "tid": 0, "ts": start, "args": {"bytes": live}})
        if live:
            events.append({"name": "live bytes", "ph": "C", "pid": pid, "tid": 0, "ts": view.end, "args": {"bytes": 0}})
        lanes = list(_lane_rectangles(pool))
        for lane in sorted({lane for lane, _ in lanes}):
            events.append(name_event("thread_name", f"lane {lane + 1}", pid, lane + 1))
        for lane, r in lanes:
            b = kinds[r.buffer]
            detail = {
                "offset_bytes": r.low, "size_bytes": r.high - r.low, "kind": b.kind.value,
                "made by": b.producer, "read by": list(b.consumers),
            }  # fmt: skip
            events.append(_trace_slice(r.buffer, pid, lane + 1, r.first, r.last, detail))
    events += _npu_lanes(artifact, streams, len(view.pools) + 2)
    lines = ",\n".join(json.dumps(e) for e in events)
    return '{"displayTimeUnit":"ns","traceEvents":[\n' + lines + "\n]}\n"


def _npu_lanes(artifact: Artifact, streams: Path | None, pid: int) -> Iterator[dict[str, Any]]:
    """Kernels, DMA and ports of all NPU calls, one after the other; the host's calls between them take no time."""
    launches = [(time, describe_operations(call, time)) for call, time in call_estimates(artifact, streams)]
    if launches:
        yield from lanes("NPU, estimated: 1 us is one cycle", launches, pid)


def _trace_slice(name: str, pid: int, tid: int, first: int, last: int, detail: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "ph": "X", "pid": pid, "tid": tid, "ts": first, "dur": last - first, "args": detail}


def _lane_rectangles(pool: PoolView) -> Iterator[tuple[int, Rectangle]]:
    """Rectangles with a lane each, so that no two slices of a lane overlap; low addresses get low lanes."""
    free: list[int] = []  # free[i]: point at which lane i is free again
    for r in sorted(pool.rectangles, key=lambda r: (r.first, r.low)):
        lane = next((i for i, point in enumerate(free) if point <= r.first), len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = r.last
        yield lane, r


class BoardFitError(RefusalError):
    """A compiled model does not fit the memories of its board."""


def write_artifact(compiled: Compiled, folder: Path) -> Artifact:
    """Write the files of the artifact into an empty directory; `BoardFitError` when its board has no room for it."""
    _check_fit(compiled.artifact)
    sources = folder / "src"
    sources.mkdir()
    files = {f"source {path.name}": f"src/{path.name}" for path in compiled.sources.write(sources)}
    files |= {"memory": "memory.txt", "module": "planned.tvmscript"}
    if compiled.artifact.layers or compiled.artifact.host_layers:
        files["layers"] = "layers.csv"
        (folder / "layers.csv").write_text(_layers_csv(compiled.artifact), encoding="utf-8")
    write_text(folder / "planned.tvmscript", compiled.script)
    return record_artifact(replace(compiled.artifact, files=files), folder)


def record_artifact(artifact: Artifact, folder: Path) -> Artifact:
    """Write the description of the program in `folder`: memory.txt and plan.json."""
    (folder / "memory.txt").write_text(memory_text(artifact), encoding="utf-8")
    artifact.save(folder)
    return artifact


def _layers_csv(artifact: Artifact) -> str:
    """The text of layers.csv."""
    npu, timing, host_hz = artifact.target.accelerator, artifact.timing, artifact.host_clock_hz
    clocks = timing.clock_hz / host_hz if timing and host_hz else 1.0
    peak = 1 if npu == NO_NPU else accelerator(npu).macs
    return layers_csv(artifact.layers, peak, artifact.host_layers, clocks)


def _check_fit(artifact: Artifact) -> None:
    """Refuse an artifact whose constants do not fit its board; its pools do."""
    fit = fit_of(artifact)
    if fit is None or fit.shortest_memory is None:
        return
    short, board = fit.shortest_memory, fit.board
    raise BoardFitError(
        f"{artifact.name} does not fit {short.memory.name} of board {board.name}: {', '.join(short.holds)} need "
        f"{bytes_and_kib(short.used_bytes)}, it has {bytes_and_kib(short.memory.size_bytes)}, "
        f"{bytes_and_kib(-short.headroom_bytes)} "
        "too few; choose another --memory-mode, or name another memory with --constant-pool; "
        "npu-memplan compile --board all says where it fits"
    )
