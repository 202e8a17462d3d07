"""The checks: completion orders, missing waits, block dependencies, overwritten inputs, undefined bytes.

Invariant: a completion order is legal: kernels finish in the order they were started, so do transfers where only one is
in flight (U55), a wait is honoured, and no more are unfinished at once than the NPU can hold. Everything else is free,
and a correct stream gives the same bytes under every order. The check of waits is pessimistic about time: what was
started is unfinished until a wait or a full queue says otherwise, and where two transfers are in flight at once (U65)
one is checked against the one before it as well.

BLOCKDEP: job f (from 0) of a kernel may start while the last BLOCKDEP - f output blocks of the kernel before are
unwritten, so it must not read them. Blocks run depth first, then x, then y. A kernel that sums over channels has one
job for each slice of input channels that the traversal takes in at once, any other kernel one for each block. A kernel
whose working memory lies over a table may not run ahead at all into a kernel that still reads it. docs/npu_model.md
says where each rule comes from.

An operation may write over its own input only when every input element is overwritten by the output element that is
computed from it alone, and by no other: each element has one address in both maps. Then the order of the blocks does
not matter, since no block reads what another writes, and within a block the input is in before the output goes out. A
transfer of bytes onto themselves changes nothing in any order. Anything else may read its own output, because hardware
works block by block.

The check of undefined bytes looks at the shadows only, never at data, and says which operation uses what. Moving bytes
is no use of them: a transfer (whose length compilers round up) takes along what is undefined, as undefined. A kernel
uses the elements of its inputs, its whole weight stream, ten bytes a channel of its scale table and its look-up table.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice, product

import numpy as np

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.decode import Wait
from npu_memplan.ethosu.stream.isa import Op, Register, Upscale

from ..bound.kernels import Bound, WindowKernel
from ..bound.memory import Dma, RegionMemory, unwritten_error
from ..errors import BlockDependencyError, MissingWaitError, SelfOverwriteError, UninitialisedReadError
from ..spec.feature_maps import InputSpec, Interval, MapLayout, OutputSpec, Window
from ..spec.operations import DmaSpec, SumSpec
from ..spec.stream import DecodedStep, DecodedStream
from ..spec.u85 import ResizeSpec
from .footprint import (
    INTERNAL,
    Access,
    Footprint,
    chain_groups,
    input_specs,
    internal_scratch,
    is_by_element,
    is_continued,
    join_footprints,
    of_pieces,
    step_footprint,
    table_bytes,
)

MAX_KERNELS = 2  # started and unfinished at once, on U55 and U65


class Policy(Enum):
    EAGER = "eager"
    LAZY = "lazy"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How kernels and transfers are delayed."""

    kernels: Policy
    dma: Policy
    seed: int = 0

    def ordered_steps(self, program: DecodedStream, flag: Callable[[], bool]) -> Iterator[DecodedStep]:
        """All steps in the order in which they take effect; `flag` as for `DecodedStream.executed_commands`."""
        chance = random.Random(self.seed)
        kernels: deque[DecodedStep] = deque()
        transfers: deque[DecodedStep] = deque()
        queues = ((kernels, self.kernels, MAX_KERNELS), (transfers, self.dma, program.accelerator.max_outstanding_dma))

        def idle_steps() -> Iterator[DecodedStep]:
            for queue, policy, _ in queues:
                while queue and (policy is Policy.EAGER or (policy is Policy.RANDOM and chance.random() < 0.4)):
                    if queue is transfers and policy is Policy.RANDOM:
                        queue.rotate(-chance.randrange(len(queue)))  # at most two: swaps them or not
                    yield queue.popleft()

        for command in program.executed_commands(flag):
            yield from idle_steps()
            if isinstance(command, DecodedStep):
                queue, _, limit = queues[command.is_dma]
                while len(queue) >= limit:
                    yield queue.popleft()
                queue.append(command)
            elif isinstance(command, Wait):
                queue = queues[command.op is Op.DMA_WAIT][0]
                while len(queue) > command.outstanding:
                    yield queue.popleft()
        while kernels or transfers:
            pick = [queue for queue, _, _ in queues if queue]
            yield chance.choice(pick).popleft()

    @staticmethod
    def adversarial_schedules(count: int) -> Iterator[Schedule]:
        """`count` schedules: the extremes first, then random ones."""
        extremes = (
            Schedule(Policy.LAZY, Policy.EAGER),
            Schedule(Policy.EAGER, Policy.LAZY),
            Schedule(Policy.LAZY, Policy.LAZY, 1),
        )
        yield from extremes[:count]
        for seed in range(count - len(extremes)):
            yield Schedule(Policy.RANDOM, Policy.RANDOM, seed)


def check_waits(program: DecodedStream) -> None:
    """`MissingWaitError` for the first operation that may start too early."""
    continued = False  # the next kernel is part of the last one
    kernels: list[tuple[DecodedStep, Footprint]] = []
    transfers: list[tuple[DecodedStep, Footprint]] = []
    for command in program.commands:
        if isinstance(command, Wait):
            queue = transfers if command.op is Op.DMA_WAIT else kernels
            del queue[: max(len(queue) - command.outstanding, 0)]
        elif isinstance(command, DecodedStep):
            mine = step_footprint(command, program.accelerator)
            own, others = (transfers, kernels) if command.is_dma else (kernels, transfers)
            unordered = command.is_dma and program.accelerator.max_outstanding_dma > 1
            for queue in (others, own) if unordered else (others,):
                for position, (earlier, its) in enumerate(queue):
                    _require_order(earlier, its, command, mine, len(queue) - 1 - position)
            if continued and own is kernels and own:
                own[-1] = (command, join_footprints(own[-1][1], mine))
            else:
                own.append((command, mine))
            if not command.is_dma:
                continued = is_continued(command)
            limit = program.accelerator.max_outstanding_dma if command.is_dma else MAX_KERNELS
            del own[: max(len(own) - limit, 0)]
        elif command.op is Op.BRANCH and (kernels or transfers):
            raise MissingWaitError(
                f"BRANCH at stream offset {command.offset_bytes:#x} may be taken before what stands before it has "
                "finished; put KERNEL_WAIT 0 and DMA_WAIT 0 before it"
            )


def _require_order(earlier: DecodedStep, its: Footprint, later: DecodedStep, mine: Footprint, outstanding: int) -> None:
    found = its.find_conflict(mine)
    if found is None:
        return
    kind, first, second, at = found
    where = "the NPU's internal memory" if first.region == INTERNAL else f"region {first.region}"
    wait = "DMA_WAIT" if earlier.is_dma else "KERNEL_WAIT"
    raise MissingWaitError(
        f"{later.registers.op_text} may start before {earlier.registers.op_text} has finished, and {kind}: "
        f"{second.name} meets its {first.name} at byte {at:#x} of {where}; "
        f"put {wait} {outstanding} before it"
    )


Box = tuple[Interval, Interval, Interval]  # rows, columns, channels; half open


def check_blockdep(program: DecodedStream) -> tuple[str, ...]:
    """`BlockDependencyError` for the first kernel that may read blocks not yet written.

    Returned are the kernels that only time keeps from it: between the two is a DMA_WAIT for a transfer that was
    started after the first. Such a wait says nothing of the kernel; it merely takes as long as the transfer does.
    """
    previous: DecodedStep | None = None
    begun: DecodedStep | None = None  # the first kernel of the chain that goes on
    younger: list[DecodedStep] = []  # transfers started after `previous`, unfinished for all we know
    delay: DecodedStep | None = None  # the last of them that a DMA_WAIT has waited for
    found: list[str] = []
    for command in program.commands:
        if isinstance(command, Wait):
            if command.op is Op.DMA_WAIT:
                finished = max(len(younger) - command.outstanding, 0)
                delay = younger[finished - 1] if finished else delay
                del younger[:finished]
            elif command.outstanding == 0:
                previous = None
        elif isinstance(command, DecodedStep) and command.is_dma:
            younger.append(command)
        elif isinstance(command, DecodedStep):
            fault = (
                None if previous is None else _blockdep_fault(previous, command, program.accelerator, begun or command)
            )
            if fault is not None and delay is None:
                raise BlockDependencyError(f"{fault}; BLOCKDEP must be lower")
            if fault is not None and delay is not None:
                assert isinstance(delay.spec, DmaSpec)
                found.append(
                    f"relies on timing: {fault}, unless that ends during the wait for {delay.registers.op_text} "
                    f"between them ({delay.spec.size_bytes:,} bytes); nothing but time orders the two: "
                    "BLOCKDEP should be lower"
                )
            begun = (begun or command) if is_continued(command) else None
            if begun is None:
                previous, younger, delay = command, [], None
    return tuple(found)


def _blockdep_fault(
    previous: DecodedStep, step: DecodedStep, accelerator: Architecture, first: DecodedStep
) -> str | None:
    """The fault that the BLOCKDEP of `first`, which begins a chain, lets `step` make after `previous`."""
    dependency = first.registers.raw_value(Register.BLOCKDEP)
    if not dependency:
        return None
    written, spec = previous.spec, step.spec
    assert not isinstance(written, DmaSpec)
    assert not isinstance(spec, DmaSpec)
    output = written.output
    scratch = internal_scratch(step, accelerator)
    lookup = table_bytes(output, accelerator)
    if lookup is not None and scratch is not None and scratch[0] < lookup[1] and lookup[0] < scratch[1]:
        return (
            f"{step.registers.op_text} has BLOCKDEP {dependency}: its working memory lies over the look-up table in "
            f"slot {output.lut_slot}, which {previous.registers.op_text} may still read"
        )
    whole = _output_access(output, ((0, output.height), (0, output.width), (0, output.depth)))
    if output.kept or not any(operand.map.region == output.layout.region for operand in input_specs(spec)):
        return None
    last = [_output_access(output, box) for box in _last_blocks(previous, dependency)]
    for job, reads in enumerate(islice(_job_reads(step), dependency)):
        for read in reads:
            if read.first_common(whole) is None:
                continue
            for block in last[: dependency - job]:
                at = read.first_common(block)
                if at is not None:
                    return (
                        f"{step.registers.op_text} has BLOCKDEP {dependency}: its block {job} may read byte {at:#x} of "
                        f"region {read.region} ({read.name}) before {previous.registers.op_text} has written it"
                    )
    return None


def _output_access(output: OutputSpec, box: Box) -> Access:
    rows, columns, channels = output.stored_box(box)
    return of_pieces(
        "OFM", output.layout.region, output.layout.box_pieces(rows, columns, channels), output.dtype.itemsize
    )


def _step_intervals(total: int, step: int) -> list[Interval]:
    return [(start, min(start + step, total)) for start in range(0, total, step)]


def _block_grid(step: DecodedStep) -> tuple[list[Interval], list[Interval], list[Interval]]:
    """Block boundaries along rows, columns, channels."""
    registers = (Register.OFM_BLK_HEIGHT_M1, Register.OFM_BLK_WIDTH_M1, Register.OFM_BLK_DEPTH_M1)
    extents = step.spec.output.shape  # type: ignore[union-attr]
    y, x, c = (_step_intervals(n, step.registers.raw_value(r) + 1) for n, r in zip(extents, registers, strict=True))
    return y, x, c


def _last_blocks(step: DecodedStep, count: int) -> list[Box]:
    """The last `count` output blocks, the very last first."""
    y, x, c = _block_grid(step)
    return list(islice(product(y[::-1], x[::-1], c[::-1]), count))


def _job_reads(step: DecodedStep) -> Iterator[list[Access]]:
    """The bytes that each job reads of the feature maps, in order."""
    spec = step.spec
    assert not isinstance(spec, DmaSpec)
    for box in product(*_block_grid(step)):
        if isinstance(spec, SumSpec):
            yield from _window_jobs(spec, box)
        elif isinstance(spec, ResizeSpec):
            yield [_resize_access(spec, box)]
        else:
            yield [_by_element(operand, box) for operand in input_specs(spec)]


def _box_access(name: str, layout: MapLayout, box: Box) -> Access:
    empty = any(start >= stop for start, stop in box)
    return of_pieces(name, layout.region, () if empty else layout.box_pieces(*box), layout.dtype.itemsize)


def _by_element(operand: InputSpec, box: Box) -> Access:
    spans = [(0, 1) if n == 1 else span for n, span in zip(operand.shape, box, strict=True)]
    return _box_access(operand.name, operand.map, (spans[0], spans[1], spans[2]))


def _window_jobs(spec: SumSpec, box: Box) -> Iterator[list[Access]]:
    """Jobs of one block of a kernel with a window."""
    y, x, c = box
    area = _input_rows(spec.window, y, False), _input_rows(spec.window, x, True)
    depths = _step_intervals(spec.input.shape[2], spec.slice_depth) if spec.sums_channels else [c]
    for depth in depths:
        reads = []
        for operand in input_specs(spec):
            if is_by_element(spec, operand):
                reads.append(_by_element(operand, box))
            elif operand.name == "IFM2":  # a matrix: rows of input channels for each output channel
                reads.append(_box_access("IFM2", operand.map, ((0, 1), c, depth)))
            else:
                reads.append(_box_access("IFM", operand.map, (*area, depth)))
        yield reads


def _resize_access(spec: ResizeSpec, box: Box) -> Access:
    """The input that a block of a RESIZE needs: between the places of its first and last element, and one more."""
    spans = []
    for axis, span, extent in ((spec.y, box[0], spec.input.shape[0]), (spec.x, box[1], spec.input.shape[1])):
        first = (span[0] * axis.step + axis.offset) // axis.numerator
        last = ((span[1] - 1) * axis.step + axis.offset) // axis.numerator + 2
        spans.append((min(max(first, 0), extent - 1), min(max(last, 1), extent)))
    return _box_access("IFM", spec.input.map, (spans[0], spans[1], box[2]))


def _input_rows(window: Window, span: Interval, columns: bool) -> Interval:
    """Rows (or columns) of the input in memory that output rows `span` need."""
    stride, taps, dilation, pad = (
        (window.stride_x, window.width, window.dilation_x, window.pad_left)
        if columns
        else (window.stride_y, window.height, window.dilation_y, window.pad_top)
    )
    first = span[0] * stride - pad
    stop = (span[1] - 1) * stride - pad + (taps - 1) * dilation + 1
    limit = window.input_shape[columns]
    if window.upscale is not Upscale.NONE:
        first, stop = first // 2, (stop + 1) // 2
    return max(first, 0), min(stop, limit)


def check_in_place(program: DecodedStream) -> None:
    """`SelfOverwriteError` for the first operation whose output covers bytes of its own input."""
    for group in chain_groups(program.steps):
        found = [(step, step_footprint(step, program.accelerator)) for step in group]
        for writer, its in found:
            for write in its.writes:
                for step, mine in found:
                    for read in mine.reads:
                        at = read.first_common(write)
                        if at is not None and not _element_by_element(step, writer, read):
                            whose = "its own" if step is writer else f"the chained {step.registers.op_text}'s"
                            raise SelfOverwriteError(
                                f"{writer.registers.op_text} writes its {write.name} over {whose} "
                                f"{read.name} at byte {at:#x} of region {read.region} while it still reads it; "
                                "place the two apart"
                            )


def _element_by_element(step: DecodedStep, writer: DecodedStep, read: Access) -> bool:
    """Each element that `step` reads through `read` is overwritten by the result that is computed from it alone."""
    spec, output = step.spec, writer.spec.output if not isinstance(writer.spec, DmaSpec) else None
    if isinstance(spec, DmaSpec):
        return step is writer and _is_onto_itself(spec)
    if output is None or output.axes != (0, 1, 2) or output.reverse >= 0:
        return False
    shape = output.shape
    for operand in input_specs(spec):
        if operand.name != read.name:
            continue
        if not (is_by_element(spec, operand) or (isinstance(spec, SumSpec) and _is_one_element(spec, shape[2]))):
            return False
        source = operand.map
        return (
            operand.shape == shape
            and source.dtype.itemsize == output.dtype.itemsize
            and np.array_equal(source.element_addresses(*shape), output.layout.element_addresses(*shape))
        )
    return False


def _is_onto_itself(spec: DmaSpec) -> bool:
    """Whether a transfer writes each byte to where it reads it: Vela emits such where a copy was left out."""
    source, target = spec.source, spec.destination
    place = (target.region, target.internal, target.start, target.strides)
    return spec.index is None and place == (source.region, source.internal, source.start, source.strides)


def _is_one_element(spec: SumSpec, depth: int) -> bool:
    return spec.window.is_one_element and not (spec.sums_channels and (spec.input.shape[2], depth) != (1, 1))


def check_defined(memory: RegionMemory, step: DecodedStep, operation: Bound) -> None:
    """`UninitialisedReadError` when the operation would read something that was never written."""
    if isinstance(operation, Dma):
        operation.check_defined()
        return
    for read in operation.maps:
        read.check_defined()
    if isinstance(operation, WindowKernel):
        for span, shadow in operation.constant_shadows():
            if not shadow.all():
                raise unwritten_error(step.registers, span, shadow, span.start + int(np.argmin(shadow)))
    output = operation.output.spec
    lookup = table_bytes(output, memory.accelerator)
    if lookup is not None and not memory.shram_shadow[lookup[0] : lookup[1]].all():
        missing = int(np.count_nonzero(~memory.shram_shadow[lookup[0] : lookup[1]]))
        raise UninitialisedReadError(
            f"{step.registers.op_text}: ACTIVATION reads LUT slot {output.lut_slot}, of which no DMA has filled "
            f"{missing} bytes"
        )


def overwrite_tables(memory: RegionMemory, step: DecodedStep) -> None:
    """Forget look-up tables that the kernel's working memory lies over."""
    scratch = internal_scratch(step, memory.accelerator)
    if scratch is not None:
        memory.shram_shadow[scratch[0] : scratch[1]] = False
