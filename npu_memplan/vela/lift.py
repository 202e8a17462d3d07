"""Command stream to NPU program: find the buffers that a stream's addresses stand for, and the tensors that it reads
and writes.

Invariant: two bytes belong to one buffer only when some access needs them together, so every buffer comes out on its
own, also those the compiler folded over each other; and the compiler's own placement is always a valid placement of the
result. Each tensor or state that is a parameter comes once, at an address that the stream knows. A kernel that was
joined of several reads and writes the bytes that its parts read and write, in the same order of rows, and none of the
rows that it writes is one that it reads.

Method: walk the stream, remember for every arena byte which write put it there, and unite all writes that one access
reads (a web). Graph inputs and states are writes before the first operation, graph outputs and states are reads after
the last. Compilers cut maps of more than 65,536 rows (the pixels of an ARG_MAX over a large image, one a row) into
kernels of one block: 65,793 of them for 513 x 513 pixels; such kernels are joined. Short runs stay as they are: the
turns of a cascade are the compiler's choice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from ..errors import RefusalError
from ..ethosu.arch import Language
from ..ethosu.program.access import Access, FeatureMap, Ranges, Role, accesses, has_ifm_in_memory, merge_ranges
from ..ethosu.program.hazards import in_place_distances
from ..ethosu.program.overlap import ALIGNMENT, Web, WebBuilder, colliding_webs
from ..ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram, beside_regions, chain_bounds
from ..ethosu.stream.decode import Operation, decode_straight
from ..ethosu.stream.fields import ADDRESS_REGISTERS, IFM, OFM, REGION_REGISTERS, KernelStride, registers_of
from ..ethosu.stream.isa import BRICK_CHANNELS, SHRAM_REGION, Op, Register, Upscale
from ..models.network import Network
from ..models.vela import HeldBytes, NpuCall, check_scratch


class LiftError(RefusalError):
    """A command stream cannot be read as a program over buffers; `advice` is for who has the source model."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(f"{reason}. {advice}" if advice else reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter of an NPU call: the tensor behind it and where the stream expects it."""

    name: str
    role: BufferRole
    tensor: int
    region: int
    address: int
    size_bytes: int
    part: HeldBytes  # which of its bytes hold something before the call and after it, by the stream's addresses


def arguments(network: Network, call: NpuCall) -> tuple[Argument, ...]:
    """The call's parameters: inputs and states in its order, each state once, then outputs."""
    found: list[Argument] = []
    seen: set[tuple[BufferRole, int, int, int]] = set()
    counts: dict[BufferRole, int] = {}
    listed = [(i, a, True) for i, a in zip(call.inputs, call.input_addresses, strict=True)]
    listed += [(i, a, False) for i, a in zip(call.outputs, call.output_addresses, strict=True)]
    for index, (region, address), is_input in listed:
        tensor = network.tensors[index]
        role = BufferRole.INPUT if is_input else BufferRole.OUTPUT
        whole = ((address, address + tensor.size_bytes),)
        part = call.parts.get(index) or HeldBytes(whole, whole, updated=False)
        if tensor.is_variable or part.updated:
            role = BufferRole.STATE
        key = (role, region, address, tensor.size_bytes)
        if key in seen:
            continue
        seen.add(key)
        if address < 0:
            raise LiftError(
                f"{network.name}: tensor {index} {tensor.name!r} is an argument of NPU call {call.index} "
                "but has no arena offset; compile the network with Vela again"
            )
        number = counts[role] = counts.get(role, -1) + 1
        found.append(Argument(f"{role.value}{number}", role, index, region, address, tensor.size_bytes, part))
    return tuple(found)


_KEEP_OFF = "Compile with --npu-compiler tvm, or keep the operators at that tensor on the host with --host-ops"
_SHORT = 32  # kernels
_MOST_ROWS = 1 << 16  # that a register of 16 bits can say
_KINDS = (Op.CONV, Op.DEPTHWISE, Op.POOL)
_BASES = (IFM.bases[0], OFM.bases[0])
_HEIGHTS = (IFM.height0, IFM.height1, OFM.height0, OFM.height1, Register.OFM_HEIGHT_M1)
_ONE_ROW = (Register.KERNEL_HEIGHT_M1, Register.IFM_PAD_TOP, Register.IFM_PAD_BOTTOM)


@functools.lru_cache(maxsize=8)  # calls are immutable and compare by identity; several stages ask
def operations_of(call: NpuCall) -> tuple[Operation, ...]:
    """The operations of a call's stream, with runs of kernels that continue each other joined."""
    return tuple(
        join_runs([c for c in decode_straight(call.words, call.accelerator.language) if isinstance(c, Operation)])
    )


def join_runs(operations: Sequence[Operation]) -> list[Operation]:
    """`operations` with each run of kernels that continue each other as one, at the stream offset of its first."""
    joined: list[Operation] = []
    for run in _runs(operations):
        joined += run if len(run) < _SHORT else _pieces(run)
    return joined


def _runs(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    run: list[Operation] = []
    for operation in operations:
        if run and not _continues_rows(run[-1], operation):
            yield run
            run = []
        run.append(operation)
    if run:
        yield run


def _continues_rows(first: Operation, second: Operation) -> bool:
    """Whether `second` is the same kernel over the rows after those of `first`."""
    if (first.op, first.parameter) != (second.op, second.parameter) or first.op not in _KINDS:
        return False
    if first.language is not Language.U55_U65 or not _by_rows(first):
        return False
    rows = first[Register.OFM_HEIGHT_M1] + 1
    for view in (IFM, OFM):
        if second.get(view.bases[0]) - first.get(view.bases[0]) != rows * first.get(view.stride_y):
            return False
    after = dict(second.registers)
    after.update((register, first.get(register)) for register in (*_BASES, Register.BLOCKDEP))
    before = dict(first.registers)
    before.setdefault(Register.BLOCKDEP, 0)
    return before == after


def _by_rows(operation: Operation) -> bool:
    """Whether each row of the result is of one row of the input, and both maps are whole tiles."""
    if any(operation.get(register) for register in _ONE_ROW) or operation.get(Register.IFM_UPSCALE) != Upscale.NONE:
        return False
    if KernelStride.stride_y(operation.get(Register.KERNEL_STRIDE)) != 1:
        return False
    rows = operation[Register.OFM_HEIGHT_M1]
    return all(operation.get(register) == rows for register in _HEIGHTS)


def _pieces(run: list[Operation]) -> Iterator[Operation]:
    """The kernels that make the run, as few as the registers allow; the run as it is where it reads what it writes."""
    rows = run[0][Register.OFM_HEIGHT_M1] + 1
    each = _MOST_ROWS // rows
    counts = {place: min(each, len(run) - place) for place in range(0, len(run), each)}
    pieces = [run[place].with_registers(dict.fromkeys(_HEIGHTS, n * rows - 1)) for place, n in counts.items()]
    yield from pieces if all(_apart(piece) for piece in pieces) else run


def _apart(operation: Operation) -> bool:
    """Whether no byte between the first and the last that it writes is one that it reads."""
    (first, last), (low, high) = FeatureMap.ifm(operation).span(), FeatureMap.ofm(operation).span()
    return last <= low or high <= first


CONSTANTS = "constants"
_DROPPED = ADDRESS_REGISTERS | REGION_REGISTERS | {Register.BLOCKDEP}
_ROLE_OF_NAME = {Role.IFM: "IFM", Role.IFM2: "IFM2", Role.OFM: "OFM"}


def lift_program(
    network: Network, call: NpuCall, name: str = "npu", operators: Mapping[int, int] = MappingProxyType({})
) -> NpuProgram:
    """The program of one NPU call; `operators`: the source model's operator of each kernel, by its offset."""
    check_scratch(call, network.name)
    if call.resident is not None:
        raise LiftError(
            f"{network.name} was compiled with resident constants, {call.resident.nbytes:,} bytes of base pointer 3; "
            "compile the source model instead"
        )
    operations = operations_of(call)
    return _Lifter(network, call, operations, name, _served_operators(operations, operators)).program()


def _served_operators(operations: Sequence[Operation], operators: Mapping[int, int]) -> list[int]:
    """The source model's operator of each operation; a transfer works for the kernel after it."""
    found: list[int] = []
    coming = -1
    for operation in reversed(operations):
        if operation.op is not Op.DMA_START:
            coming = operators.get(operation.offset_bytes, -1)
        found.append(coming)
    return found[::-1]


class _Lifter:
    def __init__(
        self, network: Network, call: NpuCall, operations: Sequence[Operation], name: str, served: Sequence[int]
    ) -> None:
        self._network, self._call, self._operations, self._name, self._served = network, call, operations, name, served
        self._arguments = arguments(network, call)
        self._builder = WebBuilder()
        self._accesses = [accesses(op, call.accelerator) for op in operations]
        self._nodes: list[dict[Role, int]] = []  # per operation: node of each access to the arena
        self._argument_nodes: dict[str, int] = {}
        self._chains = chain_bounds(operations)
        self._sizes = {1: call.scratch_bytes, 2: call.scratch_fast_bytes or call.scratch_bytes}
        self._aliased = not call.scratch_fast_bytes

    def program(self) -> NpuProgram:
        self._find_webs()
        return self._assemble(self._separate_webs())

    # --- webs ---------------------------------------------------------------------------

    def _memory_space(self, region: int) -> int:
        """Regions 1 and 2 are one memory unless the NPU has its own."""
        return 1 if region == 2 and self._aliased else region

    def _find_webs(self) -> None:
        builder = self._builder
        for argument in self._arguments:
            if argument.role is not BufferRole.OUTPUT:
                node = builder.define(self._memory_space(argument.region), np.array(argument.part.before, np.int64), -1)
                self._argument_nodes[argument.name] = node
        for time, found in enumerate(self._accesses):
            nodes: dict[Role, int] = {}
            for access in found:
                if access.region in (0, SHRAM_REGION):
                    continue
                ranges = access.ranges
                if not len(ranges):
                    if access.role is Role.IFM and has_ifm_in_memory(self._operations[time]):
                        raise LiftError(f"{self._describe_place(time)} reads no byte of its IFM")
                    continue
                self._check_bounds(time, access, ranges)
                space = self._memory_space(access.region)
                first, last = self._chains[time]
                if access.is_write:
                    node = nodes[access.role] = builder.define(space, ranges, time)
                    builder.extend_life(node, first, last)
                    if Role.DMA_KEPT in nodes:  # only some of the bytes are written: the others stay
                        builder.unite(node, nodes[Role.DMA_KEPT])
                    continue
                transfer = self._operations[time].op is Op.DMA_START  # whose length is rounded up
                read = builder.read(space, ranges, time, partly=transfer)
                if read is None:
                    raise LiftError(
                        f"{self._describe_place(time)} reads its {access.role.name} from bytes {int(ranges[0, 0])} to "
                        f"{int(ranges[-1, 1])} of region {access.region}, some of which nothing has written"
                    )
                nodes[access.role] = read
                builder.extend_life(read, first, last)
            self._nodes.append(nodes)
        end = len(self._operations)
        for argument in self._arguments:
            if argument.role is BufferRole.INPUT:
                continue
            space = self._memory_space(argument.region)
            after = np.array(argument.part.after, np.int64)
            result = builder.read(space, after, end)
            if result is None:
                raise LiftError(
                    f"{self._name} leaves bytes of its result, tensor {argument.tensor} ({argument.size_bytes} bytes), "
                    "unwritten",
                    "Compile with --npu-compiler tvm, or keep the operator that makes it on the host with --host-ops",
                )
            if argument.role is BufferRole.STATE:
                builder.unite(result, self._argument_nodes[argument.name])
            self._argument_nodes[argument.name] = result

    def _check_bounds(self, time: int, access: Access, ranges: Ranges) -> None:
        size = self._sizes.get(access.region)
        # Compilers round DMA lengths up, so an access may run over by less than one alignment unit.
        if size is not None and ranges[-1, 1] >= size + ALIGNMENT:
            raise LiftError(
                f"{self._describe_place(time)}: {access.role.name} ends at byte {int(ranges[-1, 1])} of region "
                f"{access.region}, which has {size} bytes"
            )

    def _describe_place(self, time: int) -> str:
        operation = self._operations[time]
        return f"{self._name}: {operation.op.name} at stream offset {operation.offset_bytes:#x}"

    def _separate_webs(self) -> dict[int, Web]:
        """Unite webs that lie over each other while both are live, other than by a proven in-place operation."""
        while True:
            webs = self._builder.webs()
            merged = False
            for first, second in colliding_webs(webs):
                if not self._in_place(webs, first, second):
                    self._builder.unite(first, second)
                    merged = True
            if not merged:
                return webs

    def _in_place(self, webs: dict[int, Web], first: int, second: int) -> bool:
        if webs[second].last == webs[first].first:
            first, second = second, first
        time = webs[first].last
        if webs[second].first != time or not 0 <= time < len(self._operations):
            return False
        nodes = self._nodes[time]
        holder = {n: self._builder.find(nodes[role]) for role, n in _ROLE_OF_NAME.items() if role in nodes}
        if holder.get("OFM") != second:
            return False
        return in_place_distances(self._operations[time], holder).get(first) == 0

    # --- buffers ------------------------------------------------------------------------

    def _assemble(self, webs: dict[int, Web]) -> NpuProgram:
        owners: dict[int, list[Argument]] = {}
        for argument in self._arguments:
            owners.setdefault(self._builder.find(self._argument_nodes[argument.name]), []).append(argument)
        places: dict[int, tuple[str, int]] = {}  # web -> buffer and address of its first byte
        parameters = {a.name: self._parameter(a) for a in self._arguments}
        internals: list[NpuBuffer] = []
        copies_in: list[NpuOperation] = []
        copies_out: list[NpuOperation] = []
        roles = self._buffer_roles()
        counts: dict[BufferRole, int] = {}
        spans = {k: w.span for k, w in webs.items()}
        brick_ends = self._brick_ends()
        for key, web in webs.items():
            found = owners.get(key, [])
            low, high = spans[key]
            if len(found) == 1 and self._fits(found[0], low, high):
                self._require_inside(found[0], key)
                places[key] = (found[0].name, found[0].address)
                continue
            # Parameters are copied whole, also where a part of them is used; addresses keep their place in 16 bytes.
            low = min((low, *(a.address - a.address % ALIGNMENT for a in found)))
            ends = (a.address + a.size_bytes for a in found)
            end = max((self._whole_bricks(key, webs, spans, brick_ends), *ends))
            role = roles.get(key, BufferRole.FEATURE_MAP)
            number = counts[role] = counts.get(role, -1) + 1
            buffer = NpuBuffer(
                name=f"{role.value}{number}",
                size_bytes=end - low,
                role=role,
                original_region=web.region,
                original_offset=low,
            )
            internals.append(buffer)
            places[key] = (buffer.name, low)
            # Several parameters in one web: they keep their own buffers and are copied in and out.
            for argument in sorted(found, key=lambda a: a.address):
                place = (buffer.name, argument.address - low)
                if argument.role is not BufferRole.OUTPUT:
                    copies_in.append(self._copy(argument, (argument.name, 0), place))
                if argument.role is not BufferRole.INPUT:
                    copies_out.append(self._copy(argument, place, (argument.name, 0)))
        tables = tuple(self._tables())
        operations = tuple(self._operation(time, places, tables) for time in range(len(self._operations)))
        ordered = [parameters[a.name] for a in self._arguments if a.role is not BufferRole.OUTPUT]
        if self._call.read_only.nbytes:
            size = self._call.read_only.nbytes
            ordered.append(NpuBuffer(CONSTANTS, size, BufferRole.CONSTANTS, 16, 0, 0, (size,)))
        ordered += [parameters[a.name] for a in self._arguments if a.role is BufferRole.OUTPUT]
        return NpuProgram(
            self._call.accelerator, (*ordered, *internals, *tables), (*copies_in, *operations, *copies_out), self._name
        )

    def _fits(self, argument: Argument, low: int, high: int) -> bool:
        end = argument.address + argument.size_bytes
        return argument.address <= low and high < end + ALIGNMENT

    def _require_inside(self, argument: Argument, key: int) -> None:
        """Nothing writes more than its tensor, and kernels read no more; transfers may, up to the alignment unit."""
        end = argument.address + argument.size_bytes
        for time, nodes in enumerate(self._nodes):
            transfer = self._operations[time].op is Op.DMA_START
            for access in self._accesses[time]:
                if transfer and not access.is_write:
                    continue
                own = access.role in nodes and self._builder.find(nodes[access.role]) == key
                if own and access.ranges[-1, 1] > end:
                    reached = int(access.ranges[-1, 1]) - argument.address
                    raise LiftError(
                        f"{self._describe_place(time)} accesses {reached} bytes from tensor {argument.tensor} on, "
                        f"which has {argument.size_bytes}",
                        _KEEP_OFF,
                    )

    def _parameter(self, argument: Argument) -> NpuBuffer:
        tensor = self._network.tensors[argument.tensor]
        return NpuBuffer(
            name=argument.name,
            size_bytes=argument.size_bytes,
            role=argument.role,
            original_region=argument.region,
            original_offset=argument.address,
            shape=tensor.shape or (1,),
            dtype=tensor.dtype,
        )

    def _copy(self, argument: Argument, source: tuple[str, int], target: tuple[str, int]) -> NpuOperation:
        language = self._call.accelerator.language
        if argument.size_bytes % ALIGNMENT and language is not Language.U85:  # which moves rows of any length
            raise LiftError(
                f"{self._name}: tensor {argument.tensor} ({argument.size_bytes} bytes) is accessed together with other "
                f"tensors; separating it needs a copy, and copies move multiples of {ALIGNMENT} bytes",
                _KEEP_OFF,
            )
        addresses = {Register.DMA0_SRC: source, Register.DMA0_DST: target}
        registers = {Register.DMA0_LEN: argument.size_bytes}
        if language is Language.U85:
            registers[Register.DMA0_SIZE0] = 1
        return NpuOperation(Op.DMA_START, 0, registers, addresses, language=language)

    def _buffer_roles(self) -> dict[int, BufferRole]:
        roles: dict[int, BufferRole] = {}
        for time, nodes in enumerate(self._nodes):
            for access in self._accesses[time]:
                if access.role not in nodes:
                    continue
                key = self._builder.find(nodes[access.role])
                if access.role in (Role.WEIGHTS, Role.SCALES):
                    roles[key] = BufferRole.WEIGHTS
                elif len(access.parts) > 1:
                    roles.setdefault(key, BufferRole.ROLLING)
        return roles

    def _whole_bricks(
        self, key: int, webs: dict[int, Web], spans: dict[int, tuple[int, int]], brick_ends: dict[int, int]
    ) -> int:
        """End of a web's bytes, up to its last brick's end where the compiler left that free."""
        web, high = webs[key], spans[key][1]
        end = max((brick_ends.get(node, 0) for node in web.nodes), default=0)
        if end <= high or end > self._sizes.get(web.region, 0):
            return high
        for other, (low, top) in spans.items():
            rival = webs[other]
            meets = rival.first <= web.last and web.first <= rival.last
            if other != key and rival.region == web.region and meets and low < end and spans[key][0] < top:
                return high
        return end

    def _brick_ends(self) -> dict[int, int]:
        """End of the last whole brick that each node writes, where that lies beyond its last byte."""
        ends = {}
        for time, nodes in enumerate(self._nodes):
            if Role.OFM not in nodes:
                continue
            view = FeatureMap.ofm(self._operations[time])
            if view.brick and view.depth % BRICK_CHANNELS and view.element_bytes > 1:
                whole = -(-view.depth // BRICK_CHANNELS) * BRICK_CHANNELS
                ends[nodes[Role.OFM]] = int(view.ranges(depth=whole)[-1, 1])
        return ends

    def _tables(self) -> Iterator[NpuBuffer]:
        """LUT slots: the connected byte ranges inside the NPU that DMAs write."""
        parts = [a.ranges for found in self._accesses for a in found if a.is_write and a.region == SHRAM_REGION]
        for number, (start, stop) in enumerate(merge_ranges(parts).tolist()):
            yield NpuBuffer(f"lut{number}", stop - start, BufferRole.LUT, 16, SHRAM_REGION, start)

    def _operation(self, time: int, places: dict[int, tuple[str, int]], tables: Sequence[NpuBuffer]) -> NpuOperation:
        op = self._operations[time]
        kept = registers_of(op.op, op.language) - _DROPPED
        addresses: dict[Register, tuple[str, int]] = {}
        for access in self._accesses[time]:
            for register, ranges in access.parts:
                if register is None or not len(ranges):
                    continue
                address = op[register]
                if access.region == 0:
                    addresses[register] = (CONSTANTS, address)
                elif access.region == SHRAM_REGION:
                    table = next(t for t in tables if 0 <= address - t.original_offset < t.size_bytes)
                    addresses[register] = (table.name, address - table.original_offset)
                else:
                    buffer, base = places[self._builder.find(self._nodes[time][access.role])]
                    addresses[register] = (buffer, address - base)
        registers = {r: v for r, v in op.registers.items() if r in kept}
        registers |= beside_regions(op)
        return NpuOperation(op.op, op.parameter, registers, addresses, self._served[time], op.language)
