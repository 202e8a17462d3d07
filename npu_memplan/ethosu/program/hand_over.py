"""What NPU calls leave in the arena for later ones, without the file's saying so, as tensors.

Invariant: afterwards every byte of the arena that a call reads before it writes it is one of its arguments, if earlier
calls wrote it; calls are otherwise as they were. Vela cuts a network where it leaves operators to the CPU, and lists
as inputs and outputs what these operators touch. What goes from one part of the NPU's to another is in the arena only,
perhaps in pieces that several calls write (the slices of a concatenation): that is one tensor, which the first of
them makes and the others update.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ...models.network import CpuOperator, Network
from ...models.tensor import Tensor
from ...models.vela import HeldBytes, NpuCall
from .access import accesses
from .ranges import Ranges, merge_ranges, run
from .runs import operations_of
from .webs import ALIGNMENT, NOBODY, Writers

_ARENAS = (1, 2)
_OTHERS = -2  # owner of what is no NPU call's
_OWN = 0  # any owner, where only the call itself counts


@dataclass(eq=False, slots=True)
class _HandOver:
    """Bytes `[start, stop)` of a region; which of them each writer left there, by call; and who reads them."""

    region: int
    start: int
    stop: int
    written: dict[int, Ranges] = field(default_factory=dict)
    readers: list[int] = field(default_factory=list)

    def holds(self, memory: Writers) -> bool:
        """Whether all that was written is still there."""
        return all(memory.readers_see(ranges) == {writer} for writer, ranges in self.written.items())


def with_hand_overs(network: Network) -> Network:
    """`network` with a tensor for each hand-over; itself where there is none."""
    found = _hand_overs(network) if len(network.npu_calls) > 1 else []
    if not found:
        return network
    tensors = list(network.tensors)
    calls = {call.index: call for call in network.npu_calls}
    for hand_over in found:
        index = len(tensors)
        size = hand_over.stop - hand_over.start
        name = f"hand_over_{min(hand_over.written)}_{hand_over.start}"
        tensors.append(Tensor(index, name, (size,), "uint8", arena_offset=hand_over.start))
        for number in sorted({*hand_over.written, *hand_over.readers}):
            calls[number] = _with_part(calls[number], hand_over, index)
    operators = tuple(calls[o.index] if isinstance(o, NpuCall) else o for o in network.operators)
    return replace(network, tensors=tuple(tensors), operators=operators)


def _with_part(call: NpuCall, hand_over: _HandOver, tensor: int) -> NpuCall:
    before = merge_ranges(ranges for writer, ranges in hand_over.written.items() if writer < call.index)
    after = merge_ranges(ranges for writer, ranges in hand_over.written.items() if writer <= call.index)
    part = HeldBytes(_pairs(before), _pairs(after), updated=call.index in hand_over.written and len(before) > 0)
    place = ((hand_over.region, hand_over.start),)
    call = replace(call, parts={**call.parts, tensor: part})
    if len(before):
        return replace(call, inputs=(*call.inputs, tensor), input_addresses=(*call.input_addresses, *place))
    return replace(call, outputs=(*call.outputs, tensor), output_addresses=(*call.output_addresses, *place))


def _pairs(ranges: Ranges) -> tuple[tuple[int, int], ...]:
    return tuple((int(a), int(b)) for a, b in ranges.tolist())


def _hand_overs(network: Network) -> list[_HandOver]:
    memory = {region: Writers() for region in _ARENAS}
    found: list[_HandOver] = []
    for operator in network.operators:
        if isinstance(operator, CpuOperator):
            for index in operator.outputs:
                tensor = network.tensors[index]
                if tensor.arena_offset >= 0 and tensor.size_bytes:
                    memory[1].write(run(tensor.arena_offset, tensor.size_bytes), _OTHERS)
            continue
        for region, needed, hull in _needs(network, operator):
            left = _by_owner(memory[region].segments(needed))
            if left:
                hand_over = _matching(found, memory[region], region, hull)
                hand_over.readers.append(operator.index)
                for writer, ranges in left.items():
                    hand_over.written[writer] = merge_ranges([hand_over.written.get(writer, ranges), ranges])
        for region, ranges, writes in _arena_accesses(operator):
            if writes:
                memory[region].write(ranges, operator.index)
    return found


def _matching(found: list[_HandOver], memory: Writers, region: int, hull: tuple[int, int]) -> _HandOver:
    """The hand-over of the same bytes whose content is still there, or a new one."""
    for known in found:
        if (known.region, known.start, known.stop) == (region, *hull) and known.holds(memory):
            return known
    found.append(_HandOver(region, *hull))
    return found[-1]


def _by_owner(segments: Iterable[tuple[int, int, int]]) -> dict[int, Ranges]:
    """Bytes by the NPU call that wrote them."""
    runs: dict[int, list[tuple[int, int]]] = {}
    for start, stop, owner in segments:
        if owner >= 0:
            runs.setdefault(owner, []).append((start, stop))
    return {owner: merge_ranges(run(a, b - a) for a, b in pairs) for owner, pairs in runs.items()}


def _arena_accesses(call: NpuCall) -> Iterator[tuple[int, Ranges, bool]]:
    """Region, bytes and whether it writes, of each access to the arena, in the stream's order."""
    one = not call.scratch_fast_bytes  # regions 1 and 2 are one memory
    for operation in operations_of(call):
        for access in accesses(operation, call.accelerator):
            region = 1 if one and access.region == 2 else access.region
            if region in _ARENAS and len(access.ranges):
                yield region, access.ranges, access.is_write


def _needs(network: Network, call: NpuCall) -> list[tuple[int, Ranges, tuple[int, int]]]:
    """Region, bytes that the call reads and neither is given nor writes first, and the whole that they are part of."""
    own = {region: Writers() for region in _ARENAS}
    for index, (region, address) in zip(call.inputs, call.input_addresses, strict=True):
        size = network.tensors[index].size_bytes
        if region in own and address >= 0 and size:
            own[region].write(run(address, size), _OWN)
    missing: list[tuple[int, Ranges, tuple[int, int]]] = []
    for region, ranges, writes in _arena_accesses(call):
        if writes:
            own[region].write(ranges, _OWN)
            continue
        seen = own[region].readers_see(ranges)
        if NOBODY not in seen:
            continue
        runs = [(a, b) for a, b, owner in own[region].segments(ranges) if owner == NOBODY]
        # bytes at the end, behind an input, that only a rounded length reads are none
        if seen == {NOBODY} or sum(b - a for a, b in runs) >= ALIGNMENT or runs[-1][1] != ranges[-1, 1]:
            unknown = merge_ranges(run(a, b - a) for a, b in runs)
            missing.append((region, unknown, (int(ranges[0, 0]), int(ranges[-1, 1]))))
            own[region].write(unknown, _OWN)
    return _joined(missing)


def _joined(needs: list[tuple[int, Ranges, tuple[int, int]]]) -> list[tuple[int, Ranges, tuple[int, int]]]:
    """Needs whose wholes overlap, as one."""
    joined: list[tuple[int, Ranges, tuple[int, int]]] = []
    for region, needed, (low, high) in sorted(needs, key=lambda need: (need[0], need[2])):
        if joined and joined[-1][0] == region and joined[-1][2][1] > low:
            _, before, (start, stop) = joined.pop()
            needed, low, high = merge_ranges([before, needed]), start, max(stop, high)
        joined.append((region, needed, (low, high)))
    return joined
