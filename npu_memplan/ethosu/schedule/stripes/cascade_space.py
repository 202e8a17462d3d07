"""What it costs, in bytes and cycles, to make some successive operations in stripes.

Invariant: bytes are those of `turns`; the planner, which has all overlaps and everything outside the program, has the
last word. Cycles are the estimate's, operation by operation.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from ...program.program import NpuProgram
from ...stream.isa import Upscale
from ...time import MemoryMap, default_memory_map
from ..prefetch.reads import ConstantBlock
from ..prefetch.slices import Slicer
from ..shram import round_up
from .by_channels import ChannelCascades
from .costs import Costs
from .group import ChannelGroup, Group, RowGroup
from .interleaved import ALIGNMENT, Chains, InterleavedRows
from .order import RowOrder, fewest_cuts
from .rows import Sliced


@dataclass(frozen=True, slots=True)
class _Worth:
    """What keeping the weights of operation `index` takes and wins."""

    index: int
    kept: ConstantBlock
    size_bytes: int
    cycles: int


class CascadeSpace:
    """Groups of one program.

    `io_in_pools`: its inputs and outputs count; `reuse_inputs`: and their bytes may be reused once they were read;
    `memory_map`: the memories, of which the last region's has the feature maps; `slicer`: of the program, without which
    it is cut by rows alone; `streamed`: its first operation stands for the caller, and is always in a group.
    """

    def __init__(
        self,
        program: NpuProgram,
        *,
        io_in_pools: bool = True,
        reuse_inputs: bool = True,
        memory_map: MemoryMap | None = None,
        slicer: Slicer | None = None,
        streamed: bool = False,
    ) -> None:
        self.program, self.slicer = program, slicer
        self.chains = Chains(program, io_in_pools, reuse_inputs, streamed)
        self.sizes, self.live = self.chains.sizes, self.chains.live
        self._costs: list[Costs] = []  # of all memories
        self.plans: dict[Any, Any] = {}  # by buffers, overlaps and the plan's budget
        self._weigh(memory_map or default_memory_map(program.accelerator), None)

    def _weigh(self, memory_map: MemoryMap, again: MemoryMap | None) -> None:
        self._again = again and self._costs_in(again)
        self.may_keep = again is not None or memory_map != memory_map.with_constants_near()  # to gain by it
        self.costs = self._costs_in(memory_map)
        self.by_channels: ChannelCascades | None = (
            ChannelCascades(self.costs, self.sizes, self.live, self.slicer) if self.slicer else None
        )
        self._worth: dict[RowGroup, list[_Worth]] = {}
        self._keeping: dict[tuple[RowGroup, frozenset[int]], RowGroup] = {}
        self._groups: dict[InterleavedRows, RowGroup] = {}
        self.cheapest: dict[tuple[int, int, int], RowGroup | None] = {}  # that were chosen: (first, last, limit)
        self.measured: dict[tuple[tuple[Group, ...], int | None], Any] = {}  # of groups chosen, and the plan's budget

    def _costs_in(self, memory_map: MemoryMap) -> Costs:
        found = next((costs for costs in self._costs if costs.memory_map == memory_map), None)
        if found is None:
            found = Costs(self.program, memory_map)
            self._costs.append(found)
        return found

    def among(self, memory_map: MemoryMap, again: MemoryMap | None = None) -> CascadeSpace:
        """The same in other memories, whose turns are known to both. `again`: from which memories come constants that
        parts read once more, if not from `memory_map`.
        """
        found = copy(self)
        found._weigh(memory_map, again)
        return found

    def by_rows(self) -> CascadeSpace:
        """The same by rows alone; what is known is known to both."""
        found = copy(self)
        found.by_channels = None
        return found

    def whole_cycles(self, index: int) -> int:
        return self.costs.whole(index)

    def least_cycles(self) -> int:
        """Of all operations, each made at once, with its constants where they are or copied near for it."""
        total = 0
        for index in range(len(self.program.operations)):
            whole, kept = self.whole_cycles(index), self.costs.kept(index)
            total += min(whole, self.costs.whole(index, near=True) + self.costs.copy(kept)) if kept else whole
        return total

    def least_bytes(self, first: int, last: int) -> int:
        """No way to make `first` to `last` together needs less."""
        channels = self.by_channels and self.by_channels.least_bytes(first, last)
        return min(self.chains.least_bytes(first, last), channels or sum(self.sizes.values()))

    def group(self, layers: tuple[Sliced, ...], turns: RowOrder, upwards: bool = False) -> RowGroup:
        """`layers` made in `turns`; `upwards`: rows count from the last one."""
        return self._interleaved_rows(self.chains.interleaved(layers, turns, upwards))

    def _interleaved_rows(self, interleaved: InterleavedRows) -> RowGroup:
        if interleaved not in self._groups:
            self._groups[interleaved] = RowGroup(
                first=interleaved.first,
                last=interleaved.last,
                size_bytes=interleaved.size_bytes,
                overlaps=interleaved.overlaps,
                cycles=sum(self._cycles_of(interleaved, position) for position in range(len(interleaved.layers))),
                interleaved=interleaved, upwards=interleaved.upwards,
            )  # fmt: skip
        return self._groups[interleaved]

    def _cycles_of(self, interleaved: InterleavedRows, position: int, near: bool = False) -> int:
        """Estimated cycles of all parts of a layer, most of which have as many rows as others."""
        index, heights = interleaved.layers[position].index, interleaved.heights[position]
        cycles = sum(count * self.costs.rows(index, rows, near) for rows, count in heights)
        kept = self.costs.kept(index) if self._again and not near else None
        again = sum(count for _, count in heights) - 1
        return cycles + (self._again.copy(kept) * again if self._again and kept else 0)

    def keeping(self, group: RowGroup, spare_bytes: int) -> RowGroup:
        """`group` with weights kept in at most `spare_bytes`, those first that win most cycles with a byte."""
        if not self.may_keep:
            return group
        if group not in self._worth:
            self._worth[group] = sorted(self._worth_keeping(group), key=lambda w: (-w.cycles / w.size_bytes, w.index))
        chosen: list[_Worth] = []
        for worth in self._worth[group]:
            if worth.size_bytes <= spare_bytes:
                spare_bytes -= worth.size_bytes
                chosen.append(worth)
        key = (group, frozenset(worth.index for worth in chosen))
        if chosen and key not in self._keeping:
            self._keeping[key] = replace(
                group,
                kept={worth.index: worth.kept for worth in chosen},
                size_bytes=group.size_bytes + sum(worth.size_bytes for worth in chosen),
                cycles=group.cycles - sum(worth.cycles for worth in chosen),
            )
        return self._keeping.get(key, group)

    def _worth_keeping(self, group: RowGroup) -> Iterator[_Worth]:
        for position, layer in enumerate(group.layers):
            kept = self.costs.kept(layer.index)
            if kept is not None:
                near = self._cycles_of(group.interleaved, position, near=True) + self.costs.copy(kept)
                won = self._cycles_of(group.interleaved, position) - near
                if won > 0:
                    yield _Worth(layer.index, kept, round_up(kept.size_bytes, ALIGNMENT), won)

    def even(self, layers: tuple[Sliced, ...], rows: int) -> RowGroup:
        """`layers` in turn, the last of them `rows` rows at a time."""
        return self._interleaved_rows(self.chains.even(layers, rows))

    def within(self, layers: tuple[Sliced, ...], rows: int, limit_bytes: int) -> RowGroup | None:
        """The same if it needs no more than the limit."""
        interleaved = self.chains.even(layers, rows)
        return (
            self._interleaved_rows(interleaved)
            if interleaved.may_fit(limit_bytes) and interleaved.size_bytes <= limit_bytes
            else None
        )

    def fitting(self, layer: Sliced, limit_bytes: int) -> RowGroup | None:
        """One layer in the fewest stripes with which no more than `limit_bytes` are alive; None: it cannot be."""
        index, second = layer.index, layer.output.buffer
        best: RowGroup | None = None
        for source in layer.inputs:
            if not self.chains.may_overlap(source.buffer, second, index, index):
                continue
            others = sum(self.sizes[n] for n in self.chains.alive(index, index) if n not in (source.buffer, second))
            below = (limit_bytes - others - self.sizes[source.buffer]) // ALIGNMENT * ALIGNMENT
            for grain in sorted({1, self.costs.micro_rows}) if below >= 0 else ():
                cuts = fewest_cuts(layer, source, -below, grain)
                if cuts is not None:
                    found = self.group((layer,), cuts)
                    if found.size_bytes <= limit_bytes and (best is None or found.cycles < best.cycles):
                        best = found
        return best

    def same(self, group: Group) -> Group:
        """A group of the same program in other memories, in these; without weights that it keeps."""
        if isinstance(group, RowGroup):
            return self._interleaved_rows(group.interleaved)
        assert isinstance(group, ChannelGroup)
        assert self.by_channels is not None
        return self.by_channels.group(group.layers, group.step)

    def turned(self, group: Group) -> Group:
        """The same group upwards; of channels, which have no direction, and of rows that the caller brings, itself."""
        if not isinstance(group, RowGroup) or (self.chains.streamed and group.first == 0):
            return group
        if any(layer.upscale is Upscale.TRANSPOSE for layer in group.layers):
            return group  # whose rows of zeros lie elsewhere then
        upwards = self.chains.interleaved(group.layers, group.interleaved.turns, upwards=True)
        return replace(group, interleaved=upwards, overlaps=upwards.overlaps, upwards=True)
