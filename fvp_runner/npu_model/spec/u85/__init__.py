"""What the registers of Ethos-U85's operations say.

Invariant: as in the folder above; the results are the same kinds of spec wherever an operation is the same.
"""
