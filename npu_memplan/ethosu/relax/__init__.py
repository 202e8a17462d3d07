"""Relax side of the Ethos-U back end: partitioning and lowering of quantised modules; users' names are `relax.py`'s.

Invariant: the patterns are registered with TVM's pattern registry under "ethos-u" when `partition` is
imported, so TVM tools find them in the registry.
"""
