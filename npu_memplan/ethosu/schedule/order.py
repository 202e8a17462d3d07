"""The order of operations: independent ones so that fewer bytes live, kernels of Ethos-U85 as chains.

Invariant: the same values. Two operations of which one writes what the other touches keep their order, as do all that
load or read look-up tables; the most bytes alive at once are no more than before. Any kernel that stores its results in
their order may begin a chain; element-wise kernels of the same extents follow, in its blocks, and the maps between them
are in no memory. A chain is made only where it takes fewer estimated cycles than the same kernels apart. Source of the
limits: regor's `EthosU85OpGroup` (ethos-u-vela 5.2.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..arch import Language, Shape
from ..program.access import is_indivisible, micro_block
from ..program.hazards import schedule
from ..program.program import BufferRole, NpuOperation, NpuProgram, chain_bounds
from ..stream.decode import Operation
from ..stream.fields import IFM, IFM2, OFM, InputWord, MapRegisters, MapWord, OutputWord
from ..stream.isa import MapStorage, Op
from ..stream.isa import Register as R
from ..time import MemoryMap, ResourceUseCache
from ..time.timeline import timeline
from .blocks import block_work, place_of
from .rams import RamLayout, ram_layout

_LONGEST = 4  # operations that move together
_TRIES = 2_000  # orders that are weighed at most
_GAIN = 1e-3  # a smaller share of the cost is not worth another order
_TABLES = "look-up tables"


def reorder_operations(program: NpuProgram, memory_map: MemoryMap) -> NpuProgram:
    """`program` in a better order, or itself. `memory_map`: the memories, with constants in the fast one."""
    if any(first != last for first, last in chain_bounds(program.operations)):
        return program  # nothing comes between the operations of a chain
    touched = _accessed_buffers(program)
    if not program.accelerator.lut_reserved and any(_TABLES in names for names in touched):
        return program  # tables do not survive operations between
    if not any(touched):
        return program
    order = _Order(program, touched, _cycles(program, memory_map)).best()
    if order == list(range(len(order))):
        return program
    return replace(program, operations=tuple(program.operations[i] for i in order))


def _cycles(program: NpuProgram, memory_map: MemoryMap) -> list[float]:
    """The cycles of each operation alone."""
    known = ResourceUseCache(program.accelerator, memory_map)
    return [known(program.at_zero(index)).floor for index in range(len(program.operations))]


def _accessed_buffers(program: NpuProgram) -> list[dict[str, bool]]:
    """The buffers that each operation touches and whether it writes them, constants left out."""
    roles = {b.name: b.role for b in program.buffers}
    found: list[dict[str, bool]] = []
    for index in range(len(program.operations)):
        names: dict[str, bool] = {}
        for name, written in program.buffers_of(index):
            if roles[name] is BufferRole.LUT:
                names[_TABLES] = True
            elif roles[name] is not BufferRole.CONSTANTS:
                names[name] = names.get(name, False) or written
        found.append(names)
    return found


@dataclass(frozen=True, slots=True)
class _Cost:
    peak: int  # bytes
    area: float  # bytes times cycles


class _Order:
    def __init__(self, program: NpuProgram, touched: Sequence[dict[str, bool]], cycles: Sequence[float]) -> None:
        self._count, self._cycles = len(touched), np.array(cycles)
        sizes = {b.name: b.size_bytes for b in program.buffers} | {_TABLES: 0}
        given = {b.name for b in program.buffers if b.role in (BufferRole.INPUT, BufferRole.STATE)}
        kept = {b.name for b in program.buffers if b.role in (BufferRole.OUTPUT, BufferRole.STATE)}
        users: dict[str, list[int]] = {}
        for index, names in enumerate(touched):
            for name in names:
                users.setdefault(name, []).append(index)
        self._users = np.array([index for found in users.values() for index in found])
        self._starts = np.cumsum([0, *(len(found) for found in users.values())])[:-1]  # of each name's users
        self._sizes = np.array([sizes[name] for name in users])
        self._given, self._kept = (np.array([name in some for name in users]) for some in (given, kept))
        self._always = sum(sizes[name] for name in given & kept if name not in users)
        self._tied: list[set[int]] = [set() for _ in touched]
        for name, found in users.items():
            for writer in (index for index in found if touched[index][name]):
                self._tied[writer].update(found)
                for user in found:
                    self._tied[user].add(writer)

    def best(self) -> list[int]:
        order = list(range(self._count))
        known, left = self._cost(order), _TRIES
        improved = True
        while improved:
            improved = False
            for length in range(1, _LONGEST + 1):
                for begin in range(len(order) - length + 1):
                    tried = []
                    for other in self._move_operations(order, begin, length):
                        left -= 1
                        if left < 0:
                            return order
                        tried.append((self._cost(other), other))
                    fitting = [one for one in tried if one[0].peak <= known.peak]
                    cost, other = min(fitting, key=lambda one: one[0].area, default=(known, order))
                    if cost.area < known.area * (1 - _GAIN):
                        known, order, improved = cost, other, True
        return order

    def _move_operations(self, order: list[int], begin: int, length: int) -> Iterator[list[int]]:
        """Orders with `length` operations elsewhere."""
        moved = order[begin : begin + length]
        tied = set().union(*(self._tied[i] for i in moved))
        rest = order[:begin] + order[begin + length :]
        for step in (-1, 1):
            at = begin
            while 0 <= at + min(step, 0) < len(rest) and rest[at + min(step, 0)] not in tied:
                at += step
                yield rest[:at] + moved + rest[at:]

    def _cost(self, order: Sequence[int]) -> _Cost:
        places = np.empty(self._count, np.int64)
        places[order] = np.arange(self._count)
        used = places[self._users]
        first = np.where(self._given, 0, np.minimum.reduceat(used, self._starts))
        last = np.where(self._kept, self._count - 1, np.maximum.reduceat(used, self._starts))
        change = np.bincount(first, self._sizes, self._count) - np.bincount(last + 1, self._sizes, self._count + 1)[:-1]
        alive = np.cumsum(change) + self._always
        area = np.cumsum(alive * self._cycles[order])  # one after the other, as its rounding shall not depend on numpy
        return _Cost(int(alive.max()), float(area[-1]))


_MOST_INPUTS = 3  # maps in memory that they read
_ALIGNMENT = 16
_AROUND = 4  # operations


def chain_kernels(program: NpuProgram, memory_map: MemoryMap) -> NpuProgram:
    """`program` with the chains that pay; itself where there are none. `memory_map`: where its regions are."""
    if program.accelerator.language is not Language.U85:
        return program
    return _Chaining(program, memory_map).build_chains()


@dataclass(frozen=True, slots=True)
class _Link:
    """A map that one kernel writes and a later one reads as `view`, and nothing else touches."""

    buffer: str
    writer: int
    view: MapRegisters


class _Chaining:
    def __init__(self, program: NpuProgram, memory_map: MemoryMap) -> None:
        self._program, self._memory_map = program, memory_map
        self._operations = list(program.operations)
        uses = Counter(name for o in program.operations for name, _ in o.addresses.values())
        inner = {b.name for b in program.buffers if b.role is BufferRole.FEATURE_MAP and uses[b.name] == 2}
        made = ((o.addresses.get(OFM.bases[0], ("", 0))[0], i) for i, o in enumerate(program.operations))
        self._writers = {name: i for name, i in made if name in inner}
        self._addresses: dict[str, int] = {}
        end = 0
        for buffer in program.buffers:  # one behind the other: nothing conflicts but what does so by its name
            self._addresses[buffer.name] = 0 if buffer.role is BufferRole.LUT else end
            end += -(-buffer.size_bytes // _ALIGNMENT) * _ALIGNMENT

    def build_chains(self) -> NpuProgram:
        """The longest chains first, from the first kernel on."""
        first, gone = 0, set[str]()
        while first < len(self._operations):
            links = self._links(first)
            for count in range(len(links), 0, -1):
                group = self._group(first, links[:count])
                if group is not None and self._pays(first, group):
                    self._operations[first : first + count + 1] = group
                    gone |= {link.buffer for link in links[:count]}
                    first += count
                    break
            first += 1
        if not gone:
            return self._program
        if self._cycles(self._operations) >= self._cycles(self._program.operations):
            return self._program
        left = tuple(b for b in self._program.buffers if b.name not in gone)
        return replace(self._program, buffers=left, operations=tuple(self._operations))

    def _links(self, first: int) -> list[_Link]:
        """The inputs that kernels behind `first` take from those before them, as far as a chain can go."""
        head = self._operations[first]
        if head.op in (Op.DMA_START, Op.RESIZE) or is_indivisible(self._place_operation(head)):
            return []
        found: list[_Link] = []
        inputs = _inputs(head)
        for place in range(first + 1, min(first + _LONGEST, len(self._operations))):
            reader = self._operations[place]
            link = self._link(first, reader, place) if reader.op is Op.ELEMENTWISE else None
            inputs += _inputs(reader) - 1
            if link is None or inputs > _MOST_INPUTS or _extents(reader) != _extents(head):
                break
            found.append(link)
        # what is written is read in the chain
        while found and {link.writer for link in found} != set(range(first, first + len(found))):
            found.pop()
        return found

    def _link(self, first: int, reader: NpuOperation, place: int) -> _Link | None:
        """The one map that `reader` has of a kernel from `first` on."""
        links = []
        for view in (IFM, IFM2):
            name = reader.addresses.get(view.bases[0], ("", 0))[0]
            writer = self._writers.get(name, -1)
            if first <= writer < place and _same_map(self._operations[writer], reader, view):
                links.append(_Link(name, writer, view))
        return links[0] if len(links) == 1 else None

    def _group(self, first: int, links: Sequence[_Link]) -> list[NpuOperation] | None:
        """The kernels as a chain, in blocks that each of them may have; None where there are none."""
        apart = self._operations[first : first + len(links) + 1]
        layout = self._layout(apart)
        if layout is None:
            return None
        made = []
        for operation in apart:
            registers = {**operation.registers, **layout.registers(self._place_operation(operation))}
            made.append(replace(operation, registers=registers))
        for number, link in enumerate(links):
            writer, reader = link.writer - first, number + 1
            made[writer] = _in_chain(made[writer], OFM, number)
            made[reader] = _in_chain(made[reader], link.view, number)
        return made

    def _layout(self, apart: Sequence[NpuOperation]) -> RamLayout | None:
        """The blocks of the first kernel, or those of a later one where that is element-wise too."""
        target = self._program.accelerator
        placed = [self._place_operation(o) for o in apart]
        for operation in placed if placed[0].op is Op.ELEMENTWISE else placed[:1]:
            axes = (R.OFM_BLK_HEIGHT_M1, R.OFM_BLK_WIDTH_M1, R.OFM_BLK_DEPTH_M1)
            block, micro = Shape(*(operation[axis] + 1 for axis in axes)), micro_block(operation, target)
            works = [block_work(o) for o in placed if o.op is Op.ELEMENTWISE]
            if all(ram_layout(target, work, block, micro, spare=False) for work in works):
                return RamLayout(block, block, micro)
        return None

    def _pays(self, first: int, group: Sequence[NpuOperation]) -> bool:
        """Whether the chain takes fewer cycles than its kernels apart, among the kernels around them."""
        last = first + len(group)
        before, after = self._operations[max(0, first - _AROUND) : first], self._operations[last : last + _AROUND]
        apart = self._operations[first:last]
        return self._cycles([*before, *group, *after]) < self._cycles([*before, *apart, *after])

    def _cycles(self, operations: Sequence[NpuOperation]) -> int:
        target = self._program.accelerator
        commands = schedule([self._place_operation(o) for o in operations], target)
        return timeline(commands, target, self._memory_map).total

    def _place_operation(self, operation: NpuOperation) -> Operation:
        """The operation with the addresses that its buffers have in memories of their own."""

        def place_buffer(name: str) -> tuple[int, int]:
            region, address = place_of(self._program.buffer(name).role, self._memory_map)
            return region, address + self._addresses[name]

        return operation.place(place_buffer)


def _extents(operation: NpuOperation) -> tuple[int, ...]:
    return tuple(operation.registers[r] for r in (R.OFM_HEIGHT_M1, R.OFM_WIDTH_M1, R.OFM_DEPTH_M1))


def _inputs(operation: NpuOperation) -> int:
    """Maps in memory that a kernel reads."""
    return sum(view.bases[0] in operation.addresses for view in (IFM, IFM2))


def _same_map(writer: NpuOperation, reader: NpuOperation, view: MapRegisters) -> bool:
    """Whether `reader` reads as `view` what `writer` writes, element by element."""
    if reader.get(R.IFM_BROADCAST if view is IFM else R.IFM2_BROADCAST):
        return False
    if writer.addresses[OFM.bases[0]] != reader.addresses[view.bases[0]]:
        return False
    mine, theirs = writer.registers[OFM.precision], reader.registers[view.precision]
    ours = MapWord.SIGNED.value_in(mine), OutputWord.SIZE.value_in(mine), MapWord.BRICK.value_in(mine)
    if ours != (MapWord.SIGNED.value_in(theirs), InputWord.SIZE.value_in(theirs), MapWord.BRICK.value_in(theirs)):
        return False
    pairs = zip((OFM.stride_x, OFM.stride_y, OFM.stride_c), (view.stride_x, view.stride_y, view.stride_c), strict=True)
    return all(writer.get(a) == reader.get(b) for a, b in pairs)


def _in_chain(operation: NpuOperation, view: MapRegisters, number: int) -> NpuOperation:
    """`operation` with a map in chaining buffer `number`."""
    word = operation.registers[view.precision] | MapWord.STORAGE.word_with(MapStorage.CHAINED)
    word = word & ~MapWord.BRICK.word_with(3) | MapWord.BRICK.word_with(1)
    addresses = {register: at for register, at in operation.addresses.items() if register not in view.bases}
    registers = {**operation.registers, view.precision: word, view.region: number}
    return replace(operation, registers=registers, addresses=addresses)
