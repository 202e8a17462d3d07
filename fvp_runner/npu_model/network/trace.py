"""A trace of the operations in Chrome's format, which Perfetto and chrome://tracing open.

Invariant: one complete event for each kernel and each transfer, and one for what it moves over each port; a
microsecond on the time axis is one estimated cycle.
"""

from __future__ import annotations

import json
from typing import Any

from npu_memplan.ethosu.stream.isa import ElementwiseMode, PoolMode
from npu_memplan.ethosu.time import Estimate, MemoryMap
from npu_memplan.models.network import Network

from ..spec.convolution import ConvolutionSpec
from ..spec.dma import DmaSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.pooling import PoolingSpec
from ..spec.stream import DecodedStep, DecodedStream

_PROCESS = 1
_TRACKS = {False: 1, True: 2}  # is it a transfer? -> thread
_PORT_TRACKS = 3  # thread of AXI port 0; the other follows


def title(step: DecodedStep) -> str:
    """A short name: what the operation does, and its output."""
    spec = step.spec
    if isinstance(spec, DmaSpec):
        return f"DMA {spec.size_bytes} B"
    output = spec.output
    shape = f"{output.height}x{output.width}x{output.depth}"
    if isinstance(spec, ElementwiseSpec):
        return f"{ElementwiseMode(spec.mode).name} {shape}"
    kernel = f"{spec.window.height}x{spec.window.width}"
    if isinstance(spec, PoolingSpec):
        return f"POOL {PoolMode(spec.mode).name} {kernel} {shape}"
    return f"{'DEPTHWISE' if spec.depthwise else 'CONV'} {kernel} {shape}"


def events(
    program: DecodedStream, call: int, start: int, where: MemoryMap | None = None
) -> tuple[list[dict[str, Any]], int]:
    """Events of one NPU call that begins at cycle `start`, and the cycle at which it ends."""
    made = []
    placed = program.estimate(where)
    for slot, step in zip(placed.shares, program.steps, strict=True):
        spec = step.spec
        details: dict[str, Any] = {
            "call": call,
            "operation": step.registers.index,
            "stream_offset": step.registers.operation.offset_bytes,
            "bound_by": str(slot.bound),
            "adds_cycles": slot.cycles,
        }
        if isinstance(spec, DmaSpec):
            details |= {"bytes": spec.size_bytes, "from_region": spec.source.region, "from": spec.source.start}
            details |= {"to_region": spec.destination.region, "to": spec.destination.start}
        else:
            details |= {"ofm_region": spec.output.layout.region, "ofm": spec.output.layout.bases[0]}
            details |= {"ifm_region": spec.ifm.region, "ifm": spec.ifm.bases[0], "macs": spec.macs}
            if isinstance(spec, ConvolutionSpec):
                details["weight_bytes"] = sum(span.length for span in spec.weights)
        made.append(
            {
                "name": title(step),
                "cat": "dma" if step.is_dma else "kernel",
                "ph": "X",
                "ts": start + slot.start,
                "dur": slot.stop - slot.start,
                "pid": _PROCESS,
                "tid": _TRACKS[step.is_dma],
                "args": details,
            }
        )
    return made + _port_events(placed, start), start + placed.total


def _port_events(placed: Estimate, start: int) -> list[dict[str, Any]]:
    """One event for what each operation moves over each port, one after the other on the port's own track."""
    made = []
    free: dict[int, float] = {}
    for number, share in enumerate(placed.shares):
        for (memory, writes), (size, beats, cycles) in share.traffic.items():
            port = placed.ports[memory]
            begin = max(free.get(port, 0.0), share.start)
            free[port] = begin + cycles
            made.append(
                {
                    "name": f"{'write' if writes else 'read'} {memory} {size} B",
                    "cat": "port",
                    "ph": "X",
                    "ts": start + round(begin),
                    "dur": max(1, round(cycles)),
                    "pid": _PROCESS,
                    "tid": _PORT_TRACKS + port,
                    "args": {"operation": number, "beats": beats},
                }
            )
    return made


def trace(network: Network, where: MemoryMap | None = None) -> str:
    """The whole network as JSON text; `where`: the memories (None: those of the accelerator's default system)."""
    found: list[dict[str, Any]] = []
    for name, thread, label in (
        ("process_name", 0, network.name),
        ("thread_name", _TRACKS[False], "kernels"),
        ("thread_name", _TRACKS[True], "DMA"),
        ("thread_name", _PORT_TRACKS, "AXI port 0"),
        ("thread_name", _PORT_TRACKS + 1, "AXI port 1"),
    ):
        found.append({"name": name, "ph": "M", "pid": _PROCESS, "tid": thread, "args": {"name": label}})
    now = 0
    for call in network.npu_calls:
        made, now = events(DecodedStream.decode(call.words, call.accelerator), call.index, now, where)
        found += made
    unit = "one microsecond is one estimated NPU cycle"
    return json.dumps({"traceEvents": found, "displayTimeUnit": "ms", "otherData": {"time": unit}})
