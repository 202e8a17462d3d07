"""Look-up tables that are loaded some kernels before they are read, while the port is idle.

Invariant: a table is loaded after the last kernel that reads what lay in its bytes, and before the first that reads it;
tables are loaded in the order in which they were, and not before an operation that may wait for rows of a streamed
input: what runs on the NPU meanwhile may take their place.
"""

from __future__ import annotations

from dataclasses import replace

from ...program.program import NpuProgram, goes_on
from ..stripes.tables import loaded_table, read_table, share_bytes

_AHEAD = 4  # kernels: the port is idle before one of so many, or it is busy all the time


def loaded_early(program: NpuProgram) -> NpuProgram:
    """`program` with its tables loaded earlier; as it is where operations without a table lose those that are there."""
    operations = list(program.operations)
    if not program.accelerator.lut_reserved:
        return program
    for index, operation in enumerate(program.operations):
        table = loaded_table(program, operation)
        at = index
        while table is not None and not operation.input_rows[1] and at > max(0, index - _AHEAD):
            before = operations[at - 1]
            read = read_table(before)
            if loaded_table(program, before) is not None or (read is not None and share_bytes(table, read)):
                break
            if before.input_rows[1]:
                break
            at -= 1
        while 0 < at < index and goes_on(operations[at - 1]):  # nothing comes between the operations of a chain
            at += 1
        if at < index:
            operations.insert(at, operations.pop(index))
    if tuple(operations) == program.operations:
        return program
    return replace(program, operations=tuple(operations))
