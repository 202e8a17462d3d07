"""How an operation is made: its block, its room in SHRAM, and in stripes of how many rows.

Invariant: no choice here changes a value that is computed, only bytes and time.
"""
