"""Which constants kernels read as weights and scales, or as a small operand, and a program that reads them in place.

Invariant: `in_place` changes only where weights and scales are read: a copy of constants that its readers see whole is
gone, everything else of the program is untouched, transfers of tables included.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from ...program.program import BufferRole, NpuOperation, NpuProgram
from ...stream.fields import IFM2, SCALES, WEIGHTS
from ...stream.isa import Op, Register

STREAMS = (*WEIGHTS, *SCALES)
REGIONS = frozenset({IFM2.region, *(stream.region for stream in STREAMS)})  # registers: where constants are read
GRAIN = 16  # bytes; constants start and copies are multiples of it
_SMALL = 64  # bytes of an operand that is copied together with its neighbours
Span = tuple[int, int]  # first byte in the constants, and one past the last


@dataclass(frozen=True, slots=True)
class ConstantBlock:
    """Constants that are copied together to a buffer of their own, because the same kernels read them."""

    constants: str  # the buffer they are in
    spans: tuple[Span, ...]  # ascending, apart; each is one transfer
    readers: tuple[int, ...]  # operations, ascending

    @property
    def size_bytes(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    def inner(self, offset: int) -> int:
        """Where a byte of the constants is in the copy."""
        at = 0
        for start, stop in self.spans:
            if start <= offset < stop:
                return at + offset - start
            at += stop - start
        raise ValueError(f"byte {offset} of {self.constants} is not in {self.spans}")

    def transfers(self, copy: str, operator: int) -> Iterator[NpuOperation]:
        """The operations that fill buffer `copy`."""
        for start, stop in self.spans:
            places = {Register.DMA0_SRC: (self.constants, start), Register.DMA0_DST: (copy, self.inner(start))}
            yield NpuOperation(Op.DMA_START, 0, {Register.DMA0_LEN: stop - start}, places, operator)

    def read_by(self, operation: NpuOperation, copy: str, start: int = 0) -> NpuOperation:
        """`operation`, a reader, with a copy read at byte `start` of buffer `copy`."""
        addresses = dict(operation.addresses)
        for stream in STREAMS:
            if stream.base in addresses:  # a core without channels: its registers must name the same region
                has_bytes = operation.registers.get(stream.length, 0)
                addresses[stream.base] = copy, start + (self.inner(addresses[stream.base][1]) if has_bytes else 0)
        for base in IFM2.bases:
            if addresses.get(base, ("",))[0] == self.constants:
                addresses[base] = copy, start + self.inner(addresses[base][1])
        return replace(operation, addresses=addresses)


def in_place(program: NpuProgram) -> NpuProgram:
    """`program` without its copies of constants, as far as kernels can read what was copied where it was."""
    constants = {b.name for b in program.buffers if b.role is BufferRole.CONSTANTS}
    copied: dict[str, list[tuple[int, int, str, int]]] = {}  # buffer -> (start, stop, constants, byte), latest first
    operations: list[NpuOperation] = []
    needed: set[str] = set()  # buffers that are read otherwise
    skipped: set[str] = set()
    weights = {b.name for b in program.buffers if b.role is BufferRole.WEIGHTS}
    for index, operation in enumerate(program.operations):
        if operation.op is Op.DMA_START:
            (source, at), (target, to) = operation.addresses[Register.DMA0_SRC], operation.addresses[Register.DMA0_DST]
            if target in weights and source in constants:
                stop = to + operation.registers[Register.DMA0_LEN]
                copied.setdefault(target, []).insert(0, (to, stop, source, at))
                skipped.add(target)
                continue
        moved = _moved(operation, copied, _ends(program, index, copied))
        needed.update(name for name, _ in moved.addresses.values() if name in weights)
        operations.append(moved)
    if skipped & needed:
        return program  # a copy that is read in a way not known here: all stay
    used = {name for operation in operations for name, _ in operation.addresses.values()}
    buffers = tuple(b for b in program.buffers if b.role.is_parameter or b.name in used or b.name not in weights)
    return replace(program, buffers=buffers, operations=tuple(operations)) if skipped else program


def _ends(program: NpuProgram, index: int, buffers: Container[str]) -> dict[Register, int]:
    """Address registers through which an operation reads constants in `buffers`, and where what they read ends."""
    operation, ends = program.operations[index], {}
    for stream in STREAMS:
        name, start = operation.addresses.get(stream.base, ("", 0))
        if name in buffers:
            ends[stream.base] = start + operation.registers.get(stream.length, 0)
    operand = IFM2.bases[0]
    name, _ = operation.addresses.get(operand, ("", 0))
    if name in buffers:
        ends[operand] = max(spans[-1][1] for found, spans, _ in program.accesses(index) if found == name)
    return ends


def _moved(
    operation: NpuOperation, copied: dict[str, list[tuple[int, int, str, int]]], ends: Mapping[Register, int]
) -> NpuOperation:
    """`operation` with what it reads of copies read from their source."""
    addresses = dict(operation.addresses)
    for base, stop in ends.items():
        buffer, start = addresses[base]
        # the latest copy that touches these bytes must have all of them
        latest = next((c for c in copied[buffer] if c[0] < max(stop, start + 1) and start < c[1]), None)
        if latest is not None and latest[0] <= start and stop <= latest[1]:
            addresses[base] = (latest[2], latest[3] + start - latest[0])
    return replace(operation, addresses=addresses) if addresses != operation.addresses else operation


def constant_blocks(program: NpuProgram) -> tuple[ConstantBlock, ...]:
    """What can be copied, by its first reader."""
    sizes = {b.name: b.size_bytes for b in program.buffers if b.role is BufferRole.CONSTANTS}
    readers: dict[tuple[str, tuple[Span, ...]], list[int]] = {}
    for index, operation in enumerate(program.operations):
        found = [
            (*operation.addresses[stream.base], operation.registers.get(stream.length, 0))
            for stream in STREAMS
            if stream.base in operation.addresses
        ]
        holders = {name for name, _, length in found if length}
        if len(holders) != 1 or not holders <= sizes.keys():
            continue
        (holder,) = holders
        spans = joined((start, start + length + -length % GRAIN) for _, start, length in found if length)
        if spans[-1][1] <= sizes[holder] and not any(start % GRAIN for start, _ in spans):
            readers.setdefault((holder, spans), []).append(index)
    constants = [ConstantBlock(holder, spans, tuple(indices)) for (holder, spans), indices in readers.items()]
    return tuple(sorted((*constants, *_operands(program, sizes)), key=lambda constant: constant.readers))


def _operands(program: NpuProgram, sizes: Mapping[str, int]) -> Iterator[ConstantBlock]:
    """Small constants that kernels read as their second operand, one from the other: each costs a memory's latency."""
    found: dict[str, list[tuple[Span, int]]] = {}
    for index, operation in enumerate(program.operations):
        holder, start = operation.addresses.get(IFM2.bases[0], ("", 0))
        if holder not in sizes:
            continue
        stop = _ends(program, index, sizes)[IFM2.bases[0]]
        stop += -stop % GRAIN
        if not start % GRAIN and stop - start <= _SMALL and stop <= sizes[holder]:
            found.setdefault(holder, []).append(((start, stop), index))
    for holder, reads in found.items():
        for span in joined(span for span, _ in reads):
            inside = sorted(index for (start, _), index in reads if span[0] <= start < span[1])
            yield ConstantBlock(holder, (span,), tuple(inside))


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The same bytes in as few spans as there can be, ascending."""
    found: list[Span] = []
    for start, stop in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(stop, found[-1][1]))
        else:
            found.append((start, stop))
    return tuple(found)
