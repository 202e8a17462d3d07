"""Which parts of Ethos-U85's language a reference has confirmed.

Invariant: `CONFIRMED` names what operators of TFLite (`tests/npu_model/test_u85_model.py` holds it against the
streams of its tests) and of TOSA (`benchmarks.tosa_conformance`, a sample of it in tests/tosa) reach and equals their
references on every element; what is not in it is executed from its description, and every report of a stream says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from npu_memplan.ethosu.arch import Language
from npu_memplan.ethosu.stream.commands import Command, Operation
from npu_memplan.ethosu.stream.isa import ElementwiseMode, Op, PoolMode, Register
from npu_memplan.ethosu.stream.isa_u85 import (
    AccumulatorInput,
    ResizeKind,
    ScaleRounding,
    StoredBackwards,
    StoredOrder,
    TableKind,
)

from .kernels import divides


def features(operation: Operation) -> Iterator[str]:
    """What an operation uses, in words; registers that mean nothing to it are left out."""
    get = operation.get
    if operation.op is Op.DMA_START:
        yield from _transfer(get(Register.DMA0_SRC_REGION), get(Register.DMA0_DST_REGION))
        return
    yield _kind(operation)
    output, accumulators = get(Register.OFM_PRECISION), get(Register.ACC_FORMAT)
    yield from _named("stored order", StoredOrder, output >> 11 & 7, StoredOrder.HWC)
    yield from _named("stored backwards", StoredBackwards, output >> 9 & 3, StoredBackwards.NONE)
    yield from _named("look-up", TableKind, get(Register.ACTIVATION) & 31, TableKind.NONE)
    if operation.op is not Op.RESIZE and (operation.op is Op.ELEMENTWISE or output >> 8 & 1):
        yield from _named("rounding", ScaleRounding, get(Register.OFM_SCALE) >> 45 & 7, None)
    if 8 in (1 << (output >> 1 & 3), 1 << (get(Register.IFM_PRECISION) >> 2 & 3)):
        yield "64-bit elements"
    if operation.op in (Op.CONV, Op.DEPTHWISE, Op.POOL):
        if accumulators & 3:
            yield "48-bit sums"
        yield from _named("sums start from", AccumulatorInput, accumulators >> 4 & 3, AccumulatorInput.RESET)
    if operation.op is Op.POOL and _may_divide_twice(operation):
        yield "POOL AVERAGE, whose scale may divide by the window too (as Vela up to 5.0 writes it),"
    if operation.op in (Op.CONV, Op.DEPTHWISE) and not operation.parameter & 1:
        weights = get(Register.WEIGHT_FORMAT)
        if weights & 1:
            yield "fast weights"
        if weights & 16:
            yield "2:4 weights"


def unconfirmed(commands: Iterable[Command]) -> tuple[str, ...]:
    """One line for each part that no reference has confirmed, with the first operation that uses it."""
    found: dict[str, Operation] = {}
    for operation in commands:
        if not isinstance(operation, Operation) or operation.language is not Language.U85:
            continue
        for name in features(operation):
            if name not in CONFIRMED:
                found.setdefault(name, operation)
    return tuple(
        f"{name} is unconfirmed: modelled from its description, no reference confirms it (first at "
        f"{operation.op.name} at stream offset {operation.offset_bytes:#x})"
        for name, operation in found.items()
    )


def _kind(operation: Operation) -> str:
    parameter = operation.parameter
    if operation.op is Op.ELEMENTWISE:
        return f"ELEMENTWISE {_name(ElementwiseMode, parameter)}"
    if operation.op is Op.POOL:
        return f"POOL {_name(PoolMode, parameter)}"
    if operation.op is Op.RESIZE:
        return f"RESIZE {_name(ResizeKind, parameter)}"
    return "matrix product" if operation.op is Op.CONV and parameter & 1 else operation.op.name


def _transfer(source: int, target: int) -> Iterator[str]:
    yield ("transfer", "transfer of rows", "transfer of planes", "transfer 3")[source >> 9 & 3]
    if source >> 11 & 1:
        yield "gather"
    if target >> 11 & 1:
        yield "scatter"


def _may_divide_twice(operation: Operation) -> bool:
    """Whether the scale of an average may be a ratio of scales over the elements of its window.

    Vela up to 5.0 writes such scales, Vela 5.2 the ratio alone. What is 1/elements is known (`kernels.divides`); of a
    ratio near that nobody can tell which of the two it is. The model takes it for the ratio.
    """
    if operation.parameter != PoolMode.AVERAGE:
        return False
    word = operation.get(Register.OFM_SCALE)
    taps = (operation.get(Register.KERNEL_HEIGHT_M1) + 1) * (operation.get(Register.KERNEL_WIDTH_M1) + 1)
    times = math.ldexp((word & 0xFFFFFFFF) * taps, -(word >> 32 & 63))
    return taps > 1 and 1 / 2 < times < 2 and not divides(word, taps)


def _named(what: str, kinds: type, value: int, usual: object) -> Iterator[str]:
    if value != usual:
        yield f"{what} {_name(kinds, value)}"


def _name(kinds: type, value: int) -> str:
    try:
        return str(kinds(value).name)
    except ValueError:
        return str(value)


_OF_TFLITE = {
    "": "CONV,DEPTHWISE,matrix product,transfer,gather,64-bit elements,48-bit sums,fast weights,2:4 weights",
    "ELEMENTWISE ": "ABS,ADD,CLZ,DIV,LRELU,MAX,MIN,MUL,SHL,SHR,SUB",
    "POOL ": "ARGMAX_X,AVERAGE,MAX,NONE,REDUCE_SUM,SUM",
    "RESIZE ": "BILINEAR,NEAREST",
    "look-up ": "S16_S16,S8_S32,S8_S8,SIGMOID,TANH",
    "rounding ": "DOUBLE_SYMMETRIC,NATURAL,TRUNCATE_TO_LOWER",
    "stored order ": "CHW,HCW,WCH,WHC",
    "sums start from ": "IFM2",
}
_OF_TOSA = {
    "": "scatter,transfer of rows,transfer of planes",
    "ELEMENTWISE ": "AND,AND_NOT,CMP_EQ,CMP_GE,CMP_GT,CMP_NE,LSR,NOT,OR,XOR",
    "POOL ": "MIN",
    "look-up ": "S16_S32",
    "stored backwards ": "C,H,W",
    "stored order ": "CWH",
    "sums start from ": "KEEP",
}
CONFIRMED = frozenset(
    group + kind for found in (_OF_TFLITE, _OF_TOSA) for group, kinds in found.items() for kind in kinds.split(",")
)
