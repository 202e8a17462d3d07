"""What one NPU configuration is: limits, micro-blocks, queues, ports, SHRAM and rates, as one record.

Invariant: everything here depends on the configuration alone, never on a network or the memory around it; no module
outside this folder branches on a product or a number of MACs.

`configurations.py` has the records of all families, `__init__.py` finds one by its name. What only some families have
is a field with a default; registers and words belong to a `Language`, and to `stream/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

BANK_BYTES = 1024  # of SHRAM


class Product(Enum):
    """NPU family; the value is the product field of the configuration word."""

    U55 = 0
    U65 = 1
    U85 = 2


class Language(Enum):
    """The language of a stream: its registers and commands, and what their bits mean."""

    U55_U65 = "Ethos-U55/U65"
    U85 = "Ethos-U85"

    __hash__ = object.__hash__  # each member is one object; that of Enum is written in Python


@dataclass(frozen=True, slots=True)
class Shape:
    """Height, width and depth, in elements."""

    height: int
    width: int
    depth: int

    @property
    def extents(self) -> tuple[int, int, int]:
        return self.height, self.width, self.depth

    @property
    def area(self) -> int:
        """Elements of one channel."""
        return self.height * self.width

    @property
    def elements(self) -> int:
        return self.height * self.width * self.depth


class Channel(Enum):
    """A reader inside the NPU with a buffer of its own for what it has requested."""

    TRANSFER = "DMA"
    INPUT_STREAM = "operands of element-wise operations, resizing, and matrices"
    WEIGHTS = "weights"
    FAST_WEIGHTS = "weights in the fast format"
    INPUT = "input blocks"
    SCALES = "scales and biases"
    READS = "all that a kernel reads, between ports and cores"
    WRITES = "all that it writes"

    __hash__ = object.__hash__  # each member is one object; that of Enum is written in Python


class OutputKind(Enum):
    """The features of an operation that decide how fast the output unit writes elements."""

    BINARY_32 = "elementwise of two 32-bit operands"
    UNARY_32 = "elementwise of one 32-bit operand"
    MUL_TO_32 = "product with 32-bit results"
    MUL = "product, or results of 40-bit accumulators"
    ADD = "sum of operands that are rescaled"
    MAX_POOL = "maximum"
    OTHER = "everything else"
    # of Ethos-U85
    BITS_8 = "results of 8 bits"
    BITS_16 = "results of 16 bits"
    BITS_32 = "results of 32 bits"
    BITS_64 = "results of 64 bits"
    CHAINED_32 = "32 bits into a chain, or of two 32-bit operands"
    PAIR_32_TO_32 = "32-bit results of two 32-bit operands"


@dataclass(frozen=True, slots=True)
class Granules:
    """SHRAM banks are handed out in multiples of these."""

    ifm8: int
    ifm16: int
    ifm32: int
    acc32: int  # also for 16-bit accumulators
    acc40: int

    def ifm_granule(self, bits: int) -> int:
        """The granule for input elements of `bits`."""
        return {8: self.ifm8, 16: self.ifm16, 32: self.ifm32}[bits]


@dataclass(frozen=True, slots=True)
class Rates:
    """Cycles of the parts of a core. Source: the tables of Arm's published optimiser (see `configurations.py`)."""

    output: Mapping[OutputKind, float] = field(hash=False)  # cycles an output element, of the whole NPU
    lookup: float  # at least these cycles an element when a table or function follows
    clamp: float  # at least these when a range narrower than the type follows
    start: int  # cycles before a kernel step can follow another when a block is a single micro-block
    start_acc40: int  # the same with 40-bit accumulators
    doubles_16_bit_pools: bool = True
    turn: float = 0.0  # at least these when the output's rows and columns change places, or columns are reversed


@dataclass(frozen=True, slots=True)
class BlockRams:
    """Memories inside an NPU that has one for each use, and the units in which blocks of the input are in theirs."""

    input_bytes: int
    accumulator_bytes: int
    output_bytes: int
    chaining_bytes: int
    input_units: tuple[Shape, ...]  # of depths up to 128 bits, up to 256 and beyond; depths in units of 128 bits
    row_units: tuple[Shape, ...]  # the same for micro-blocks of one row and four columns
    depthwise_gaps: tuple[int, int]  # zeros after ten weights of a depthwise kernel: of 8 and of 16 bits

    def input_unit(self, micro: Shape, depth: int, bits: int) -> Shape:
        """The unit that blocks of input elements, `depth` channels deep, are filled up to."""
        units = self.row_units if (micro.height, micro.width) == (1, 4) else self.input_units
        size = depth * bits
        unit = units[2 if size > 256 else 1 if size > 128 else 0]
        return Shape(unit.height, unit.width, unit.depth * 128 // bits)


@dataclass(frozen=True, slots=True)
class Architecture:
    """One NPU configuration."""

    macs: int  # multiply-accumulates per cycle over all cores
    ofm_micro: Shape  # the smallest OFM block: what one pass of a core's multipliers makes
    shram_kib: int  # of one core, as far as a stream can address it
    granules: Granules | None  # None: no registers divide SHRAM
    rates: Rates
    product: Product
    cores: int
    port_bytes: int  # of one beat on an AXI port
    address_bits: int  # width of an address register
    max_outstanding_dma: int  # DMA transfers that may be unfinished at once before the next start blocks
    axi1_writes: bool  # the second port takes writes too
    id_word: int  # NPU identification register
    part_number: int  # CoreSight part
    config_middle: int | None = None  # configuration word, bits 4 to 27; None: stream version 0, SHRAM of all cores
    max_outstanding_kernels: int = 2
    parallel: bool = False  # has PARALLEL_MODE
    language: Language = Language.U55_U65
    in_flight_bytes: Mapping[Channel, int] = field(default_factory=dict, hash=False)  # most; none: no limit but AXI's
    in_flight_share: float = 1.0  # of these bytes that are under way on average
    command_fetch_bytes: int = 0  # of the stream that a request brings before the first kernel; 0: it is there already
    launch_cycles: int = 0  # between a kernel's start and its first request
    weights_ahead_bytes: int = 2048  # that are fetched before a kernel multiplies
    awaits_response: bool = False  # what depends on a kernel waits for the answer to its last write
    pmu_base: int = 0  # of the register page, before the PMU's offsets
    pmu_counters: int = 4  # of events
    max_blockdep: int = 3  # largest BLOCKDEP
    micro_blocks: tuple[Shape, ...] = ()  # where each operation chooses its own: all there are, of all cores together
    core_bytes: int = 0  # a cycle, between the ports and each core in each direction; 0: all that the ports move
    burst_bytes: int = 64  # most that one AXI request moves: the limit that Arm's driver sets
    ifm_micro_depth: int = 8  # input channels that go into one pass
    max_block: Shape = Shape(32, 64, 128)  # of an OFM
    decoded_weights: int = 8  # a cycle, of each core that makes blocks of its own
    input_bytes: int = 0  # of input blocks that stay while all depths of output blocks are made; 0: none
    sub_kernel: int = 8  # rows and columns of one pass over a large kernel
    rams: BlockRams | None = field(default=None, hash=False)  # None: registers divide SHRAM among its uses

    def __hash__(self) -> int:
        """The hash of the fields that tell configurations apart, for caches that ask thousands of times."""
        return hash((self.macs, self.id_word))

    @property
    def name(self) -> str:
        """Vela's and the user's name, e.g. `ethos-u55-256`."""
        return f"ethos-{self.product.name.lower()}-{self.macs}"

    @property
    def requester_count(self) -> int:
        """Parts of the NPU for each of which a memory counts requests apart."""
        return 1 if self.micro_blocks else self.cores  # where cores work on one block together, they share requests

    @property
    def transfer_requesters(self) -> int:
        """The same of the DMA: each transfer that may be unfinished has requests of its own."""
        return 1 if self.micro_blocks else self.max_outstanding_dma

    @property
    def shares_ram(self) -> bool:
        """Inputs and accumulators of a kernel are in one memory (SHRAM), which registers lay out for each kernel."""
        return self.granules is not None

    @property
    def lut_reserved(self) -> bool:
        """The last two KiB of SHRAM are table slots always, not only for operations that use a table."""
        return self.granules is None or self.shram_kib > 16

    @property
    def lut_address(self) -> int:
        """Byte address of LUT slot 0 inside SHRAM, two KiB before its end; slots are 256 bytes apart."""
        return (self.shram_kib - 2) * BANK_BYTES

    @property
    def config_word(self) -> int:
        """Configuration word: log2 MACs, what the family says of itself, product."""
        middle = self.shram_kib * self.cores << 4 if self.config_middle is None else self.config_middle
        return (self.macs.bit_length() - 1) | middle << 4 | self.product.value << 28
