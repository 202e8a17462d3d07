"""A program with some of its operations made in stripes.

Invariant: the program computes the same outputs from the same inputs and constants; buffers that became rolling buffers
keep their names and are in fewer bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ....names import Names
from ...program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram
from ...time import default_memory_map
from ..blocks import Blocks
from ..prefetch.slices import Slicer
from ..regions import places
from .group import ChannelGroup, Group


def copy_names(program: NpuProgram, groups: Sequence[Group]) -> dict[int, str]:
    """Names of the buffers in which groups keep weights, by operation of `program`."""
    names = Names(b.name for b in program.buffers)
    return {index: names.unique(f"{program.name}_weights") for group in groups for index in group.kept}


def apply(
    program: NpuProgram, groups: Sequence[Group], blocks: Blocks | None = None, slicer: Slicer | None = None
) -> NpuProgram:
    """`program` with `groups`, which are disjoint and in program order, made part by part.

    Parts get `blocks` of their own (None: the best in the NPU's default system). `slicer` of the program makes the
    weights of channels; it has the constants that the result reads.
    """
    operations: list[NpuOperation] = []
    cut: list[int] = []  # indices of parts
    sizes: dict[str, int] = {}
    near: list[NpuBuffer] = []  # weights that are kept
    copies = copy_names(program, groups)
    done = 0
    for group in groups:
        operations += program.operations[done : group.first]
        operations += group.transfers(program)
        for index, kept in group.kept.items():
            operations += kept.transfers(copies[index], program.operations[index].operator)
            near.append(NpuBuffer(copies[index], kept.size_bytes, BufferRole.WEIGHTS))
        start = len(operations)
        operations += group.operations(copies, slicer)
        cut += range(start, len(operations))
        sizes |= group.rolling_buffer_bytes
        done = group.last + 1
    operations += program.operations[done:]
    rolling_buffers = (
        b.name in sizes and replace(b, size_bytes=sizes[b.name], role=BufferRole.ROLLING) for b in program.buffers
    )
    buffers = (
        *(rolling_buffer or b for rolling_buffer, b in zip(rolling_buffers, program.buffers, strict=True)),
        *near,
    )
    cut_up = NpuProgram(program.accelerator, buffers, tuple(operations), program.name)
    blocks = blocks or Blocks(program.accelerator, default_memory_map(program.accelerator))
    place = places(cut_up, blocks.memory_map)
    for index in cut:
        stripe = operations[index]
        found = blocks.fitted(stripe.place(place, index)).registers
        operations[index] = replace(stripe, registers={r: found[r] for r in stripe.registers})
    made = replace(cut_up, operations=tuple(operations))
    return slicer.grown(made) if slicer and any(isinstance(group, ChannelGroup) for group in groups) else made
