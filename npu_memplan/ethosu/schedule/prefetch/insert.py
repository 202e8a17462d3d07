"""The copies of a schedule as transfers of the program.

Invariant: every reader of a constant that is copied reads the copy; all other operations stay what they are. What is
to begin inside a chain begins before it.
"""

from __future__ import annotations

from dataclasses import replace

from ....names import Names
from ...program.chains import chain_bounds
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ...stream.groups import IFM2
from ...stream.isa import Op, Register
from .reads import STREAMS, ConstantBlock
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
        before.setdefault(chains[copy.before][0], []).extend(_transfers(constant, name, operator))
    operations: list[NpuOperation] = []
    for index, operation in enumerate(program.operations):
        operations += before.get(index, ())
        read = timed.reads.get(index)
        copied = read is not None and read in of_piece
        if reblocked and (index, copied) in timed.blocks:
            operation = replace(operation, registers={**operation.registers, **timed.blocks[index, copied]})
        if read is not None and copied:
            operation = read_from(operation, timed.constants[read], of_piece[read])
        operations.append(operation)
    if tuple(operations) == program.operations:
        return program, {}
    return replace(program, buffers=tuple(buffers), operations=tuple(operations)), places


def _transfers(constant: ConstantBlock, name: str, operator: int) -> list[NpuOperation]:
    made = []
    for start, stop in constant.spans:
        addresses = {Register.DMA0_SRC: (constant.constants, start), Register.DMA0_DST: (name, constant.inner(start))}
        made.append(NpuOperation(Op.DMA_START, 0, {Register.DMA0_LEN: stop - start}, addresses, operator))
    return made


def read_from(operation: NpuOperation, constant: ConstantBlock, name: str, start: int = 0) -> NpuOperation:
    """`operation`, a reader of `constant`, with a copy of it read at byte `start` of buffer `name`."""
    addresses = dict(operation.addresses)
    for stream in STREAMS:
        if stream.base in addresses and operation.registers.get(stream.length, 0):
            addresses[stream.base] = (name, start + constant.inner(addresses[stream.base][1]))
        elif stream.base in addresses:  # a core without channels: its registers must name the same region
            addresses[stream.base] = (name, start)
    for base in IFM2.bases:
        if base in addresses:
            addresses[base] = (name, start + constant.inner(addresses[base][1]))
    return replace(operation, addresses=addresses)
