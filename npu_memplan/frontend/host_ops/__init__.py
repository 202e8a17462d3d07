"""TFLite operators on the host: integer TIR that equals TFLite Micro's reference kernels.

Invariant: importing this package registers every lowering; there is no other list of them.
"""

from __future__ import annotations

from . import convolution, fully_connected, softmax
from .operator import HostOperator, UnsupportedOperatorError, lower_operator, supported_names, unsupported_reason

__all__ = [
    "HostOperator",
    "UnsupportedOperatorError",
    "convolution",
    "fully_connected",
    "lower_operator",
    "softmax",
    "supported_names",
    "unsupported_reason",
]
