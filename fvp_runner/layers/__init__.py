"""Operator by operator: what a compiled model makes of each tensor, against what the reference makes of it.

Invariant: an operator is called right only when every element of what it made was seen and equal, and wrong only when
something that works for it wrote an unequal tensor of its form; tensors that exist nowhere are called not visible.
"""
