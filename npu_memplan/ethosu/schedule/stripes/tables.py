"""Look-up tables of operations that are interleaved: all are loaded before the first of them.

Invariant: an operation reads the table that it read in the order of the program: no two that are interleaved have
tables in the same bytes, and no table is loaded over one that an operation between still reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...program.access import lut_span
from ...program.program import BufferRole, NpuOperation, NpuProgram
from ...stream.decode import Operation
from ...stream.isa import Op, Register


def transfers(program: NpuProgram, first: int, last: int) -> tuple[int, ...]:
    """Indices of the transfers of tables among operations `first` to `last`."""
    found = (index for index in range(first, last + 1) if loaded_table(program, program.operations[index]) is not None)
    return tuple(found)


def may_lie_beside(program: NpuProgram, operations: Sequence[int]) -> bool:
    loaded: list[range] = []
    read: list[range] = []
    for index in operations:
        operation = program.operations[index]
        table = loaded_table(program, operation)
        if table is not None:
            if any(share_bytes(table, other) for other in (*loaded, *read)):
                return False
            loaded.append(table)
        elif (table := read_table(operation)) is not None:
            read.append(table)
    # without a memory of their own, tables do not survive operations that read none
    return not (loaded or read) or len(operations) == 1 or program.accelerator.lut_reserved


def loaded_table(program: NpuProgram, operation: NpuOperation) -> range | None:
    """Bytes of the tables' memory that an operation loads."""
    if operation.op is not Op.DMA_START:
        return None
    name, start = operation.addresses[Register.DMA0_DST]
    if program.buffer(name).role is not BufferRole.LUT:
        return None
    return range(start, start + operation.registers[Register.DMA0_LEN])


def read_table(operation: NpuOperation) -> range | None:
    """Bytes of the tables' memory that an operation reads."""
    if operation.op is Op.DMA_START:
        return None
    found = lut_span(Operation(operation.op, operation.parameter, operation.registers, language=operation.language))
    return None if found is None else range(found[0], sum(found))


def share_bytes(a: range, b: range) -> bool:
    return a.start < b.stop and b.start < a.stop
