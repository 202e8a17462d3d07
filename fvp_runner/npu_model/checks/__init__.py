"""What hardware does not check: waits, block dependencies, overwritten inputs, bytes that nobody wrote.

Invariant: derived from the model's own reading of the registers; the compiler's analysis, which this is there to
contradict, is never asked.
"""
