"""BLOCKDEP: how far a kernel may run ahead into the kernel before it.

Invariant: job f (from 0) of a kernel may start while the last BLOCKDEP - f output blocks of the kernel
before are unwritten, so it must not read them. Blocks run depth first, then x, then y; a convolution has
one job for each slice of 256 bits of input channels, other kernels one for each block.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from npu_memplan.ethosu.stream.commands import Wait
from npu_memplan.ethosu.stream.isa import Op, PoolMode, Register, Upscale

from .convolution import ConvolutionSpec
from .dma import DmaSpec
from .elementwise import ElementwiseSpec
from .errors import BlockDependencyError
from .footprint import Access, of_pieces
from .kernel import Window
from .layout import Layout
from .output import OutputSpec
from .pooling import PoolingSpec
from .program import Program, Step

_SLICE_BITS = 256
Span = tuple[int, int]
Box = tuple[Span, Span, Span]  # rows, columns, channels; half open


def check(program: Program) -> None:
    """`BlockDependencyError` for the first kernel that may read blocks not yet written."""
    previous: Step | None = None
    for command in program.commands:
        if isinstance(command, Wait) and command.op is Op.KERNEL_WAIT and command.outstanding == 0:
            previous = None
        elif isinstance(command, Step) and not command.is_dma:
            if previous is not None:
                _pair(previous, command)
            previous = command


def _pair(previous: Step, step: Step) -> None:
    dependency = step.registers.raw(Register.BLOCKDEP)
    if not dependency:
        return
    written, spec = previous.spec, step.spec
    assert not isinstance(written, DmaSpec)
    assert not isinstance(spec, DmaSpec)
    output = written.output
    whole = _output_access(output, ((0, output.height), (0, output.width), (0, output.depth)))
    inputs = [spec.ifm] + ([spec.ifm2] if isinstance(spec, ElementwiseSpec) and spec.ifm2 is not None else [])
    if not any(layout.region == output.layout.region for layout in inputs):
        return
    last = [_output_access(output, box) for box in _last_blocks(previous, dependency)]
    for job, reads in enumerate(islice(_jobs(step), dependency)):
        for read in reads:
            if read.first_common(whole) is None:
                continue
            for block in last[: dependency - job]:
                at = read.first_common(block)
                if at is not None:
                    raise BlockDependencyError(
                        f"{step.registers.where} has BLOCKDEP {dependency}: its block {job} may read byte {at:#x} of "
                        f"region {read.region} ({read.name}) before {previous.registers.where} has written it; "
                        f"BLOCKDEP must be lower"
                    )


def _output_access(output: OutputSpec, box: Box) -> Access:
    return of_pieces("OFM", output.layout.region, output.layout.block(*box), output.dtype.itemsize)


def _steps(total: int, step: int) -> list[Span]:
    return [(start, min(start + step, total)) for start in range(0, total, step)]


def _grid(step: Step) -> tuple[list[Span], list[Span], list[Span]]:
    """Block boundaries along rows, columns, channels."""
    output = step.spec.output  # type: ignore[union-attr]
    sizes = (
        step.registers.raw(r) + 1
        for r in (Register.OFM_BLK_HEIGHT_M1, Register.OFM_BLK_WIDTH_M1, Register.OFM_BLK_DEPTH_M1)
    )
    rows, columns, channels = (
        _steps(total, size) for total, size in zip((output.height, output.width, output.depth), sizes, strict=True)
    )
    return rows, columns, channels


def _last_blocks(step: Step, count: int) -> list[Box]:
    """The last `count` output blocks, the very last first."""
    rows, columns, channels = _grid(step)
    backwards = ((y, x, c) for y in reversed(rows) for x in reversed(columns) for c in reversed(channels))
    return list(islice(backwards, count))


def _jobs(step: Step) -> Iterator[list[Access]]:
    """What each job reads of the feature maps, in order."""
    spec = step.spec
    assert not isinstance(spec, DmaSpec)
    rows, columns, channels = _grid(step)
    for y in rows:
        for x in columns:
            for c in channels:
                if isinstance(spec, ElementwiseSpec):
                    yield _elementwise(spec, (y, x, c))
                    continue
                window, depths = spec.window, [c]
                if (isinstance(spec, ConvolutionSpec) and not spec.depthwise) or (
                    isinstance(spec, PoolingSpec) and spec.mode is PoolMode.REDUCE_SUM
                ):
                    depths = _steps(spec.ifm_depth, _SLICE_BITS // (8 * spec.ifm.dtype.itemsize))
                area = _input_rows(window, y, False), _input_rows(window, x, True)
                for depth in depths:
                    yield [_access("IFM", spec.ifm, (*area, depth))]


def _access(name: str, layout: Layout, box: Box) -> Access:
    empty = any(start >= stop for start, stop in box)
    return of_pieces(name, layout.region, () if empty else layout.block(*box), layout.dtype.itemsize)


def _elementwise(spec: ElementwiseSpec, box: Box) -> list[Access]:
    reads = [_access("IFM", spec.ifm, box)]
    if spec.ifm2 is not None:
        spans = [(0, 1) if n == 1 else span for n, span in zip(spec.ifm2_shape, box, strict=True)]
        reads.append(_access("IFM2", spec.ifm2, (spans[0], spans[1], spans[2])))
    return reads


def _input_rows(window: Window, span: Span, columns: bool) -> Span:
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
