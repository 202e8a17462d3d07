"""What the NPU can do, one file for each kind of layer: limits, storage, operations, and how Relax programs write it.

Invariant: everything about a layer is in its record; no other module branches on a layer's kind, but for `lower.fold`.
The records are in the order of their priority, lowest first: where the calls of two composites overlap, the later one
has them.
"""

from __future__ import annotations

from ..lower.record import COMPOSITES, Composite, Record, parse, register
from . import (
    activation,
    argmax,
    batch_matmul,
    comparison,
    concat,
    convolution,
    elementwise,
    fully_connected,
    gather,
    indexed,
    leaky_relu,
    lstm,
    pad,
    pool,
    prelu,
    rearrange,
    requantize,
    reshape,
    resize,
    reverse,
    select,
    slice,
    softmax,
    squared_difference,
    transpose,
)

__all__ = ["COMPOSITES", "Composite", "Record", "parse", "register"]

_RECORDS = (
    *(reshape.RECORD, transpose.RECORD, slice.RECORD, pad.RECORD, resize.RECORD, requantize.RECORD, concat.RECORD),
    *(gather.RECORD, indexed.RECORD, argmax.RECORD, reverse.RECORD, rearrange.RECORD),
    *(activation.RECORD, leaky_relu.RECORD, softmax.RECORD, pool.RECORD),
    *(elementwise.RECORD, comparison.RECORD, select.RECORD, squared_difference.RECORD, prelu.RECORD),
    *(fully_connected.RECORD, batch_matmul.RECORD, convolution.RECORD, lstm.RECORD),
)

for _record in _RECORDS:
    register(_record)
