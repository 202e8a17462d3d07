"""What it costs, in bytes and cycles, to make some successive operations some channels at a time.

Invariant: after the first operation that sums over channels, all are made of the same channels of what the group
makes; so no map between them is ever there in full, and no weight is read twice for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...program.program import BufferRole
from ...stream.isa import BRICK_CHANNELS
from ..prefetch.slices import Slicer
from ..shram import ceil_div, round_up
from .channels import Deep, DeepMap, Inner, deep
from .costs import Costs
from .group import ChannelGroup, inner_of
from .rows import Rows
from .tables import may_lie_beside, transfers

_ALIGNMENT = 16
_PARTS = 16  # most ways to share a depth that are looked at


class ChannelCascades:
    """Groups of one program. `sizes`: bytes that buffers count, `live`: from which to which operation."""

    def __init__(self, costs: Costs, sizes: Mapping[str, int], live: Mapping[str, Rows], slicer: Slicer) -> None:
        self.program, self._costs, self._sizes, self._live, self._slicer = costs.program, costs, sizes, live, slicer
        self._layers = [self._deep(index) for index in range(len(self.program.operations))]
        self._chains: dict[Rows, tuple[Deep, ...] | None] = {}
        self._least: dict[Rows, int | None] = {}
        self._groups: dict[tuple[int, int, int], ChannelGroup] = {}

    def _deep(self, index: int) -> Deep | None:
        found = deep(self.program, index)
        return found if found is not None and self._slicer.may_cut(found.operation) else None

    def chain(self, first: int, last: int) -> tuple[Deep, ...] | None:
        """The layers `first` to `last` if they can be made together, two at least."""
        if (first, last) not in self._chains:
            self._chains[first, last] = self._chain(first, last)
        return self._chains[first, last]

    def _chain(self, first: int, last: int) -> tuple[Deep, ...] | None:
        layers = [layer for layer in self._layers[first : last + 1] if layer is not None]
        moves = len(transfers(self.program, first, last))
        if self._layers[first] is None or self._layers[last] is None or len(layers) + moves <= last - first:
            return None
        if len(layers) < 2 or len({layer.depth for layer in layers}) > 1:
            return None
        made: dict[str, DeepMap] = {}
        for layer in layers:
            if layer.output.buffer in made or not layer.summed.isdisjoint(made):
                return None
            if any(view.buffer in made and not view.like(made[view.buffer]) for view in layer.inputs):
                return None
            made[layer.output.buffer] = layer.output
        inner = list(made.values())[:-1]
        read = {view.buffer for layer in layers for view in layer.inputs}
        together = all(view.buffer in read and self._is_inner(view, first, last) for view in inner)
        return tuple(layers) if together and may_lie_beside(self.program, range(first, last + 1)) else None

    def _is_inner(self, view: DeepMap, first: int, last: int) -> bool:
        """Whether a map that is made in the group is there for the group alone, in a buffer of its own."""
        life = self._live.get(view.buffer)
        is_map = self.program.buffer(view.buffer).role is BufferRole.FEATURE_MAP
        return is_map and view.is_whole and life is not None and first <= life[0] and life[1] <= last

    def steps(self, layers: Sequence[Deep]) -> list[int]:
        """Channels at a time that are worth looking at, most first."""
        grain, depth = BRICK_CHANNELS * self.program.accelerator.cores, layers[0].depth
        shares = {round_up(ceil_div(depth, parts), grain) for parts in range(2, _PARTS + 1)}
        return sorted((step for step in shares if step < depth), reverse=True)

    def group(self, layers: Sequence[Deep], step: int) -> ChannelGroup:
        """`layers` for `step` channels at a time."""
        first, last = layers[0].index, layers[-1].index
        if (first, last, step) not in self._groups:
            cycles = sum(self._cycles(layer, inner_of(layers), step) for layer in layers)
            size, made = self.size_bytes(layers, step), tuple(layers)
            self._groups[first, last, step] = ChannelGroup(
                first=first, last=last, size_bytes=size, cycles=cycles, layers=made, step=step
            )
        return self._groups[first, last, step]

    def size_bytes(self, layers: Sequence[Deep], step: int) -> int:
        """What `group` needs."""
        first, last, inner = layers[0].index, layers[-1].index, inner_of(layers)
        alive = [name for name, (begin, end) in self._live.items() if begin <= last and end >= first]
        sizes = (inner[name].slice_bytes(step) if name in inner else self._sizes[name] for name in alive)
        return sum(round_up(size, _ALIGNMENT) for size in sizes)

    def _cycles(self, layer: Deep, inner: Inner, step: int) -> int:
        whole, rest = divmod(layer.depth, step)
        cycles = whole * self._costs.channels(layer, step, inner, step)
        return cycles + (self._costs.channels(layer, rest, inner, step) if rest else 0)

    def fitting(self, first: int, last: int, limit_bytes: int) -> Iterator[ChannelGroup]:
        """Groups of all operations from `first` to `last` within the limit, in ever more parts."""
        layers = self.chain(first, last)
        for step in self.steps(layers) if layers else ():
            assert layers is not None
            if self.size_bytes(layers, step) <= limit_bytes:
                yield self.group(layers, step)

    def least_bytes(self, first: int, last: int) -> int | None:
        """Of the lowest slices; None where the operations cannot be made together."""
        if (first, last) not in self._least:
            layers = self.chain(first, last)
            steps = self.steps(layers) if layers else []
            self._least[first, last] = self.size_bytes(layers, steps[-1]) if layers and steps else None
        return self._least[first, last]
