"""A plan into the IR.

Invariant: the rewritten module does what the original did, with every planned buffer at its
planned bytes; it needs neither the problem nor the plan any more, because `main`'s attributes say
where inputs, outputs, states and constants lie.
"""

from __future__ import annotations

from ..vocabulary import (
    CONSTANT_POOLS,
    FORMULAS,
    INITIALISE,
    PLACED_CONSTANTS,
    PLACED_INPUTS,
    PLACED_OUTPUTS,
    PLACED_STATES,
    POOL_DEVICES,
    POOLS,
    REGIONS,
    SYMBOLS,
)
from .main import rewrite

__all__ = [
    "CONSTANT_POOLS",
    "FORMULAS",
    "INITIALISE",
    "PLACED_CONSTANTS",
    "PLACED_INPUTS",
    "PLACED_OUTPUTS",
    "PLACED_STATES",
    "POOLS",
    "POOL_DEVICES",
    "REGIONS",
    "SYMBOLS",
    "rewrite",
]
