"""TFLite operators on the host: TIR that equals TFLite Micro's reference kernels.

Invariant: importing this package registers every lowering; there is no other list of them.
"""

from __future__ import annotations

# Each module registers its operators when it is imported.
from . import (  # noqa: F401
    activation,
    batch_matmul,
    blocks,
    branching,
    casting,
    comparison,
    convolution,
    detection,
    division,
    elementwise,
    filling,
    fourier,
    fully_connected,
    l2_normalization,
    log_softmax,
    lstm,
    movement,
    own,
    plain,
    pooling,
    real_tables,
    reduction,
    requantise,
    resize,
    selecting,
    signal,
    signal_streams,
    softmax,
    sums,
    svdf,
    transpose_conv,
    variables,
)
from .operator import (
    LoweredOperator,
    UnsupportedOperatorError,
    completed,
    lower_operator,
    supported_names,
    unsupported_reason,
)

__all__ = [
    "LoweredOperator",
    "UnsupportedOperatorError",
    "completed",
    "lower_operator",
    "supported_names",
    "unsupported_reason",
]
