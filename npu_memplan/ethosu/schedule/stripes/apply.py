"""A program with some of its operations made in stripes.

Invariant: the program computes the same outputs from the same inputs and constants; buffers that became rings keep
their names and lie in fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...program.program import BufferRole, NpuOperation, NpuProgram
from ...time import MemoryMap, default_memory_map
from ..blocks import Blocks
from ..regions import places
from .groups import Group


def apply(program: NpuProgram, groups: Sequence[Group], where: MemoryMap | None = None) -> NpuProgram:
    """`program` with `groups`, which are disjoint and in program order, made part by part.

    Parts get blocks of their own, the best in the memories of `where` (None: the NPU's default system).
    """
    operations: list[NpuOperation] = []
    cut: list[int] = []  # indices of parts
    sizes: dict[str, int] = {}
    done = 0
    for group in groups:
        operations += program.operations[done : group.first]
        for part in group.parts:
            cut.append(len(operations))
            operations.append(group.layers[part.member].part(part.rows, group.rings))
        sizes |= group.ring_bytes
        done = group.last + 1
    operations += program.operations[done:]
    buffers = tuple(
        replace(b, size_bytes=sizes[b.name], role=BufferRole.ROLLING) if b.name in sizes else b for b in program.buffers
    )
    made = NpuProgram(program.accelerator, buffers, tuple(operations), program.name)
    where = where or default_memory_map(program.accelerator)
    blocks, place = Blocks(program.accelerator, where), places(made, where)
    for index in cut:
        stripe = operations[index]
        found = blocks.fitted(stripe.placed(place, index)).registers
        operations[index] = replace(stripe, registers={r: found[r] for r in stripe.registers})
    return NpuProgram(program.accelerator, buffers, tuple(operations), program.name)
