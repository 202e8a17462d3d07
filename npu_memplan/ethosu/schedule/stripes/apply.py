"""A program with some of its operations made in stripes.

Invariant: the program computes the same outputs from the same inputs and constants; buffers that became rings keep
their names and lie in fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...program.program import BufferRole, NpuOperation, NpuProgram
from .groups import Group
from .reblock import reblocked


def apply(program: NpuProgram, groups: Sequence[Group]) -> NpuProgram:
    """`program` with `groups`, which are disjoint and in program order, made part by part."""
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
    for index in cut:
        operations[index] = reblocked(made, index)
    return NpuProgram(program.accelerator, buffers, tuple(operations), program.name)
