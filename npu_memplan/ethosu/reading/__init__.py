"""How a Relax program writes what a layer needs: words of patterns, and a reader of the calls that they find.

Invariant: nothing here imports TVM before a pattern is made or a call is read, so layers are data without it.
"""
