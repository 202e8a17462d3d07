"""`compile` checks what it claims: a program is compared with its reference before its results are called exact.

Invariant: nothing below commands imports this folder; whether a program is checked, on what and with which outcome
follows from the model, the options and what is installed, never from a clock.
"""
