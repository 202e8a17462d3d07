"""How an operation is executed: its block, its layout of SHRAM, its stripes, the order of operations, and copies of
constants.

Invariant: no choice here changes a value that is computed, only bytes and time.
"""
