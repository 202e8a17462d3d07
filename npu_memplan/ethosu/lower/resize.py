"""Resizes by whole numbers: every phase of the output is a copy or a small convolution of the input.

Invariant: a result is the sum of at most four stored values with weights that are binary fractions, rounded half
away from zero, once: what TFLite's reference computes with ten fraction bits. Positions outside of the input are
its edge, which is copied around it where a phase needs it.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np

from ..stream.isa import PoolMode, Upscale
from .emit import Builder
from .graph import Padding, Phase, Resize
from .operands import Operand, Output, Window
from .scaling import UNITY, Scale

NEAREST_BY_2 = (Phase(), Phase())
BILINEAR_BY_2 = (Phase(), Phase(0, 1, 2))  # positions counted from the corner


def lower_resize(builder: Builder, layer: Resize, ifm: Operand, ofm: Operand) -> None:
    """Emit a resize; both operands are stored values [H, W, C] without their zero points."""
    info = np.iinfo(ofm.dtype)
    limits = (int(info.min), int(info.max))
    if layer.rows == layer.columns == NEAREST_BY_2:
        builder.pool(PoolMode.MAX, ifm, ofm, Window(upscale=Upscale.NEAREST), Output(limits, UNITY))
    elif layer.rows == layer.columns == BILINEAR_BY_2:
        # behind the last row and column there is nothing: the NPU averages what is there
        window = Window((2, 2), padding=Padding(bottom=1, right=1), upscale=Upscale.NEAREST)
        builder.pool(PoolMode.AVERAGE, ifm, ofm, window, Output(limits, UNITY))
    else:
        _by_phases(builder, layer, ifm, ofm, limits)


def _by_phases(builder: Builder, layer: Resize, ifm: Operand, ofm: Operand, limits: tuple[int, int]) -> None:
    phases = (layer.rows, layer.columns)
    counts = tuple(
        [-(-(whole - r) // len(axis)) for r in range(len(axis))]
        for axis, whole in zip(phases, ofm.view.shape[:2], strict=True)
    )
    before = tuple(max(0, *(-p.first for p in axis)) for axis in phases)
    after = tuple(
        max(0, *(p.first + n - 1 + bool(p.second) - (size - 1) for p, n in zip(axis, count, strict=True)))
        for axis, count, size in zip(phases, counts, ifm.view.shape[:2], strict=True)
    )
    source = _with_edges(builder, f"{layer.output}_edges", ifm, before, after)
    for (y, row), (x, column) in product(enumerate(layer.rows), enumerate(layer.columns)):
        kernel = (1 + bool(row.second), 1 + bool(column.second))
        extent = (counts[0][y], counts[1][x], ofm.shape.depth)
        begin = (before[0] + row.first, before[1] + column.first, 0)
        wanted = (extent[0] + kernel[0] - 1, extent[1] + kernel[1] - 1, extent[2])
        target = ofm.view.box((y, x, 0), extent, (len(layer.rows), len(layer.columns), 1))
        read = source.view.box(begin, wanted)
        assert target is not None  # neither is in bricks
        assert read is not None
        a, b = replace(source, view=read), replace(ofm, view=target)
        if kernel == (1, 1):
            builder.pool(PoolMode.MAX, a, b, Window(), Output(limits, UNITY))
        else:
            _mix(builder, a, b, row, column, limits)


def _mix(builder: Builder, ifm: Operand, ofm: Operand, row: Phase, column: Phase, limits: tuple[int, int]) -> None:
    """Depthwise convolution of up to 2x2 elements."""
    weights = np.outer(_weights(row), _weights(column)).astype(np.int16)
    depth = ofm.shape.depth
    # the first of the two roundings leaves the sum as it is, the second rounds half away from zero
    scale = Scale(1 << 31, 31 + int(weights.sum()).bit_length() - 1)
    builder.weighted(
        ifm,
        ofm,
        Window((weights.shape[0], weights.shape[1])),
        Output(limits),
        np.broadcast_to(weights[None, :, :, None], (depth, *weights.shape, 1)),
        np.zeros(depth, np.int64),
        [scale],
        depthwise=True,
        part_kernel=False,
    )


def _weights(phase: Phase) -> list[int]:
    return [phase.of - phase.second, phase.second] if phase.second else [1]


def _with_edges(builder: Builder, name: str, ifm: Operand, before: tuple[int, ...], after: tuple[int, ...]) -> Operand:
    """`ifm` with its outer rows and columns repeated: at most one on each side."""
    if not any((*before, *after)):
        return ifm
    height, width, depth = ifm.view.shape
    info = np.iinfo(ifm.dtype)
    output = Output((int(info.min), int(info.max)), UNITY)
    shape = (before[0] + height + after[0], before[1] + width + after[1], depth)
    whole = builder.temporary(name, shape, ifm.dtype)
    for (y, from_y, rows), (x, from_x, columns) in product(
        _pieces(before[0], height, after[0]), _pieces(before[1], width, after[1])
    ):
        read = ifm.view.box((from_y, from_x, 0), (rows, columns, depth))
        written = whole.view.box((y, x, 0), (rows, columns, depth))
        assert read is not None  # neither is in bricks
        assert written is not None
        builder.pool(PoolMode.MAX, replace(ifm, view=read), replace(whole, view=written), Window(), output)
    return whole


def _pieces(before: int, size: int, after: int) -> list[tuple[int, int, int]]:
    """(position in the extended axis, position in the source, length) of the edges and of what is between."""
    pieces = [(before, 0, size)]
    if before:
        pieces.append((0, 0, 1))
    if after:
        pieces.append((before + size, size - 1, 1))
    return pieces
