"""TFLite operators on the host: TIR that equals TFLite Micro's reference kernels.

Invariant: importing this package registers every lowering; there is no other list of them.
"""

from __future__ import annotations

# Each module registers its operators when it is imported.
from . import (
    activation,
    batch_matmul,
    blocks,
    comparison,
    convolution,
    detection,
    division,
    elementwise,
    fourier,
    fully_connected,
    l2_normalization,
    log_softmax,
    lstm,
    movement,
    plain,
    pooling,
    reduction,
    resize,
    signal,
    signal_streams,
    softmax,
    svdf,
    transpose_conv,
    variables,
)
from . import requantise as requantize
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
    "activation",
    "batch_matmul",
    "blocks",
    "comparison",
    "completed",
    "convolution",
    "detection",
    "division",
    "elementwise",
    "fourier",
    "fully_connected",
    "l2_normalization",
    "log_softmax",
    "lower_operator",
    "lstm",
    "movement",
    "plain",
    "pooling",
    "reduction",
    "requantize",
    "resize",
    "signal",
    "signal_streams",
    "softmax",
    "supported_names",
    "svdf",
    "transpose_conv",
    "unsupported_reason",
    "variables",
]
