"""Kernels of Ethos-U85 that follow each other as chains: what only the next ones read goes through chaining buffers.

Invariant: the same values. Any kernel that stores its results in their order may begin a chain, element-wise kernels of
the same extents go on with it, in its blocks, and what is between them is in no memory. A chain is made only where it
takes fewer estimated cycles than the same kernels apart. Source of the limits: regor's `EthosU85OpGroup` (ethos-u-vela
5.2.0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..arch import Language, Shape
from ..program.access import is_indivisible, micro_block
from ..program.hazards import schedule
from ..program.program import BufferRole, NpuOperation, NpuProgram
from ..stream.decode import Operation
from ..stream.fields import IFM, IFM2, OFM, InputWord, MapRegisters, MapWord, OutputWord
from ..stream.isa import MapStorage, Op
from ..stream.isa import Register as R
from ..time import MemoryMap
from ..time.timeline import timeline
from .blocks import block_work
from .rams import RamLayout, ram_layout
from .regions import place_of

_LONGEST = 4  # kernels
_MOST_INPUTS = 3  # maps in memory that they read
_ALIGNMENT = 16
_AROUND = 4  # operations


def chained(program: NpuProgram, memory_map: MemoryMap) -> NpuProgram:
    """`program` with the chains that pay; itself where there are none. `memory_map`: where its regions are."""
    if program.accelerator.language is not Language.U85:
        return program
    return _Chaining(program, memory_map).made()


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

    def made(self) -> NpuProgram:
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
        """What kernels behind `first` take from those before them, as far as a chain can go."""
        head = self._operations[first]
        if head.op in (Op.DMA_START, Op.RESIZE) or is_indivisible(self._placed(head)):
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
            registers = {**operation.registers, **layout.registers(self._placed(operation))}
            made.append(replace(operation, registers=registers))
        for number, link in enumerate(links):
            writer, reader = link.writer - first, number + 1
            made[writer] = _in_chain(made[writer], OFM, number)
            made[reader] = _in_chain(made[reader], link.view, number)
        return made

    def _layout(self, apart: Sequence[NpuOperation]) -> RamLayout | None:
        """The blocks of the first kernel, or those of a later one where that is element-wise too."""
        target = self._program.accelerator
        placed = [self._placed(o) for o in apart]
        for operation in placed if placed[0].op is Op.ELEMENTWISE else placed[:1]:
            axes = (R.OFM_BLK_HEIGHT_M1, R.OFM_BLK_WIDTH_M1, R.OFM_BLK_DEPTH_M1)
            block, micro = Shape(*(operation[axis] + 1 for axis in axes)), micro_block(operation, target)
            works = [block_work(o) for o in placed if o.op is Op.ELEMENTWISE]
            if all(ram_layout(target, work, block, micro, spare=False) for work in works):
                return RamLayout(block, block, micro)
        return None

    def _pays(self, first: int, group: Sequence[NpuOperation]) -> bool:
        """Beside the kernels around them, with which they overlap."""
        last = first + len(group)
        before, after = self._operations[max(0, first - _AROUND) : first], self._operations[last : last + _AROUND]
        apart = self._operations[first:last]
        return self._cycles([*before, *group, *after]) < self._cycles([*before, *apart, *after])

    def _cycles(self, operations: Sequence[NpuOperation]) -> int:
        target = self._program.accelerator
        commands = schedule([self._placed(o) for o in operations], target)
        return timeline(commands, target, self._memory_map).total

    def _placed(self, operation: NpuOperation) -> Operation:
        def where(name: str) -> tuple[int, int]:
            region, address = place_of(self._program.buffer(name).role, self._memory_map)
            return region, address + self._addresses[name]

        return operation.place(where)


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
