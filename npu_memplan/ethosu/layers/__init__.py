"""What the NPU can do, one file for each family of layers: limits, storage, operations, and how Relax writes them.

Invariant: everything about a layer is in its record; only `graph_rewrites` branches on a layer's kind elsewhere.
The records are in the order of their priority, lowest first: where the calls of two composites overlap, the later one
has them.
"""

from __future__ import annotations

from ..reading.reader import COMPOSITES, DESCRIBED, Composite, Described, Record, parse_composite, register
from . import activation, elementwise, indexed, lstm, matrix, movement, pool, resize, softmax

__all__ = ["COMPOSITES", "DESCRIBED", "Composite", "Described", "Record", "parse_composite", "register"]

_RECORDS = (
    *(movement.RESHAPE_RECORD, movement.TRANSPOSE_RECORD, movement.SLICE_RECORD, movement.PAD_RECORD, resize.RECORD),
    *(activation.REQUANTIZE_RECORD, movement.CONCAT_RECORD, movement.GATHER_RECORD, indexed.RECORD),
    *(pool.ARGMAX_RECORD, movement.REVERSE_RECORD, movement.REARRANGE_RECORD, activation.ACTIVATION_RECORD),
    *(activation.LEAKY_RELU_RECORD, softmax.RECORD, pool.POOL_RECORD, elementwise.ELEMENTWISE_RECORD),
    *(elementwise.COMPARISON_RECORD, elementwise.SELECT_RECORD, elementwise.SQUARED_DIFFERENCE_RECORD),
    *(activation.PRELU_RECORD, matrix.FULLY_CONNECTED_RECORD, matrix.BATCH_MATMUL_RECORD, matrix.CONVOLUTION_RECORD),
    lstm.RECORD,
)

for _record in _RECORDS:
    register(_record)
