"""The copies of a schedule as transfers of the program.

Invariant: every reader of a constant that is copied reads the copy; all other operations stay what they are. What is
to begin inside a chain begins before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ....names import Names
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram, chain_bounds
from .schedules import Copy
from .timed_program import TimedProgram


def insert(
    timed: TimedProgram, copies: tuple[Copy, ...], region: int, reblocked: bool
) -> tuple[NpuProgram, dict[str, int]]:
    """The program with `copies`, and where their buffers are in the pool that is NPU region `region`.

    `reblocked`: kernels in the best blocks for where they read their constants; else in their own.
    """
    program = timed.program
    names = Names(b.name for b in program.buffers)
    places: dict[str, int] = {}
    copied: dict[int, tuple[str, int]] = {}
    buffers = list(program.buffers)
    before: dict[int, list[NpuOperation]] = {}
    chains = chain_bounds(program.operations)
    for copy in copies:
        constant = timed.constants[copy.constant]
        name = names.unique(f"weights{len(copied)}")
        copied[copy.constant] = name, 0
        places[name] = copy.at
        buffers.append(NpuBuffer(name, constant.size_bytes, BufferRole.WEIGHTS, original_region=region))
        operator = program.operations[constant.readers[0]].operator
        before.setdefault(chains[copy.before][0], []).extend(constant.transfers(name, operator))
    operations: list[NpuOperation] = []
    for index in range(len(program.operations)):
        operations += before.get(index, ())
        operations.append(with_constant_read(timed, index, copied, reblocked))
    if tuple(operations) == program.operations:
        return program, {}
    return replace(program, buffers=tuple(buffers), operations=tuple(operations)), places


def with_constant_read(
    timed: TimedProgram, index: int, copies: Mapping[int, tuple[str, int]], reblocked: bool
) -> NpuOperation:
    """Operation `index`, which reads its constant in a copy where `copies` has one: by constant, buffer and byte."""
    operation, read = timed.program.operations[index], timed.reads.get(index)
    copied = read is not None and read in copies
    if reblocked and (index, copied) in timed.blocks:
        operation = replace(operation, registers={**operation.registers, **timed.blocks[index, copied]})
    return timed.constants[read].read_by(operation, *copies[read]) if read is not None and copied else operation
