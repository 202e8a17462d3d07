"""Reports of a compiled model: text, pages, tables and traces (`files`).

Invariant: figures are computed in `facts`, once, and only shown elsewhere; an artifact directory is all that is read.
"""
