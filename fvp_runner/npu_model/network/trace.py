"""A trace of the operations in Chrome's format, which Perfetto and chrome://tracing open.

Invariant: the lanes are those of the estimate (`npu_memplan.ethosu.time`); what an operation is called
and its notes, the model read from the stream itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import PoolMode
from npu_memplan.ethosu.time import Described, Estimate, MemoryMap, lanes
from npu_memplan.models.network import Network

from ..spec.dma import DmaSpec
from ..spec.elementwise import ElementwiseSpec
from ..spec.stream import DecodedStep, DecodedStream
from ..spec.sums import SumSpec
from ..spec.u85.kernels import ResizeSpec


def title(step: DecodedStep) -> str:
    """A short name: what the operation does, and its output."""
    spec = step.spec
    if isinstance(spec, DmaSpec):
        return f"DMA {spec.size_bytes} B"
    output = spec.output
    shape = f"{output.height}x{output.width}x{output.depth}"
    if isinstance(spec, ElementwiseSpec):
        return f"{spec.kind.name} {shape}"
    if isinstance(spec, ResizeSpec):
        return f"RESIZE {spec.kind.name} {shape}"
    kernel = f"{spec.window.height}x{spec.window.width}"
    if spec.pool is not None:
        return f"POOL {PoolMode(step.registers.operation.parameter).name} {kernel} {shape}"
    return f"{'DEPTHWISE' if spec.depthwise else 'CONV'} {kernel} {shape}"


def details(step: DecodedStep, call: int) -> dict[str, Any]:
    spec = step.spec
    found: dict[str, Any] = {
        "call": call,
        "operation": step.registers.index,
        "stream_offset": step.registers.operation.offset_bytes,
    }
    if isinstance(spec, DmaSpec):
        found |= {"bytes": spec.size_bytes, "from_region": spec.source.region, "from": spec.source.start}
        return found | {"to_region": spec.destination.region, "to": spec.destination.start}
    found |= {"ofm_region": spec.output.layout.region, "ofm": spec.output.layout.bases[0]}
    for source in spec.inputs:
        if source.layout is not None:
            name = source.name.lower()
            found |= {f"{name}_region": source.layout.region, name: source.layout.bases[0]}
    found |= {"macs": spec.macs}
    if isinstance(spec, SumSpec) and spec.pool is None:
        found["weight_bytes"] = sum(span.length for span in spec.weights)
    return found


def trace(network: Network, where: MemoryMap | None = None) -> str:
    """The whole network as JSON text; `where`: the memories (None: those of the accelerator's default system)."""
    calls = [(call.index, call.words, call.accelerator) for call in network.npu_calls]
    return json.dumps(trace_of(network.name, calls, where))


def trace_of(
    name: str, calls: Iterable[tuple[int, Sequence[int], Architecture]], where: MemoryMap | None = None
) -> dict[str, Any]:
    """(index, command stream, NPU) of each call, one after the other."""

    def launches() -> Iterator[tuple[Estimate, Described]]:
        for index, words, accelerator in calls:
            program = DecodedStream.decode(words, accelerator)
            yield program.estimate(where), [(title(step), details(step, index)) for step in program.steps]

    unit = "one microsecond is one estimated NPU cycle"
    return {"traceEvents": [*lanes(name, launches(), 1)], "displayTimeUnit": "ms", "otherData": {"time": unit}}
