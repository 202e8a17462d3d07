"""How files are written and read: whole (`paths`), in directories that appear at once and remove only what is
ours (`folders`), and held to their types (`schema`).

Invariant: a reader never sees half a file or half a directory, whatever is interrupted; it does not depend on what is
inside.
"""
