"""The exact bytes that an operation touches, for the checks of waits and of BLOCKDEP, and which kernels are one.

Invariant: all is derived from the model's own reading of the registers and nothing else, so that it can contradict what
placed the waits. Kernels that are chained run as one: their blocks follow one another, and what is between has no
address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.isa import Register

from ..arithmetic.rescale import Int64
from ..spec.feature_maps import InputSpec, OutputSpec, Piece
from ..spec.operations import DmaSpec, ElementwiseSpec, SumSpec
from ..spec.stream import DecodedStep, DecodedStream
from ..spec.u85 import ResizeSpec

Kernel = SumSpec | ElementwiseSpec | ResizeSpec


def input_specs(spec: Kernel) -> Iterator[InputSpec]:
    return (found for found in spec.inputs if found.layout is not None and found.layout.chain < 0)


def is_by_element(spec: Kernel, operand: InputSpec) -> bool:
    """Read element by element, broadcast axes aside; else through the kernel's window."""
    return isinstance(spec, ElementwiseSpec) or (isinstance(spec, SumSpec) and operand is spec.loaded)


def is_continued(step: DecodedStep) -> bool:
    """The kernel's output stays in a chaining buffer: the next one is part of it."""
    return not isinstance(step.spec, DmaSpec) and step.spec.output.layout.chain >= 0


def chain_groups(steps: Iterable[DecodedStep]) -> Iterator[list[DecodedStep]]:
    """Kernels and transfers, those of a chain together."""
    group: list[DecodedStep] = []
    for step in steps:
        if step.is_dma:
            yield [step]
            continue
        group.append(step)
        if not is_continued(step):
            yield group
            group = []
    if group:
        yield group


INTERNAL = 8  # the NPU's internal memory, as a region number after 0..7
_SLOT_BYTES = 256  # from one look-up table to the next


@dataclass(frozen=True, slots=True)
class Grid:
    """`start + i * stride + ...` for all indices, each `run` bytes long."""

    start: int
    run: int
    axes: tuple[tuple[int, int], ...]  # (count, stride in bytes), outermost first

    @property
    def stop(self) -> int:
        return self.start + sum((n - 1) * stride for n, stride in self.axes) + self.run

    def starts(self) -> NDArray[np.int64]:
        address = np.array([self.start], np.int64)
        for count, stride in self.axes:
            address = (address[:, None] + np.arange(count, dtype=np.int64) * stride).ravel()
        return address

    @staticmethod
    def merge_axes(start: int, shape: Sequence[int], strides: Sequence[int], element: int) -> Grid:
        """Merge contiguous inner axes."""
        run = element
        axes = list(zip(shape, strides, strict=True))
        while axes and (axes[-1][1] == run or axes[-1][0] == 1):
            run *= axes.pop()[0]
        return Grid(start, run, tuple(a for a in axes if a[0] > 1))


@dataclass(frozen=True, slots=True)
class Access:
    """Bytes of one region, with the name of the register group that addresses them."""

    name: str
    region: int
    grids: tuple[Grid, ...]

    @property
    def byte_bounds(self) -> tuple[int, int]:
        return min(g.start for g in self.grids), max(g.stop for g in self.grids)

    def first_common(self, other: Access) -> int | None:
        """The lowest byte both touch, None when there is none."""
        if self.region != other.region or not self.grids or not other.grids:
            return None
        (a0, a1), (b0, b1) = self.byte_bounds, other.byte_bounds
        low, high = max(a0, b0), min(a1, b1)
        if low >= high:
            return None
        (mine_start, mine_stop), (start, stop) = self._touched_intervals(low, high), other._touched_intervals(low, high)
        # The first of the other's intervals that ends after the start of each of mine.
        candidate = np.searchsorted(stop, mine_start, side="right")
        inside = candidate < len(start)
        mine_start, mine_stop, candidate = mine_start[inside], mine_stop[inside], candidate[inside]
        meets = start[candidate] < mine_stop
        if not meets.any():
            return None
        return int(np.maximum(mine_start, start[candidate])[meets].min())

    def _touched_intervals(self, low: int, high: int) -> tuple[Int64, Int64]:
        """Starts and stops of what is touched within [low, high): ascending, disjoint, not empty."""
        starts = [grid.starts() for grid in self.grids]
        begin = np.concatenate(starts)
        end = np.concatenate([s + grid.run for s, grid in zip(starts, self.grids, strict=True)])
        near = (begin < high) & (end > low)
        begin, end = np.maximum(begin[near], low), np.minimum(end[near], high)
        order = np.argsort(begin, kind="stable")
        begin, end = begin[order], np.maximum.accumulate(end[order])
        first = np.ones(len(begin), np.bool_)
        first[1:] = begin[1:] > end[:-1]
        last = np.append(first[1:], True)[: len(begin)]
        return begin[first], end[last]


def of_pieces(name: str, region: int, pieces: Iterable[Piece], element: int) -> Access:
    return Access(name, region, tuple(Grid.merge_axes(p.start, p.shape, p.strides, element) for p in pieces))


@dataclass(frozen=True, slots=True)
class Footprint:
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]

    def find_conflict(self, later: Footprint) -> tuple[str, Access, Access, int] | None:
        """How `later` depends on this one being finished: (kind, mine, its, first common byte)."""
        for kind, mine, its in (
            ("reads what it writes", self.writes, later.reads),
            ("overwrites what it reads", self.reads, later.writes),
            ("overwrites what it writes", self.writes, later.writes),
        ):
            for a in mine:
                for b in its:
                    at = a.first_common(b)
                    if at is not None:
                        return kind, a, b, at
        return None


def step_footprint(step: DecodedStep, accelerator: Architecture) -> Footprint:
    spec = step.spec
    if isinstance(spec, DmaSpec):
        sides = []
        for side in (spec.source, spec.destination):
            grid = Grid.merge_axes(side.start, side.touched_extent(spec.shape), (*side.strides, 1), 1)
            sides.append((Access(side.name, INTERNAL if side.internal else side.region, (grid,)),))
        return Footprint(sides[0] + _index_accesses(spec), sides[1])
    output = spec.output
    reads = [of_pieces(o.name, o.map.region, o.map.map_pieces(*o.shape), o.dtype.itemsize) for o in input_specs(spec)]
    if isinstance(spec, SumSpec):
        spans = [span for span in spec.weights + spec.scales if span.length]
        reads += [Access(span.name, span.region, (Grid(span.start, span.length, ()),)) for span in spans]
    written = of_pieces(
        "OFM", output.layout.region, output.layout.map_pieces(*output.stored_shape), output.dtype.itemsize
    )
    writes = [written]
    scratch = internal_scratch(step, accelerator)
    if scratch is not None:
        writes.append(Access("working memory", INTERNAL, (Grid(scratch[0], scratch[1] - scratch[0], ()),)))
    lookup = table_bytes(output, accelerator)
    if lookup is not None:
        reads.append(Access("LUT", INTERNAL, (Grid(lookup[0], lookup[1] - lookup[0], ()),)))
    return Footprint(tuple(reads), tuple(writes))


def _index_accesses(spec: DmaSpec) -> tuple[Access, ...]:
    index, (planes, rows, _) = spec.index, spec.shape
    if index is None:
        return ()
    grid = Grid.merge_axes(index.start, (planes, 4 * rows), (index.plane_stride, 1), 1)
    return (Access("DMA0_IDX", index.region, (grid,)),)


def join_footprints(first: Footprint, second: Footprint) -> Footprint:
    """Everything that two operations, which run as one, read and write."""
    return Footprint(first.reads + second.reads, first.writes + second.writes)


def table_bytes(output: OutputSpec, accelerator: Architecture) -> tuple[int, int] | None:
    """Internal bytes [start, stop) of the look-up table that a kernel reads."""
    if not output.lut_bytes:
        return None
    start = accelerator.lut_address + _SLOT_BYTES * output.lut_slot
    return start, start + output.lut_bytes


def internal_scratch(step: DecodedStep, accelerator: Architecture) -> tuple[int, int] | None:
    """Internal bytes [start, stop) of the LUT slots that a kernel of 32 or 64 MACs without a table uses."""
    spec = step.spec
    if accelerator.lut_reserved or isinstance(spec, DmaSpec) or spec.output.lut_bytes:
        return None
    register = Register.AB_START
    if isinstance(spec, ElementwiseSpec):
        if spec.second is None or spec.second.layout is None:
            return None
        register = Register.IFM2_IB_START
    start = max(step.registers.raw_value(register) * 1024, accelerator.lut_address)
    stop = accelerator.shram_kib * 1024
    return (start, stop) if start < stop else None


def region_extents(program: DecodedStream) -> dict[int, int]:
    """Region (0 to 7) -> one past the highest byte that the stream touches in it."""
    found: dict[int, int] = {}
    for step in program.steps:
        mine = step_footprint(step, program.accelerator)
        for access in (*mine.reads, *mine.writes):
            if access.region != INTERNAL and access.grids:
                found[access.region] = max(found.get(access.region, 0), access.byte_bounds[1])
    return found
