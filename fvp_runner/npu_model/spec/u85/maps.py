"""Feature maps and the output of an Ethos-U85 operation.

Invariant: a chained map has no address, whatever its address registers hold; a scalar is no map.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npu_memplan.ethosu.stream.isa import Register, Rounding
from npu_memplan.ethosu.stream.isa_u85 import MapStorage, ScaleRounding, StoredOrder, TableKind

from ...arithmetic.rescale import Scale
from ..layout import ELEMENT_TYPES, InputSpec, MapLayout, Shape3
from ..output import Activation, OutputSpec
from ..registers import Registers

_ROUNDINGS = {
    ScaleRounding.DOUBLE_SYMMETRIC: Rounding.TFL,
    ScaleRounding.NATURAL: Rounding.NATURAL,
    ScaleRounding.TRUNCATE_TO_ZERO: Rounding.TRUNCATE,
}
_CHAINING_BUFFERS = range(8)


def read_input(regs: Registers, name: str, shape: Shape3) -> InputSpec:
    """IFM or IFM2 with the extents that the operation gives it."""
    register = Register[f"{name}_PRECISION"]
    word = regs.bits(register, 0b1100_0000_1100_1101)
    dtype, brick = ELEMENT_TYPES[word >> 2 & 3, word & 1], bool(regs.one_of(register, (0, 1), word >> 6 & 3))
    storage = MapStorage(regs.one_of(register, (0, 2, 3), word >> 14))  # no compiler is known to emit 3x1 tiles
    zero = regs.signed16(Register[f"{name}_ZERO_POINT"], dtype.kind == "i")
    if storage is MapStorage.NONE:
        value = regs.low(Register.OP_SCALAR)
        return InputSpec(name, dtype, zero, None, (1, 1, 1), value - (1 << 32) if value >> 31 else value)
    if storage is MapStorage.CHAINED:
        return InputSpec(name, dtype, zero, _chained(regs, name, dtype, zero), shape)
    return InputSpec(name, dtype, zero, MapLayout.read(regs, name, dtype, brick, *shape[:2]), shape)


def _chained(regs: Registers, name: str, dtype: np.dtype[Any], zero: int) -> MapLayout:
    buffer = regs.one_of(Register[f"{name}_REGION"], _CHAINING_BUFFERS)
    return MapLayout(name, 0, (0, 0, 0, 0), 1, 1, 1, 0, 0, 0, dtype, False, zero, buffer)


def results(regs: Registers) -> Shape3:
    """Rows, columns and channels that the operation computes."""
    r = Register
    return regs.raw(r.OFM_HEIGHT_M1) + 1, regs.raw(r.OFM_WIDTH_M1) + 1, regs.raw(r.OFM_DEPTH_M1) + 1


def read_scale(regs: Registers, register: Register) -> Scale:
    """OFM_SCALE, IFM_SCALE or IFM2_SCALE."""
    word = regs.raw(register)
    parameter = word >> 32
    legal = tuple(ScaleRounding) if register is Register.OFM_SCALE else (0, 1)
    mode = ScaleRounding(regs.one_of(register, legal, parameter >> 13 & 7))
    early = parameter >> 6 & 0x1F
    if early > 30 or parameter >> 11 & 3:
        regs.illegal(f"{register.name} = {word:#x} has bits that mean nothing")
    return Scale.of(word & 0xFFFFFFFF, parameter & 0x3F, _ROUNDINGS.get(mode, mode), 31 - early)


def written(regs: Registers, output: OutputSpec) -> OutputSpec:
    """`output`, of an operation that has no accumulators to keep."""
    if output.kept:
        regs.illegal(f"{regs.op.name} writes its results nowhere, but only sums can be kept")
    return output


def read_output(regs: Registers) -> OutputSpec:
    """OFM, activation and limits."""
    r = Register
    word = regs.raw(r.OFM_PRECISION)
    dtype = ELEMENT_TYPES[word >> 1 & 3, word & 1]
    brick = bool(regs.one_of(r.OFM_PRECISION, (0, 1), word >> 6 & 3))
    reverse = (word >> 9 & 3) - 1
    order = StoredOrder(regs.one_of(r.OFM_PRECISION, tuple(StoredOrder), word >> 11 & 7))
    storage = MapStorage(regs.one_of(r.OFM_PRECISION, (0, 2, 3), word >> 14))
    height, width, depth = results(regs)
    made = (height, width, depth)
    stored = made[order.axes[0]], made[order.axes[1]]
    kept = bool(regs.raw(r.ACC_FORMAT) >> 6 & 1) or storage is MapStorage.NONE
    zero = regs.signed16(r.OFM_ZERO_POINT, dtype.kind == "i")
    if storage is MapStorage.TILE_2X2 and not kept:
        layout = MapLayout.read(regs, "OFM", dtype, brick, *stored)
    elif kept:
        layout = MapLayout("OFM", 0, (0, 0, 0, 0), 1, 1, 1, 0, 0, 0, dtype, False, zero)
    else:
        layout = _chained(regs, "OFM", dtype, zero)
    table, slot = _table(regs)
    low, high = _limits(regs, dtype, table)
    return OutputSpec(
        layout=layout,
        height=height,
        width=width,
        depth=depth,
        rounding=Rounding.TFL,
        global_scale=bool(word & 256),
        activation=Activation.NONE if table is TableKind.NONE else Activation.LUT,
        lut_slot=slot,
        low=low,
        high=high,
        zero_point=zero,
        table=table,
        axes=order.axes,
        reverse=reverse,
        wraps=table is TableKind.NONE and bool(regs.raw(r.ACTIVATION) >> 12 & 1),
        kept=kept,
    )


def _table(regs: Registers) -> tuple[TableKind, int]:
    """Kind of the look-up, and its first slot of 256 bytes."""
    word = regs.bits(Register.ACTIVATION, 0x10FF)
    kind = TableKind(regs.one_of(Register.ACTIVATION, tuple(TableKind), word & 0x1F))
    start = (word >> 5 & 7) * kind.size_bytes
    if start + kind.size_bytes > 2048:
        regs.illegal(f"ACTIVATION = {word:#x}: table {word >> 5 & 7} of {kind.size_bytes} bytes is beyond the LUT RAM")
    return kind, start // 256


def _limits(regs: Registers, dtype: np.dtype[Any], table: TableKind) -> tuple[int, int]:
    """What results are clamped to before the table and the narrowing to the output's type."""
    indexed = {TableKind.U8_U8: "u1", TableKind.S16_S16: "i2", TableKind.S16_S32: "i2"}
    info = np.iinfo(np.dtype(indexed.get(table, "i1")) if table is not TableKind.NONE else dtype)
    if table in (TableKind.TANH, TableKind.SIGMOID):  # they take values before these are narrowed
        info = np.iinfo(np.int32)
    low, high = int(info.min), int(info.max)
    if not regs.raw(Register.ACTIVATION) >> 12 & 1 and table not in (TableKind.TANH, TableKind.SIGMOID):
        signed = table is not TableKind.U8_U8 if table is not TableKind.NONE else dtype.kind == "i"
        low = max(low, regs.signed16(Register.ACTIVATION_MIN, signed))
        high = min(high, regs.signed16(Register.ACTIVATION_MAX, signed))
        if low > high:
            regs.illegal(f"ACTIVATION_MIN {low} is above ACTIVATION_MAX {high}")
    return low, high
