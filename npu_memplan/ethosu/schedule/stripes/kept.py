"""Weights of operations that are interleaved, kept in the memory of the feature maps so that no turn reads them from
afar.

Invariant: what is kept are the constants that the operation's registers name, byte for byte; they are there before the
first part that reads them.
"""

from __future__ import annotations

from ...program.program import BufferRole, NpuProgram
from ..prefetch.reads import STREAMS, ConstantBlock, Span, joined


def constants_of(program: NpuProgram, index: int) -> ConstantBlock | None:
    """What could be kept of operation `index`; None where it reads no weights, or not from the constants."""
    operation = program.operations[index]
    spans: list[Span] = []
    names: set[str] = set()
    for stream in STREAMS:
        length = operation.registers.get(stream.length, 0)
        if stream.base in operation.addresses and length:
            name, start = operation.addresses[stream.base]
            names.add(name)
            spans.append((start, start + length))
    if len(names) != 1 or program.buffer(name := names.pop()).role is not BufferRole.CONSTANTS:
        return None
    return ConstantBlock(name, joined(spans), (index,))
