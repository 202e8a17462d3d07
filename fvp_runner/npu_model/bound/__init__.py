"""The operations on real memory: the method `run` of each executes it, bit exactly, on the caller's bytes.

Invariant: what an operation does follows from its spec; no register is read here but scales of constants that are
decoded when their bytes are there.
"""
