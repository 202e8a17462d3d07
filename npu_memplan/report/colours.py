"""Colours of kinds and agents, shared by the SVG, the PNG and the HTML report.

Invariant: every `BufferKind` and every `Agent` set has exactly one colour, and neighbours
in the legend differ in lightness too, so that the map survives a grey printer and the
common kinds of colour blindness.
"""

from __future__ import annotations

from ..problem import Agent, Buffer, BufferKind

KIND_COLOURS: dict[BufferKind, str] = {
    BufferKind.INPUT: "#2f9e6e",
    BufferKind.OUTPUT: "#d1495b",
    BufferKind.STATE: "#8b5fbf",
    BufferKind.TENSOR: "#3d7dca",
    BufferKind.NPU_INTERNAL: "#e8a33d",
    BufferKind.ROLLING: "#17a2b0",
    BufferKind.WEIGHTS: "#a0692f",
    BufferKind.HOST_SCRATCH: "#7d8794",
    BufferKind.CONSTANT: "#c9b458",
}

KIND_LABELS: dict[BufferKind, str] = {
    BufferKind.INPUT: "graph input",
    BufferKind.OUTPUT: "graph output",
    BufferKind.STATE: "state",
    BufferKind.TENSOR: "tensor between calls",
    BufferKind.NPU_INTERNAL: "inside an NPU call",
    BufferKind.ROLLING: "rolling buffer of a cascade",
    BufferKind.WEIGHTS: "weights copied to RAM",
    BufferKind.HOST_SCRATCH: "host operator scratch",
    BufferKind.CONSTANT: "constant",
}

AGENT_COLOURS: dict[str, str] = {"npu": "#e8a33d", "host": "#3d7dca", "host+npu": "#2f9e6e"}


def agents_of(buffer: Buffer) -> str:
    """`npu`, `host` or `host+npu`."""
    return "+".join(sorted(agent.value for agent in buffer.agents)) or Agent.HOST.value
