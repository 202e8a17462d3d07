"""BLOCKDEP: how far a kernel may run ahead into the kernel before it.

Invariant: job f (from 0) of a kernel may start while the last BLOCKDEP - f output blocks of the kernel
before are unwritten, so it must not read them. Blocks run depth first, then x, then y. A kernel that sums
over channels has one job for each slice of input channels that the traversal takes in at once, any other
kernel one for each block. A kernel whose working memory lies over a table may not run ahead at all into
a kernel that still reads it. docs/npu_model.md says where each rule comes from.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, product

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.commands import Wait
from npu_memplan.ethosu.stream.isa import Op, Register, Upscale

from ..errors import BlockDependencyError
from ..spec.dma import DmaSpec
from ..spec.layout import InputSpec, Interval, MapLayout
from ..spec.output import OutputSpec
from ..spec.stream import DecodedStep, DecodedStream
from ..spec.sums import SumSpec
from ..spec.u85.kernels import ResizeSpec
from ..spec.window import Window
from .footprint import Access, internal_scratch, of_pieces, table
from .operands import is_by_element, is_continued, operands

Box = tuple[Interval, Interval, Interval]  # rows, columns, channels; half open


def check(program: DecodedStream) -> tuple[str, ...]:
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
            fault = None if previous is None else _fault(previous, command, program.accelerator, begun or command)
            if fault is not None and delay is None:
                raise BlockDependencyError(f"{fault}; BLOCKDEP must be lower")
            if fault is not None and delay is not None:
                assert isinstance(delay.spec, DmaSpec)
                found.append(
                    f"relies on timing: {fault}, unless that ends during the wait for {delay.registers.where} between "
                    f"them ({delay.spec.size_bytes:,} bytes); nothing but time orders the two: BLOCKDEP should be lower"
                )
            begun = (begun or command) if is_continued(command) else None
            if begun is None:
                previous, younger, delay = command, [], None
    return tuple(found)


def _fault(previous: DecodedStep, step: DecodedStep, accelerator: Architecture, first: DecodedStep) -> str | None:
    """What the BLOCKDEP of `first`, the kernel that a chain begins with, lets `step` do wrong after `previous`."""
    dependency = first.registers.raw(Register.BLOCKDEP)
    if not dependency:
        return None
    written, spec = previous.spec, step.spec
    assert not isinstance(written, DmaSpec)
    assert not isinstance(spec, DmaSpec)
    output = written.output
    scratch = internal_scratch(step, accelerator)
    lookup = table(output, accelerator)
    if lookup is not None and scratch is not None and scratch[0] < lookup[1] and lookup[0] < scratch[1]:
        return (
            f"{step.registers.where} has BLOCKDEP {dependency}: its working memory lies over the look-up table in slot "
            f"{output.lut_slot}, which {previous.registers.where} may still read"
        )
    whole = _output_access(output, ((0, output.height), (0, output.width), (0, output.depth)))
    if output.kept or not any(operand.map.region == output.layout.region for operand in operands(spec)):
        return None
    last = [_output_access(output, box) for box in _last_blocks(previous, dependency)]
    for job, reads in enumerate(islice(_jobs(step), dependency)):
        for read in reads:
            if read.first_common(whole) is None:
                continue
            for block in last[: dependency - job]:
                at = read.first_common(block)
                if at is not None:
                    return (
                        f"{step.registers.where} has BLOCKDEP {dependency}: its block {job} may read byte {at:#x} of "
                        f"region {read.region} ({read.name}) before {previous.registers.where} has written it"
                    )
    return None


def _output_access(output: OutputSpec, box: Box) -> Access:
    rows, columns, channels = output.stored_box(box)
    return of_pieces("OFM", output.layout.region, output.layout.block(rows, columns, channels), output.dtype.itemsize)


def _steps(total: int, step: int) -> list[Interval]:
    return [(start, min(start + step, total)) for start in range(0, total, step)]


def _grid(step: DecodedStep) -> tuple[list[Interval], list[Interval], list[Interval]]:
    """Block boundaries along rows, columns, channels."""
    registers = (Register.OFM_BLK_HEIGHT_M1, Register.OFM_BLK_WIDTH_M1, Register.OFM_BLK_DEPTH_M1)
    extents = step.spec.output.shape  # type: ignore[union-attr]
    y, x, c = (_steps(n, step.registers.raw(r) + 1) for n, r in zip(extents, registers, strict=True))
    return y, x, c


def _last_blocks(step: DecodedStep, count: int) -> list[Box]:
    """The last `count` output blocks, the very last first."""
    y, x, c = _grid(step)
    return list(islice(product(y[::-1], x[::-1], c[::-1]), count))


def _jobs(step: DecodedStep) -> Iterator[list[Access]]:
    """What each job reads of the feature maps, in order."""
    spec = step.spec
    assert not isinstance(spec, DmaSpec)
    for box in product(*_grid(step)):
        if isinstance(spec, SumSpec):
            yield from _window_jobs(spec, box)
        elif isinstance(spec, ResizeSpec):
            yield [_resized(spec, box)]
        else:
            yield [_by_element(operand, box) for operand in operands(spec)]


def _access(name: str, layout: MapLayout, box: Box) -> Access:
    empty = any(start >= stop for start, stop in box)
    return of_pieces(name, layout.region, () if empty else layout.block(*box), layout.dtype.itemsize)


def _by_element(operand: InputSpec, box: Box) -> Access:
    spans = [(0, 1) if n == 1 else span for n, span in zip(operand.shape, box, strict=True)]
    return _access(operand.name, operand.map, (spans[0], spans[1], spans[2]))


def _window_jobs(spec: SumSpec, box: Box) -> Iterator[list[Access]]:
    """Jobs of one block of a kernel with a window."""
    y, x, c = box
    area = _input_rows(spec.window, y, False), _input_rows(spec.window, x, True)
    depths = _steps(spec.input.shape[2], spec.slice_depth) if spec.sums_channels else [c]
    for depth in depths:
        reads = []
        for operand in operands(spec):
            if is_by_element(spec, operand):
                reads.append(_by_element(operand, box))
            elif operand.name == "IFM2":  # a matrix: rows of input channels for each output channel
                reads.append(_access("IFM2", operand.map, ((0, 1), c, depth)))
            else:
                reads.append(_access("IFM", operand.map, (*area, depth)))
        yield reads


def _resized(spec: ResizeSpec, box: Box) -> Access:
    """The input that a block of a RESIZE needs: between the places of its first and last element, and one more."""
    spans = []
    for axis, span, extent in ((spec.y, box[0], spec.input.shape[0]), (spec.x, box[1], spec.input.shape[1])):
        first = (span[0] * axis.step + axis.offset) // axis.numerator
        last = ((span[1] - 1) * axis.step + axis.offset) // axis.numerator + 2
        spans.append((min(max(first, 0), extent - 1), min(max(last, 1), extent)))
    return _access("IFM", spec.input.map, (spans[0], spans[1], box[2]))


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
