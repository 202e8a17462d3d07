"""What a reader of `models` found, as one IRModule: `load` chooses by format and backend, one folder a format.

Invariant: whatever made the module, it has the same form and the same attributes (`attributes`).
"""
