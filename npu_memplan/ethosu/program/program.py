"""An NPU program over named buffers: what a command stream says once its addresses are taken out.

Invariant: every address register of an operation is a (buffer, byte offset); no register holds an absolute address, a
region or a block dependency, so a program is the same wherever its buffers are. Lifting a stream and lowering Relax
composites both end here. A chain, kernels whose results go through chaining buffers, is one operation over its external
buffers: nothing that any of its kernels touches begins or ends inside it, because their blocks follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from ...errors import NpuMemplanError
from ...problem.spans import Spans, count_covered
from ..arch import Architecture
from ..arch.architecture import Language
from ..stream.decode import Operation
from ..stream.encode import chained_maps
from ..stream.fields import REGION_OF, TILE_BASES, WRITTEN_THROUGH, DmaRegion, OutputWord
from ..stream.isa import SHRAM_REGION, MapStorage, Op, Register
from .access import Access, accesses, lut_span


class _Step(Protocol):
    """An operation, with addresses or with buffers."""

    @property
    def op(self) -> Op: ...

    @property
    def language(self) -> Language: ...

    def get(self, register: Register, default: int = 0) -> int: ...


def goes_on(step: _Step) -> bool:
    """Whether a kernel's results go to a chaining buffer, for the kernel after it."""
    if step.language is not Language.U85 or step.op is Op.DMA_START:
        return False
    return OutputWord.STORAGE.value_in(step.get(Register.OFM_PRECISION)) == MapStorage.CHAINED


def chain_bounds(steps: Sequence[_Step]) -> list[tuple[int, int]]:
    """First and last operation (inclusive) of the chain that each belongs to: itself, where it is in none."""
    found: list[tuple[int, int]] = []
    first = 0
    for place, step in enumerate(steps):
        if goes_on(step) and place + 1 < len(steps):
            continue
        found += [(first, place)] * (place + 1 - first)
        first = place + 1
    return found


def beside_regions(op: Operation) -> dict[Register, int]:
    """The bits of Ethos-U85's region registers besides a region: chaining buffers, and how a transfer goes."""
    if op.language is Language.U85 and op.op is Op.DMA_START:
        mask = DmaRegion.DIMENSIONS.word_with(3) | DmaRegion.INDEXED.word_with(1)
        words = {r: op[r] & mask for r in (Register.DMA0_SRC_REGION, Register.DMA0_DST_REGION)}
        return {register: word for register, word in words.items() if word}
    return {view.region: op[view.region] for view in chained_maps(op)}


class ProgramError(NpuMemplanError):
    """An NPU program contradicts itself."""


class BufferRole(Enum):
    """The use of a buffer of a program."""

    INPUT = "input"
    OUTPUT = "output"
    STATE = "state"  # read and written; keeps its content between two runs
    CONSTANTS = "constants"  # read only
    RESIDENT = "resident"  # constants in a writable pool, put there once before the first run; read only
    FEATURE_MAP = "feature_map"
    ROLLING = "rolling"  # rolling buffer of a cascade
    WEIGHTS = "weights"  # weights and scales copied to faster memory
    LUT = "lut"  # look-up tables inside the NPU; never planned

    @property
    def is_parameter(self) -> bool:
        """True for buffers that the caller supplies."""
        return self in _PARAMETERS


_PARAMETERS = (
    BufferRole.INPUT,
    BufferRole.OUTPUT,
    BufferRole.STATE,
    BufferRole.CONSTANTS,
    BufferRole.RESIDENT,
)


@dataclass(frozen=True, slots=True)
class NpuBuffer:
    """One buffer. Parameters have a real `shape` and `dtype`; the others are plain bytes."""

    name: str
    size_bytes: int
    role: BufferRole
    alignment: int = 16  # bytes; addresses keep their residue modulo this
    original_region: int = -1  # where the compiler had put it; -1: it never had a place
    original_offset: int = -1
    shape: tuple[int, ...] = ()
    dtype: str = "uint8"


@dataclass(frozen=True, slots=True)
class NpuOperation:
    """One kernel or DMA. `addresses`: address register -> (buffer name, byte offset into it)."""

    op: Op
    parameter: int
    registers: Mapping[Register, int]  # without addresses, regions and BLOCKDEP
    addresses: Mapping[Register, tuple[str, int]]
    operator: int = -1  # of the source model that it works for, by index in its file; -1: unknown
    language: Language = Language.U55_U65  # what its registers mean

    def get(self, register: Register, default: int = 0) -> int:
        """Value of a register that is no address, or `default` when it is not set."""
        return self.registers.get(register, default)

    def place(self, where: Callable[[str], tuple[int, int]], index: int = -1) -> Operation:
        """Operation `index` with real addresses: `where(buffer)` is (region, base address)."""
        registers = dict(self.registers)
        regions: dict[Register, int] = {}
        for register, (name, offset) in self.addresses.items():
            region, base = where(name)
            registers[register] = base + offset
            holder = REGION_OF[register]
            for unused in TILE_BASES.get(register, ()):
                registers.setdefault(unused, 0)  # tiles that are not addressed stay 0, as compilers leave them
            if regions.setdefault(holder, region) != region:
                raise ProgramError(
                    f"operation {index} ({self.op.name}) addresses {name!r} in region {region}, but {holder.name} is "
                    f"{regions[holder]} already: all tiles must lie in one pool"
                )
            registers[holder] = self.registers.get(holder, 0) | region  # which may say more than the region
        return Operation(self.op, self.parameter, registers, index, self.language)


@dataclass(frozen=True, slots=True)
class NpuProgram:
    """Buffers and operations in order. Buffer names are unique."""

    accelerator: Architecture
    buffers: tuple[NpuBuffer, ...]
    operations: tuple[NpuOperation, ...]
    name: str = "npu"
    _by_name: dict[str, NpuBuffer] = field(init=False, repr=False, compare=False, default_factory=dict)
    _chains: list[tuple[int, int]] = field(init=False, repr=False, compare=False, default_factory=list)
    _accesses: dict[int, list[tuple[str, Spans, bool]]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )

    def __post_init__(self) -> None:
        self._chains.extend(chain_bounds(self.operations))
        self._by_name.update((b.name, b) for b in self.buffers)
        if len(self._by_name) != len(self.buffers):
            names = [b.name for b in self.buffers]
            twice = sorted({n for n in names if names.count(n) > 1})
            raise ProgramError(f"NPU program {self.name}: buffer names are not unique: {', '.join(twice)}")
        for index, operation in enumerate(self.operations):
            for register, (buffer, _) in operation.addresses.items():
                if buffer not in self._by_name:
                    raise ProgramError(
                        f"NPU program {self.name}: operation {index} ({operation.op.name}) has {register.name} "
                        f"in buffer {buffer!r}, which does not exist"
                    )

    def buffer(self, name: str) -> NpuBuffer:
        """The buffer called `name`; `ProgramError` when there is none."""
        try:
            return self._by_name[name]
        except KeyError:
            raise ProgramError(f"NPU program {self.name} has no buffer {name!r}") from None

    def place(self, index: int, where: Callable[[str], tuple[int, int]]) -> Operation:
        """Operation `index` with real addresses: `where(buffer)` is (region, base address)."""
        try:
            return self.operations[index].place(where, index)
        except ProgramError as error:
            raise ProgramError(f"NPU program {self.name}: {error}") from None

    def symbolic_accesses(self, index: int) -> tuple[Access, ...]:
        """Accesses of an operation with byte offsets into its buffers in place of addresses."""
        return accesses(self.at_zero(index), self.accelerator)

    def at_zero(self, index: int) -> Operation:
        """Operation `index` with every buffer at address 0, tables where they are."""
        return self.place(index, self._offset_only)

    def _offset_only(self, name: str) -> tuple[int, int]:
        buffer = self._by_name[name]
        if buffer.role is BufferRole.LUT:
            return SHRAM_REGION, 0
        return 1, 0

    def buffers_of(self, index: int) -> tuple[tuple[str, bool], ...]:
        """(buffer, is_write) of an operation, or of the chain it belongs to, each once, reads first; LUTs included."""
        first, last = self._chains[index]
        found = {pair: None for place in range(first, last + 1) for pair in self._buffers_in_order(place)}
        return tuple(sorted(found, key=lambda pair: pair[1]))

    def _buffers_in_order(self, index: int) -> Iterator[tuple[str, bool]]:
        operation = self.operations[index]
        for register, (name, _) in operation.addresses.items():
            yield name, register in WRITTEN_THROUGH
        if operation.op is not Op.DMA_START and (table := self._lut_read(operation)) is not None:
            yield table, False

    def _lut_read(self, operation: NpuOperation) -> str | None:
        table = lut_span(Operation(operation.op, operation.parameter, operation.registers, -1, operation.language))
        if table is None:
            return None
        address = self.accelerator.lut_address + table[0]
        for buffer in self.buffers:
            if buffer.role is BufferRole.LUT and 0 <= address - buffer.original_offset < buffer.size_bytes:
                return buffer.name
        return None

    def accesses(self, index: int) -> list[tuple[str, Spans, bool]]:
        """Bytes of an operation, or of the chain it belongs to: (buffer, at least one byte, is_write), exact."""
        if index not in self._accesses:
            first, last = self._chains[index]
            self._accesses[index] = [found for place in range(first, last + 1) for found in self._find_accesses(place)]
        return self._accesses[index]

    def uses_content(self, index: int) -> bool:
        """Whether an operation computes with what it reads: a transfer moves it, written or not.

        Of a chain, the first one stands for all.
        """
        return self._chains[index][0] == index and self.operations[index].op is not Op.DMA_START

    def _find_accesses(self, index: int) -> list[tuple[str, Spans, bool]]:
        operation = self.operations[index]
        found = []
        for access in self.symbolic_accesses(index):
            for register, ranges in access.parts:
                if register is None:
                    name = self._lut_read(operation)
                    if name is None:
                        continue
                    ranges = ranges - self._by_name[name].original_offset
                else:
                    name = operation.addresses[register][0]
                if len(ranges):
                    found.append((name, tuple(map(tuple, ranges.tolist())), access.is_write))
        return found

    def moved_bytes(self) -> dict[str, tuple[int, int]]:
        """Bytes of each buffer that operations read, and that they write; each operation's once."""
        moved: dict[str, tuple[int, int]] = {}
        for index in range(len(self.operations)):
            for name, spans, writes in self._find_accesses(index):
                read, written = moved.get(name, (0, 0))
                amount = count_covered(spans)
                moved[name] = (read, written + amount) if writes else (read + amount, written)
        return moved

    def live_ranges(self) -> dict[str, tuple[int, int]]:
        """First and last operation (inclusive) that touches each buffer; untouched buffers are left out."""
        live: dict[str, tuple[int, int]] = {}
        for index in range(len(self.operations)):
            for name, _ in self.buffers_of(index):
                live[name] = (live.get(name, (index, index))[0], index)
        return live
