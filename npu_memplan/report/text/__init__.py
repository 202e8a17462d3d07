"""The texts that commands print and write: the table of a compile, why a pool is as high as it is, what changed.

Invariant: every figure comes from `facts`; the same artifact gives the same text.
"""
