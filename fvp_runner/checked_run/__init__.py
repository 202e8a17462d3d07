"""A compiled model compared with its reference on given inputs, in a process of its own: what `compile` reports of its
results.

Invariant: only facts are reported here; `npu_memplan.checking` judges them against what a compile claims.
"""
