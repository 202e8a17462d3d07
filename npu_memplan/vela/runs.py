"""Kernels of a stream that one kernel can do: each goes on, row by row, where the one before ended.

Invariant: the joined kernel reads and writes the bytes that its parts read and write, in the same order of rows, and
none of the rows that it writes is one that it reads. Compilers cut maps of more than 65,536 rows (the pixels of an
ARG_MAX over a large image, one a row) into kernels of one block: 65,793 of them for 513 x 513 pixels. Short runs stay
as they are: the turns of a cascade are the compiler's choice.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from ..ethosu.arch import Language
from ..ethosu.program.featuremap import FeatureMap
from ..ethosu.stream.commands import Operation
from ..ethosu.stream.decode import decode_straight
from ..ethosu.stream.fields import KernelStride
from ..ethosu.stream.groups import IFM, OFM
from ..ethosu.stream.isa import Op, Register, Upscale
from ..models.vela import NpuCall

_SHORT = 32  # kernels
_MOST_ROWS = 1 << 16  # that a register of 16 bits can say
_KINDS = (Op.CONV, Op.DEPTHWISE, Op.POOL)
_BASES = (IFM.bases[0], OFM.bases[0])
_HEIGHTS = (IFM.height0, IFM.height1, OFM.height0, OFM.height1, Register.OFM_HEIGHT_M1)
_ONE_ROW = (Register.KERNEL_HEIGHT_M1, Register.IFM_PAD_TOP, Register.IFM_PAD_BOTTOM)


@functools.lru_cache(maxsize=8)  # calls are immutable and compare by identity; several stages ask
def operations_of(call: NpuCall) -> tuple[Operation, ...]:
    """The operations of a call's stream, such runs joined."""
    return tuple(
        join_runs([c for c in decode_straight(call.words, call.accelerator.language) if isinstance(c, Operation)])
    )


def join_runs(operations: Sequence[Operation]) -> list[Operation]:
    """`operations` with each run of such kernels as one, at the stream offset of its first."""
    joined: list[Operation] = []
    for run in _runs(operations):
        joined += run if len(run) < _SHORT else _pieces(run)
    return joined


def _runs(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    run: list[Operation] = []
    for operation in operations:
        if run and not _continues(run[-1], operation):
            yield run
            run = []
        run.append(operation)
    if run:
        yield run


def _continues(first: Operation, second: Operation) -> bool:
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
    """As few kernels as the registers allow; the run as it is where it reads what it writes."""
    rows = run[0][Register.OFM_HEIGHT_M1] + 1
    each = _MOST_ROWS // rows
    counts = {place: min(each, len(run) - place) for place in range(0, len(run), each)}
    pieces = [run[place].with_registers(dict.fromkeys(_HEIGHTS, n * rows - 1)) for place, n in counts.items()]
    yield from pieces if all(_apart(piece) for piece in pieces) else run


def _apart(operation: Operation) -> bool:
    """Whether no byte between the first and the last that it writes is one that it reads."""
    (first, last), (low, high) = FeatureMap.ifm(operation).span(), FeatureMap.ofm(operation).span()
    return last <= low or high <= first
