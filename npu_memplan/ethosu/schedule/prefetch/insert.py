"""The copies of a schedule as transfers of the program.

Invariant: every reader of a constant that is copied reads the copy; all other operations stay what they are. What is
to begin inside a chain begins before it.
"""

from __future__ import annotations

from dataclasses import replace

from ....names import Names
from ...program.chains import chain_bounds
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
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
    of_piece: dict[int, str] = {}
    buffers = list(program.buffers)
    before: dict[int, list[NpuOperation]] = {}
    chains = chain_bounds(program.operations)
    for copy in copies:
        constant = timed.constants[copy.constant]
        name = of_piece[copy.constant] = names.unique(f"weights{len(of_piece)}")
        places[name] = copy.at
        buffers.append(NpuBuffer(name, constant.size_bytes, BufferRole.WEIGHTS, original_region=region))
        operator = program.operations[constant.readers[0]].operator
        before.setdefault(chains[copy.before][0], []).extend(constant.transfers(name, operator))
    operations: list[NpuOperation] = []
    for index, operation in enumerate(program.operations):
        operations += before.get(index, ())
        read = timed.reads.get(index)
        copied = read is not None and read in of_piece
        if reblocked and (index, copied) in timed.blocks:
            operation = replace(operation, registers={**operation.registers, **timed.blocks[index, copied]})
        if read is not None and copied:
            operation = timed.constants[read].read_by(operation, of_piece[read])
        operations.append(operation)
    if tuple(operations) == program.operations:
        return program, {}
    return replace(program, buffers=tuple(buffers), operations=tuple(operations)), places
