"""Why a Vela-compiled file will not run on a board: what its driver, TFLite Micro and the board demand, then a run.

Invariant: a finding names the tensor, operator or bytes concerned, the numbers on both sides, and what to do; nothing
is called right that was not looked at.
"""
