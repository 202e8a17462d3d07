"""What a reader of `models` found, as one IRModule: `load` chooses by format and producer, one folder a format.

Invariant: whoever made the module, it has the same form and the same attributes (`attributes`).
"""
