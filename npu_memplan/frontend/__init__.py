"""One IRModule from what a reader of `models` found: `load` chooses by format and backend; each format has a module or
a folder.

Invariant: whatever made the module, it has the same form and the same attributes (`attributes`).
"""
