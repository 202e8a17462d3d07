"""What hardware does not check: waits, block dependencies, overwritten inputs, bytes that were never written.

Invariant: derived from the model's own reading of the registers; the compiler's analysis, which these checks are to
test, is never used.
"""
