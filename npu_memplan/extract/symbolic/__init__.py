"""Sizes that are known only when a function is called: which is never the smaller one, and offsets as formulas.

Invariant: what holds here holds for every value that the shape symbols may have.
"""
