"""Letters and colours of kinds, colours of agents, shared by the maps in text and HTML.

Invariant: every `BufferKind` and every `Agent` set has exactly one colour, and neighbours
in the legend differ in lightness too, so that the map survives a grey printer and the
common kinds of colour blindness.
"""

from __future__ import annotations

import colorsys

from ..problem import Agent, Buffer, BufferKind

_LOOKS = {  # letter in characters, colour, words
    BufferKind.INPUT: ("I", "#2f9e6e", "graph input"),
    BufferKind.OUTPUT: ("O", "#d1495b", "graph output"),
    BufferKind.STATE: ("S", "#8b5fbf", "state"),
    BufferKind.TENSOR: ("T", "#3d7dca", "tensor between calls"),
    BufferKind.NPU_INTERNAL: ("n", "#e8a33d", "inside an NPU call"),
    BufferKind.ROLLING: ("r", "#17a2b0", "rolling buffer of a cascade"),
    BufferKind.WEIGHTS: ("w", "#a0692f", "weights copied to RAM"),
    BufferKind.HOST_SCRATCH: ("h", "#7d8794", "host operator scratch"),
    BufferKind.CONSTANT: ("c", "#c9b458", "constant"),
    BufferKind.RESIDENT: ("R", "#6b7f2a", "resident constant"),
}
KIND_LETTERS = {kind: letter for kind, (letter, _, _) in _LOOKS.items()}
KIND_COLOURS = {kind: colour for kind, (_, colour, _) in _LOOKS.items()}
KIND_LABELS = {kind: label for kind, (_, _, label) in _LOOKS.items()}

AGENT_COLOURS: dict[str, str] = {"npu": "#e8a33d", "host": "#3d7dca", "host+npu": "#2f9e6e"}


def layer_colour(number: int) -> str:
    """The colour of the layer that is `number`-th in program order: neighbours are far apart on the colour wheel."""
    red, green, blue = colorsys.hls_to_rgb(number * 0.381966 % 1.0, (0.42, 0.56, 0.7)[number % 3], 0.48)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def ink_on(colour: str) -> str:
    """Black or white, whichever is easier to read on `colour` (#rrggbb): by WCAG's contrast, at least 4.58 to 1."""
    return "#ffffff" if contrast_ratio(colour, "#ffffff") >= contrast_ratio(colour, "#000000") else "#000000"


def contrast_ratio(first: str, second: str) -> float:
    """WCAG 2's contrast of two colours (#rrggbb), 1 to 21."""
    low, high = sorted((_relative_luminance(first), _relative_luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _relative_luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def agents_of(buffer: Buffer) -> str:
    """`npu`, `host` or `host+npu`."""
    return "+".join(sorted(agent.value for agent in buffer.agents)) or Agent.HOST.value
