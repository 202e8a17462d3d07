"""A host PrimFunc's statements: what they read and write, and how far an output may lie over an input.

Invariant: knows nothing of Relax; what is not proven is not claimed.
"""
