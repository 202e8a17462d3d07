"""Constants without the bytes that are no longer read.

Invariant: every operation reads the same values; what one register reaches stays together, in the same order and at
the same residue of an address.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.program import BufferRole, NpuProgram
from .reads import GRAIN, Span


def compact(program: NpuProgram, data: bytes) -> tuple[NpuProgram, bytes]:
    """`program` and the `data` of its only buffer of constants, both without what is not read."""
    (constants,) = (b.name for b in program.buffers if b.role is BufferRole.CONSTANTS)
    kept: list[Span] = []
    for start, stop in sorted(_read(program, constants)):
        if kept and start <= kept[-1][1]:
            kept[-1] = (kept[-1][0], max(stop, kept[-1][1]))
        else:
            kept.append((start, stop))
    starts: list[tuple[Span, int]] = []
    size = 0
    for start, stop in kept:
        starts.append(((start, stop), size))
        size += stop - start

    def moved(at: int) -> int:
        return next(to + at - start for (start, stop), to in starts if start <= at <= stop)

    operations = tuple(
        replace(
            operation,
            addresses={
                register: (name, moved(at) if name == constants else at)
                for register, (name, at) in operation.addresses.items()
            },
        )
        for operation in program.operations
    )
    buffers = tuple(replace(b, size_bytes=size, shape=(size,)) if b.name == constants else b for b in program.buffers)
    return replace(program, buffers=buffers, operations=operations), b"".join(
        data[a:b].ljust(b - a, b"\0") for a, b in kept
    )


def _read(program: NpuProgram, constants: str) -> set[Span]:
    """What each register reaches of the constants, from the first to the last byte, widened to whole grains."""
    found: set[Span] = set()
    for index, operation in enumerate(program.operations):
        for name, at in operation.addresses.values():
            if name == constants:
                found.add((at - at % GRAIN, at - at % GRAIN + GRAIN))
        for access in program.symbolic_accesses(index):
            for register, ranges in access.parts:
                if register is not None and len(ranges) and operation.addresses[register][0] == constants:
                    start, stop = int(ranges[0, 0]), int(ranges[-1, 1])
                    found.add((start - start % GRAIN, stop + -stop % GRAIN))
    return found
