"""Both kinds of trace, held to the Trace Event Format word by word.

Source: "Trace Event Format" (Google, the document behind chrome://tracing and Perfetto's JSON importer): the JSON
object form, complete (X), counter (C) and metadata (M) events.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fvp_runner.npu_model.network import trace_json as simulation_trace
from npu_memplan.artifact import Artifact
from npu_memplan.models.tflite import read_network
from npu_memplan.report.files import trace_json
from npu_memplan.vela.compiler import compile_tflite

TOP = {"traceEvents", "displayTimeUnit", "otherData"}
FIELDS = {  # phase -> (required, allowed besides)
    "X": ({"name", "ph", "ts", "dur", "pid", "tid"}, {"cat", "args"}),
    "C": ({"name", "ph", "ts", "pid", "args"}, {"tid", "cat"}),
    "M": ({"name", "ph", "pid", "args"}, {"tid"}),
}
METADATA = {"process_name": "name", "thread_name": "name"}
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def check_trace(text: str) -> dict[str, int]:
    """Hold `text` to the format; returns the number of events of each phase. `AssertionError` says what is wrong."""
    document = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert isinstance(document, dict)
    assert {"traceEvents"} <= set(document) <= TOP
    assert document.get("displayTimeUnit", "ms") in ("ms", "ns")
    assert all(isinstance(value, str) for value in document.get("otherData", {}).values())
    counts: dict[str, int] = defaultdict(int)
    names: dict[tuple[str, int, int], str] = {}
    slices: dict[tuple[int, int], list[tuple[float, float, str]]] = defaultdict(list)
    counters: dict[tuple[int, str], list[float]] = defaultdict(list)
    for event in document["traceEvents"]:
        assert event["ph"] in FIELDS, f"phase {event['ph']!r} is not written here"
        required, more = FIELDS[event["ph"]]
        assert required <= set(event) <= required | more, str(event)
        assert isinstance(event["name"], str), str(event)
        assert event["name"], str(event)
        for key in {"pid", "tid"} & set(event):
            assert type(event[key]) is int, str(event)
        assert isinstance(event.get("args", {}), dict), str(event)
        assert isinstance(event.get("cat", ""), str), str(event)
        counts[event["ph"]] += 1
        if event["ph"] == "M":
            assert set(event["args"]) == {METADATA[event["name"]]}, str(event)
            assert isinstance(event["args"]["name"], str), str(event)
            thread = event["tid"] if event["name"] == "thread_name" else 0
            key = (event["name"], event["pid"], thread)
            assert key not in names, f"{key} is named twice"
            names[key] = event["args"]["name"]
            continue
        times = [event["ts"], *([event["dur"]] if event["ph"] == "X" else [])]
        assert all(type(t) in (int, float) and math.isfinite(t) and t >= 0 for t in times), str(event)
        if event["ph"] == "X":
            slices[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
        else:
            assert event["args"], str(event)
            assert all(type(v) in (int, float) and math.isfinite(v) for v in event["args"].values()), str(event)
            counters[event["pid"], event["name"]].append(event["ts"])
    for (pid, tid), spans in slices.items():
        assert ("process_name", pid, 0) in names, f"process {pid} has no name"
        assert ("thread_name", pid, tid) in names, f"thread {tid} of process {pid} has no name"
        _nested(spans)
    for (pid, name), times in counters.items():
        assert ("process_name", pid, 0) in names, f"process {pid} has no name"
        assert times == sorted(set(times)), f"counter {name} of process {pid} goes back in time"
    return dict(counts)


def _nested(spans: list[tuple[float, float, str]]) -> None:
    """Slices of one thread may hold one another, but not overlap in part."""
    outer: list[tuple[float, str]] = []
    for start, stop, name in sorted(spans, key=lambda s: (s[0], -s[1])):
        while outer and outer[-1][0] <= start:
            outer.pop()
        assert not outer or stop <= outer[-1][0], f"{name} ends after {outer[-1][1]}, in which it began"
        outer.append((stop, name))


def test_the_plan_as_a_trace(small: Artifact) -> None:
    lifetimes = sum(len(b.lifetimes) for b in small.problem.buffers)
    counts = check_trace(trace_json(small))
    assert counts["X"] == lifetimes + len(small.calls)
    assert counts["C"] > 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("kws_ref_model", {"prefetch": True}),
        ("micro_speech_quantized", {"accelerator": "ethos-u65-512"}),
        ("micro_speech_quantized", {"host_ops": ("softmax",)}),
    ],
)
def test_a_real_plan_shows_the_npus_estimated_work(
    name: str, options: dict[str, Any], compiled: Callable[..., tuple[Artifact, Path]]
) -> None:
    artifact, directory = compiled(name, **options)
    text = trace_json(artifact, directory)
    check_trace(text)
    events = json.loads(text)["traceEvents"]
    work = [e for e in events if e.get("cat") in ("kernel", "dma")]
    assert len(work) == artifact.npu_operations
    assert sum(e["args"]["adds_cycles"] for e in work) == artifact.estimated_cycles
    assert artifact.estimated_cycles is not None
    assert max(e["ts"] + e["dur"] for e in work) <= artifact.estimated_cycles
    assert sum(e["args"]["macs"] for e in work) == artifact.npu_macs
    moved = sum(int(e["name"].split()[-2]) for e in events if e.get("cat") == "port")
    assert moved == sum(sum(layer.bytes.values()) for layer in artifact.layers)
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
    drawn = {(names[e["pid"], e["tid"]].split()[0], e["cat"]) for e in events if "cat" in e}
    assert drawn - {("DMA", "dma")} == {("kernels", "kernel"), ("AXI", "port")}
    assert {e["tid"] for e in events if e.get("cat") == "port"} == {3, 4}, "both ports"


def test_a_simulation_as_a_trace() -> None:
    network = read_network(compile_tflite(EXAMPLE.read_bytes()).network)
    text = simulation_trace(network)
    check_trace(text)
    assert sum(event.get("cat") in ("kernel", "dma") for event in json.loads(text)["traceEvents"]) == 39
