"""TFLite operators on the host: TIR that equals TFLite Micro's reference kernels.

Invariant: importing this package registers every lowering; there is no other list of them.
"""

from __future__ import annotations

import importlib
import pkgutil

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

# Each module registers its operators when it is imported.
for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
