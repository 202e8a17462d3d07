"""Write a plan into the IR.

Invariant: the rewritten module does what the original did, with every planned buffer at its planned bytes; it needs
neither the problem nor the plan any more, because `main`'s attributes say where inputs, outputs, states and constants
lie.
"""

from .main import rewrite

__all__ = ["rewrite"]
