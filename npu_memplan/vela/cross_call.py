"""Cross-call tensors: bytes of the arena that one NPU call leaves for a later one and that the file does not list, as
arguments of both.

Invariant: afterwards every byte of the arena that a call reads before it writes it is one of its arguments, if
something wrote it earlier, and every tensor that a call lists as an output holds what earlier calls left of it; calls
are otherwise as they were. Vela cuts a network where it leaves operators to the CPU, and lists as inputs and outputs
what these operators touch. What goes from one part of the NPU's to another is in the arena only, and a tensor that
several calls write in pieces (the slices of a concatenation) is an output of each. Such bytes are one tensor, which the
first of the calls makes and the others update.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..ethosu.program.access import Ranges, accesses, merge_ranges, run
from ..ethosu.program.overlap import ALIGNMENT, NOBODY, Writers
from ..models.network import Network
from ..models.tensor import Tensor
from ..models.vela import HeldBytes, NpuCall
from .lift import LiftError, operations_of

_ARENAS = (1, 2)
_ARENA = 1
_FIRST_TENSOR = -2  # owner of what is no NPU call's: this less the tensor that another call wrote
_OWN = 0  # any owner, where only the call itself counts


class _Memories:
    """Who wrote each byte of each memory last: an NPU call by its number, or a tensor of the host's or the caller's."""

    def __init__(self, network: Network) -> None:
        self._tensors = network.tensors
        self.of: dict[int, Writers] = defaultdict(Writers)
        for index in network.inputs:
            self.write_tensor(index)

    def bytes_of(self, index: int) -> Ranges | None:
        """The bytes of a tensor in the arena; None where it has no place there, or keeps one for itself."""
        tensor = self._tensors[index]
        if tensor.arena_offset < 0 or not tensor.size_bytes or tensor.is_variable or tensor.data is not None:
            return None
        return run(tensor.arena_offset, tensor.size_bytes)

    def write_tensor(self, index: int) -> None:
        """The host or the caller writes all of a tensor."""
        ranges = self.bytes_of(index)
        if ranges is not None:
            self.of[_ARENA].write(ranges, _FIRST_TENSOR - index)

    def calls_in(self, memory: int, ranges: Ranges) -> dict[int, Ranges]:
        """The bytes that each NPU call wrote."""
        return {owner: found for owner, found in self._by_owner(memory, ranges).items() if owner >= 0}

    def tensors_in(self, memory: int, ranges: Ranges) -> dict[int, Ranges]:
        """The bytes of each tensor that no NPU call wrote."""
        found = self._by_owner(memory, ranges).items()
        return {_FIRST_TENSOR - owner: ranges for owner, ranges in found if owner <= _FIRST_TENSOR}

    def _by_owner(self, memory: int, ranges: Ranges) -> dict[int, Ranges]:
        runs: dict[int, list[tuple[int, int]]] = {}
        for start, stop, owner in self.of[memory].segments(ranges):
            runs.setdefault(owner, []).append((start, stop))
        return {owner: merge_ranges(run(a, b - a) for a, b in pairs) for owner, pairs in runs.items()}


@dataclass(eq=False, slots=True)
class _CrossCallTensor:
    """Bytes `[start, stop)` of a memory, of tensor `tensor` (-1: none), with what each call writes and reads."""

    memory: int
    start: int
    stop: int
    tensor: int = -1
    written: dict[int, Ranges] = field(default_factory=dict)
    readers: list[int] = field(default_factory=list)

    def holds(self, memory: Writers) -> bool:
        """Whether all that was written is still there."""
        return all(memory.readers_see(ranges) == {writer} for writer, ranges in self.written.items())

    def add(self, left: dict[int, Ranges]) -> None:
        for writer, ranges in left.items():
            self.written[writer] = merge_ranges([self.written.get(writer, ranges), ranges])


def with_cross_call_tensors(network: Network) -> Network:
    """`network` with a tensor for each cross-call tensor; itself where there is none."""
    search = _Search(network)
    if len(network.npu_calls) > 1:
        search.run()
    if not search.found and not search.given:
        return network
    tensors = list(network.tensors)
    calls = {call.index: call for call in network.npu_calls}
    for number, given in search.given.items():
        for index, ranges in given.items():
            calls[number] = _with_given(calls[number], network.tensors[index], merge_ranges(ranges))
    for cross_call_tensor in search.found:
        index = cross_call_tensor.tensor
        if index < 0:
            index = len(tensors)
            size = cross_call_tensor.stop - cross_call_tensor.start
            name = f"cross_call_{min(cross_call_tensor.written)}_{cross_call_tensor.start}"
            tensors.append(Tensor(index, name, (size,), "uint8", arena_offset=cross_call_tensor.start))
        for number in sorted({*cross_call_tensor.written, *cross_call_tensor.readers}):
            calls[number] = _with_part(calls[number], cross_call_tensor, index)
    operators = tuple(calls[o.index] if isinstance(o, NpuCall) else o for o in network.operators)
    return replace(network, tensors=tuple(tensors), operators=operators)


def _with_given(call: NpuCall, tensor: Tensor, ranges: Ranges) -> NpuCall:
    """`call` with one more input: bytes of a tensor that the host or the caller wrote."""
    held = HeldBytes(_pairs(ranges), (), updated=False)
    return replace(
        call,
        inputs=(*call.inputs, tensor.index),
        input_addresses=(*call.input_addresses, (_ARENA, tensor.arena_offset)),
        parts={**call.parts, tensor.index: held},
    )


def _with_part(call: NpuCall, cross_call_tensor: _CrossCallTensor, tensor: int) -> NpuCall:
    before = merge_ranges(ranges for writer, ranges in cross_call_tensor.written.items() if writer < call.index)
    after = merge_ranges(ranges for writer, ranges in cross_call_tensor.written.items() if writer <= call.index)
    listed = next((a for i, (_, a) in zip(call.outputs, call.output_addresses, strict=True) if i == tensor), None)
    shift = 0 if listed is None else listed - cross_call_tensor.start  # into the call's own address space
    updated = len(before) > 0 and (listed is not None or call.index in cross_call_tensor.written)
    part = HeldBytes(_pairs(before + shift), _pairs(after + shift), updated)
    call = replace(call, parts={**call.parts, tensor: part})
    place = ((cross_call_tensor.memory, cross_call_tensor.start),)
    if listed is not None:
        return call
    if len(before):
        return replace(call, inputs=(*call.inputs, tensor), input_addresses=(*call.input_addresses, *place))
    return replace(call, outputs=(*call.outputs, tensor), output_addresses=(*call.output_addresses, *place))


def _pairs(ranges: Ranges) -> tuple[tuple[int, int], ...]:
    return tuple((int(a), int(b)) for a, b in ranges.tolist())


class _Search:
    """Runs through the network: `found`, and the tensors of others that each call needs besides its inputs."""

    def __init__(self, network: Network) -> None:
        self.found: list[_CrossCallTensor] = []
        self.given: dict[int, dict[int, list[Ranges]]] = defaultdict(lambda: defaultdict(list))
        self._network = network
        self._memories = _Memories(network)
        self._outputs = {  # by call: tensor, memory and bytes
            call.index: list(_locate_arguments(network, call, call.outputs, call.output_addresses))
            for call in network.npu_calls
        }
        self._inputs = {call.index: frozenset(call.inputs) for call in network.npu_calls}

    def run(self) -> None:
        for operator in self._network.operators:
            if isinstance(operator, NpuCall):
                self._call(operator)
                continue
            for index in operator.inputs:
                self._looked_at(index)
            for index in operator.outputs:
                self._memories.write_tensor(index)
        for index in self._network.outputs:
            self._looked_at(index)

    def _call(self, call: NpuCall) -> None:
        touched = list(_arena_accesses(self._network, call))
        updated = list(self._find_updates(call, touched))
        for memory, needed, hull in _needs(self._network, call, touched):
            left = self._memories.calls_in(memory, needed)
            if left:
                made = (output for number in left for output in self._outputs[number])
                cross_call_tensor = self._matching_tensor(memory, hull, self._part_of((*made, *updated), memory, hull))
                cross_call_tensor.readers.append(call.index)
                cross_call_tensor.add(left)
            self._take(call, memory, needed)
        for memory, ranges, writes in touched:
            if writes:
                self._memories.of[memory].write(ranges, call.index)
        for index, memory, whole in updated:
            self._matching_tensor(memory, _hull(whole), index).add(self._memories.calls_in(memory, whole))

    def _find_updates(
        self, call: NpuCall, touched: Sequence[tuple[int, Ranges, bool]]
    ) -> Iterator[tuple[int, int, Ranges]]:
        """Outputs that keep bytes of earlier calls; what they keep of others' becomes an input."""
        own: dict[int, Writers] = defaultdict(Writers)
        for memory, ranges, writes in touched:
            if writes:
                own[memory].write(ranges, _OWN)
        for index, memory, whole in self._outputs[call.index]:
            kept = [run(a, b - a) for a, b, owner in own[memory].segments(whole) if owner == NOBODY]
            known = index in call.parts or self._network.tensors[index].is_variable
            if kept and not known:
                rest = merge_ranges(kept)
                self._take(call, memory, rest)
                if self._memories.calls_in(memory, rest):
                    yield index, memory, whole

    def _take(self, call: NpuCall, memory: int, ranges: Ranges) -> None:
        """Make what is there of the host's or the caller's an input of the call."""
        for index, part in self._memories.tensors_in(memory, ranges).items():
            if index not in call.inputs:
                self.given[call.index][index].append(part)

    def _looked_at(self, index: int) -> None:
        """The host or the caller reads a tensor: calls that wrote some of it without listing it make it, too."""
        ranges = self._memories.bytes_of(index) if index >= 0 else None
        if ranges is None:
            return
        left = self._memories.calls_in(_ARENA, ranges)
        others = self._memories.tensors_in(_ARENA, ranges).keys() - {index}
        if left and others:
            tensor, other = self._network.tensors[index], self._network.tensors[min(others)]
            raise LiftError(
                f"tensor {index} {tensor.name!r} of {self._network.name} lies on bytes that NPU operator {min(left)} "
                f"wrote and on tensor {other.index} {other.name!r}, which it did not; its reader needs an "
                "operator that joins them: compile the source model again"
            )
        if left and any(owner == NOBODY for *_, owner in self._memories.of[_ARENA].segments(ranges)):
            tensor = self._network.tensors[index]
            raise LiftError(
                f"Vela's stream for {self._network.name} leaves bytes of its result, tensor {index} {tensor.name!r} "
                f"({tensor.size_bytes} bytes), unwritten",
                "Compile with --npu-compiler tvm, or keep the operator that makes it on the host with --host-ops",
            )
        unlisted = [number for number in left if index not in {i for i, *_ in self._outputs[number]}]
        lost = next((number for number in unlisted if index in self._inputs[number]), None)
        if lost is not None:
            raise LiftError(
                f"NPU operator {lost} of {self._network.name} overwrites its input, tensor {index} "
                f"{self._network.tensors[index].name!r}, which a later operator reads",
                "Compile with --npu-compiler tvm",
            )
        if unlisted:
            self._matching_tensor(_ARENA, _hull(ranges), index).add(left)

    def _part_of(self, outputs: Iterable[tuple[int, int, Ranges]], memory: int, hull: tuple[int, int]) -> int:
        """The one of `outputs` that the bytes `hull` are part of; -1: none is."""
        for index, of, whole in outputs:
            start, stop = _hull(whole)
            if of == memory and start <= hull[0] and hull[1] <= stop and not self._network.tensors[index].is_variable:
                return index
        return -1

    def _matching_tensor(self, memory: int, hull: tuple[int, int], tensor: int) -> _CrossCallTensor:
        """The cross-call tensor of the same tensor, or of the same bytes whose content is still there; or a new one."""
        for known in self.found:
            if known.tensor == tensor >= 0:
                return known
            same = (known.tensor, known.memory, known.start, known.stop) == (-1, memory, *hull)
            if same and tensor < 0 and known.holds(self._memories.of[memory]):
                return known
        if tensor >= 0:
            outputs = (whole for found in self._outputs.values() for i, _, whole in found if i == tensor)
            found = next(outputs, self._memories.bytes_of(tensor))
            assert found is not None
            hull = _hull(found)
        self.found.append(_CrossCallTensor(memory, *hull, tensor))
        return self.found[-1]


def _hull(ranges: Ranges) -> tuple[int, int]:
    return int(ranges[0, 0]), int(ranges[-1, 1])


def _arena_accesses(network: Network, call: NpuCall) -> Iterator[tuple[int, Ranges, bool]]:
    """Memory, bytes and whether it writes, of each access to one, in the stream's order."""
    for operation in operations_of(call):
        for access in accesses(operation, call.accelerator):
            place = _memory(network, call, access.region)
            if place is not None and len(access.ranges):
                yield place[0], access.ranges + place[1], access.is_write


def _memory(network: Network, call: NpuCall, region: int) -> tuple[int, int] | None:
    """The memory behind a call's region, and the place there of its address 0; None: no part of any arena."""
    if region in _ARENAS:
        return 1 if region == 2 and not call.scratch_fast_bytes else region, 0
    listed = zip((*call.inputs, *call.outputs), (*call.input_addresses, *call.output_addresses), strict=True)
    index = next((index for index, (of, _) in listed if of == region), -1)
    if index < 0:
        return None
    offset = network.tensors[index].arena_offset
    return (1, offset) if offset >= 0 else (_FIRST_TENSOR - index, 0)


def _locate_arguments(
    network: Network, call: NpuCall, indices: Sequence[int], addresses: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, Ranges]]:
    """Tensor, memory and bytes of arguments that have any."""
    for index, (region, address) in zip(indices, addresses, strict=True):
        place, size = _memory(network, call, region), network.tensors[index].size_bytes
        if place is not None and address >= 0 and size:
            yield index, place[0], run(place[1] + address, size)


def _needs(
    network: Network, call: NpuCall, touched: Sequence[tuple[int, Ranges, bool]]
) -> list[tuple[int, Ranges, tuple[int, int]]]:
    """Memory, bytes that the call reads and neither is given nor writes first, and the whole that they are part of."""
    own: dict[int, Writers] = defaultdict(Writers)
    for _, memory, whole in _locate_arguments(network, call, call.inputs, call.input_addresses):
        own[memory].write(whole, _OWN)
    for index, memory, whole in _locate_arguments(network, call, call.outputs, call.output_addresses):
        if index in call.parts and call.parts[index].updated:
            own[memory].write(whole, _OWN)
    missing: list[tuple[int, Ranges, tuple[int, int]]] = []
    for memory, ranges, writes in touched:
        if writes:
            own[memory].write(ranges, _OWN)
            continue
        seen = own[memory].readers_see(ranges)
        if NOBODY not in seen:
            continue
        runs = [(a, b) for a, b, owner in own[memory].segments(ranges) if owner == NOBODY]
        # bytes at the end, after an input, that only a rounded length reads are none
        if seen == {NOBODY} or sum(b - a for a, b in runs) >= ALIGNMENT or runs[-1][1] != ranges[-1, 1]:
            unknown = merge_ranges(run(a, b - a) for a, b in runs)
            missing.append((memory, unknown, (int(ranges[0, 0]), int(ranges[-1, 1]))))
            own[memory].write(unknown, _OWN)
    return _join_needs(missing)


def _join_needs(needs: list[tuple[int, Ranges, tuple[int, int]]]) -> list[tuple[int, Ranges, tuple[int, int]]]:
    """Needs whose wholes overlap, as one."""
    joined: list[tuple[int, Ranges, tuple[int, int]]] = []
    for region, needed, (low, high) in sorted(needs, key=lambda need: (need[0], need[2])):
        if joined and joined[-1][0] == region and joined[-1][2][1] > low:
            _, before, (start, stop) = joined.pop()
            needed, low, high = merge_ranges([before, needed]), start, max(stop, high)
        joined.append((region, needed, (low, high)))
    return joined
