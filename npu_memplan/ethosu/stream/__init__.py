"""A command stream as the NPU reads it: registers, their bit fields, commands, words, and the container around them.

Invariant: nothing here depends on what a network is. `isa` names registers and operations, `fields` is the one place
that packs and unpacks their bits, `commands` are operations with their whole register file, `decode` and `encode` go
from words to commands and back, `describe` says them in words, `container` is the payload that drivers are handed.
"""
