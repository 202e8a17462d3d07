"""A plan into the IR.

Invariant: the rewritten module does what the original did, with every planned buffer at its
planned bytes; it needs neither the problem nor the plan any more, because `main`'s attributes say
where inputs, outputs and states lie.
"""

from __future__ import annotations

from .main import PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES, POOLS, rewrite
from .primfunc import REGIONS

__all__ = ["PLACED_INPUTS", "PLACED_OUTPUTS", "PLACED_STATES", "POOLS", "REGIONS", "rewrite"]
