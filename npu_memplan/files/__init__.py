"""Writing and reading files: whole (`paths`), in directories that appear at once and remove only our own files
(`folders`), with checked types (`schema`).

Invariant: a reader never sees half a file or half a directory, whatever is interrupted; it does not depend on what is
inside.
"""
