"""Weights of operations that are interleaved, kept in the memory of the feature maps so that no turn reads them from
afar.

Invariant: what is kept are the constants that the operation's registers name, byte for byte; they are there before the
first part that reads them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ...stream.groups import SCALES, WEIGHTS
from ...stream.isa import Op, Register


@dataclass(frozen=True, slots=True)
class Kept:
    """Constants that one operation reads as weights and scales: half-open spans of buffer `constants`, ascending."""

    constants: str
    spans: tuple[tuple[int, int], ...]

    @property
    def size_bytes(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    def inner(self, offset: int) -> int:
        """Where byte `offset` of the constants is in a copy."""
        before = 0
        for start, stop in self.spans:
            if start <= offset < stop:
                return before + offset - start
            before += stop - start
        return 0  # of a stream without bytes

    def transfers(self, copy: str, operator: int) -> Iterator[NpuOperation]:
        """The operations that fill buffer `copy`."""
        for start, stop in self.spans:
            places = {Register.DMA0_SRC: (self.constants, start), Register.DMA0_DST: (copy, self.inner(start))}
            yield NpuOperation(Op.DMA_START, 0, {Register.DMA0_LEN: stop - start}, places, operator)

    def read_by(self, operation: NpuOperation, copy: str) -> NpuOperation:
        """`operation` with its weights in buffer `copy`."""
        moved = {
            stream.base: (copy, self.inner(operation.addresses[stream.base][1]))
            for stream in (*WEIGHTS, *SCALES)
            if stream.base in operation.addresses
        }
        return replace(operation, addresses={**operation.addresses, **moved})

    def buffer(self, copy: str) -> NpuBuffer:
        return NpuBuffer(copy, self.size_bytes, BufferRole.WEIGHTS)


def constants_of(program: NpuProgram, index: int) -> Kept | None:
    """What could be kept of operation `index`; None where it reads no weights, or not from the constants."""
    operation = program.operations[index]
    found: list[tuple[int, int]] = []
    names: set[str] = set()
    for stream in (*WEIGHTS, *SCALES):
        length = operation.registers.get(stream.length, 0)
        if stream.base in operation.addresses and length:
            name, start = operation.addresses[stream.base]
            names.add(name)
            found.append((start, start + length))
    if len(names) != 1 or program.buffer(name := names.pop()).role is not BufferRole.CONSTANTS:
        return None
    spans: list[tuple[int, int]] = []
    for start, stop in sorted(found):
        if spans and start <= spans[-1][1]:
            spans[-1] = spans[-1][0], max(stop, spans[-1][1])
        else:
            spans.append((start, stop))
    return Kept(name, tuple(spans))
