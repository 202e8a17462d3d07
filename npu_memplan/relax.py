"""Relax programs for the Ethos-U, by the names that users know: partition a quantised module, lower its parts.

Invariant: names only; the work is in `ethosu.relax`.
"""

from __future__ import annotations

from .ethosu.relax import (
    Arithmetic,
    HostOperator,
    host_operators,
    lower_for_ethosu,
    partition_for_ethosu,
    with_arithmetic,
)

__all__ = [
    "Arithmetic",
    "HostOperator",
    "host_operators",
    "lower_for_ethosu",
    "partition_for_ethosu",
    "with_arithmetic",
]
