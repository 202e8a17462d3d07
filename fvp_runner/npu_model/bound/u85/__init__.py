"""Ethos-U85's operations on real memory.

Invariant: integers all the way but for the products of convolutions, which are exact as in the folder above.
"""
