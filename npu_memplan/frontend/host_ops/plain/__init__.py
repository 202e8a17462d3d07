"""Operators on numbers that mean themselves: float32, int32, int64 and bool.

Invariant: every operation of floats is written in the order of the reference kernels, and no two are contracted, so
results are equal bit for bit wherever the C library's functions are (`exactness.LIBRARY` names the operators that
call one).
"""
