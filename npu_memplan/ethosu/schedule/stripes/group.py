"""Some successive operations of a program that are made part by part.

Invariant: the parts cover each operation once; buffers in `ring_bytes` are written and read by the group alone, and
hold the parts that are still to be read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ....problem import AllowedOverlap
from ...program.program import NpuOperation, NpuProgram
from ..prefetch.reads import ConstantBlock
from ..prefetch.slices import Slicer
from .channels import Deep, Inner
from .interleaved import InterleavedRows
from .order import Part, parts
from .rows import Sliced
from .tables import transfers


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Group(ABC):
    """Operations `first` to `last`."""

    first: int
    last: int
    size_bytes: int  # of everything alive meanwhile
    cycles: int
    overlaps: tuple[AllowedOverlap, ...] = ()
    kept: Mapping[int, ConstantBlock] = field(default_factory=dict)  # by operation of the program
    upwards: bool = False  # from the last row to the first

    def transfers(self, program: NpuProgram) -> tuple[NpuOperation, ...]:
        """Transfers of tables, which all come before the parts."""
        return tuple(program.operations[index] for index in transfers(program, self.first, self.last))

    @property
    @abstractmethod
    def rolling_buffer_bytes(self) -> Mapping[str, int]:
        """Bytes of the buffers that hold some parts only."""

    @abstractmethod
    def operations(self, copies: Mapping[int, str], slicer: Slicer | None) -> Iterator[NpuOperation]:
        """The parts in order. `copies`: buffers of what is kept; `slicer`: of the program, where weights are cut."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RowGroup(Group):
    """Rows at a time."""

    interleaved: InterleavedRows

    @property
    def layers(self) -> tuple[Sliced, ...]:
        """In program order."""
        return self.interleaved.layers

    @property
    def rolling_buffers(self) -> Mapping[str, int]:
        """Rows kept of buffers between the layers."""
        return self.interleaved.rolling_buffers

    @property
    def parts(self) -> tuple[Part, ...]:
        """The operations in order, with rows that count from the first."""
        if not self.upwards:
            return tuple(parts(self.interleaved.done))
        heights = [layer.output.height for layer in self.layers]
        return tuple(
            Part(p.member, (heights[p.member] - p.rows[1], heights[p.member] - p.rows[0]))
            for p in parts(self.interleaved.done)
        )

    @property
    def rolling_buffer_bytes(self) -> dict[str, int]:
        strides = {layer.output.buffer: layer.output.stride for layer in self.layers}
        return {name: rows * strides[name] for name, rows in self.rolling_buffers.items()}

    def operations(self, copies: Mapping[int, str], slicer: Slicer | None) -> Iterator[NpuOperation]:
        for part in self.parts:
            layer = self.layers[part.member]
            made = layer.part(part.rows, self.rolling_buffers)
            yield self.kept[layer.index].read_by(made, copies[layer.index]) if layer.index in self.kept else made


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ChannelGroup(Group):
    """`step` output channels at a time, all layers for some before the next: weights are read once, maps between hold
    so many channels.
    """

    layers: tuple[Deep, ...]
    step: int

    @property
    def rolling_buffer_bytes(self) -> dict[str, int]:
        return {name: made.slice_bytes(self.step) for name, made in inner_of(self.layers).items()}

    def operations(self, copies: Mapping[int, str], slicer: Slicer | None) -> Iterator[NpuOperation]:
        assert slicer is not None
        depth, inner = self.layers[0].depth, inner_of(self.layers)
        for start in range(0, depth, self.step):
            part = start, min(start + self.step, depth)
            for layer in self.layers:
                made = layer.part(part, inner, self.step)
                yield slicer.with_weights(made, layer.operation, part)


def inner_of(layers: Sequence[Deep]) -> Inner:
    """The maps between layers."""
    return {layer.output.buffer: layer.output for layer in layers[:-1]}
