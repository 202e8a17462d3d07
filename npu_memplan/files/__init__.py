"""How files are written and read: whole (`whole_file`), in directories that appear at once (`staging`) and remove only
what is ours (`manifest`, `owned_folder`), and held to their types (`schema`).

Invariant: a reader never sees half a file or half a directory, whatever is interrupted; it does not depend on what is
inside.
"""
