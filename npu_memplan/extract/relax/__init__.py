"""A Relax function as a `Program`: which call uses which storage, and what its calls do.

Invariant: every tensor that a call reads or writes is a storage of the program, constants and results of calls that are
not looked into included.
"""
