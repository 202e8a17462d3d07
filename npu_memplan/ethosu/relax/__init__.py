"""Relax side of the Ethos-U back end: partitioning and lowering of quantised modules.

Invariant: the patterns are registered with TVM's pattern registry under "ethos-u" when this package is
imported, so any TVM tool that asks the registry finds them.
"""

from __future__ import annotations

from ..lower.tensors import Arithmetic
from .lowering import lower_for_ethosu
from .partition import HostOperator, host_operators, partition_for_ethosu, with_arithmetic

__all__ = [
    "Arithmetic",
    "HostOperator",
    "host_operators",
    "lower_for_ethosu",
    "partition_for_ethosu",
    "with_arithmetic",
]
