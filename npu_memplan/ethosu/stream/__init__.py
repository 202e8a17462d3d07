"""A command stream as the NPU reads it: registers, their bit fields, commands, words, and the container around them.

Invariant: nothing here depends on what a network is. `isa` names registers and operations, `fields` is the one place
that packs and unpacks their bits, `decode` goes from words to operations with their whole register file, `encode` back
and to the payload that drivers are handed.
"""
