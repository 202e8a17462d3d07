"""A command stream in words people can read: what each operation does, with which registers.

Invariant: everything printed is computed from the stream; a register's raw value is always shown beside
its meaning, so nothing is lost when the meaning is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..access import accesses, lut_index
from ..arch import Architecture
from ..featuremap import FeatureMap, Kernel, sign_extend
from ..program import ADDRESS_REGISTERS, registers_of
from .commands import Command, Operation, Wait
from .decode import decode
from .isa import (
    SHRAM_REGION,
    AccFormat,
    Broadcast,
    ElementwiseMode,
    Op,
    PoolMode,
    Register,
    Rounding,
    Upscale,
)

_MODES: dict[Op, Any] = {Op.POOL: PoolMode, Op.ELEMENTWISE: ElementwiseMode}


@dataclass(frozen=True, slots=True)
class Line:
    """One command. `registers` are (name, raw value, meaning) that changed since the last command of its kind."""

    offset_bytes: int
    operation: str
    summary: str
    registers: tuple[tuple[str, int, str], ...] = ()
    accesses: tuple[dict[str, Any], ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """For `--json`: all of it, raw."""
        return {
            "offset_bytes": self.offset_bytes,
            "operation": self.operation,
            "summary": self.summary,
            "registers": {n: {"value": v, "meaning": m} for n, v, m in self.registers},
            "accesses": list(self.accesses),
        }


def describe(words: Sequence[int], accelerator: Architecture, everything: bool = False) -> Iterator[Line]:
    """The commands of a stream. Registers are those that changed since the operation before it that
    depends on them; `everything` lists all that the operation depends on."""
    shown: dict[Register, int] = {}
    for command in decode(words):
        if not isinstance(command, Operation):
            yield _simple(command)
            continue
        registers = []
        for register in Register:
            if register not in command.registers or register not in registers_of(command.op):
                continue
            value = command[register]
            if everything or shown.get(register) != value:
                registers.append((register.name, value, meaning(register, value, command)))
                shown[register] = value
        yield Line(
            command.offset_bytes,
            _title(command),
            summary(command),
            tuple(registers),
            tuple(_accesses(command, accelerator)),
        )


def _simple(command: Command) -> Line:
    assert not isinstance(command, Operation)
    if isinstance(command, Wait):
        kind = "kernels" if command.op is Op.KERNEL_WAIT else "DMAs"
        text = f"go on when at most {command.outstanding} {kind} are unfinished"
        return Line(command.offset_bytes, f"{command.op.name} {command.outstanding}", text)
    return Line(command.offset_bytes, f"{command.op.name} {command.parameter:#x}", "")


def _title(op: Operation) -> str:
    mode = _MODES.get(op.op)
    if mode is None:
        return op.op.name
    known = {int(m): m.name for m in mode}
    return f"{op.op.name} {known.get(op.parameter, op.parameter)}"


def summary(op: Operation) -> str:
    """One line: shapes and places of what an operation works on."""
    if op.op is Op.DMA_START:
        target = op[Register.DMA0_DST_REGION]
        place = "SHRAM" if target & SHRAM_REGION & 0x100 else f"region {target}"
        return (
            f"{op[Register.DMA0_LEN]} bytes, region {op[Register.DMA0_SRC_REGION]} {op[Register.DMA0_SRC]:#x} -> "
            f"{place} {op[Register.DMA0_DST]:#x}"
        )
    views = [FeatureMap.ifm(op), FeatureMap.ifm2(op)]
    parts = [" , ".join(_view(v) for v in views if v is not None), "->", _view(FeatureMap.ofm(op))]
    if op.op is not Op.ELEMENTWISE:
        kernel = Kernel.of(op)
        parts.append(f"kernel {kernel.height}x{kernel.width} stride {kernel.stride_y}x{kernel.stride_x}")
    slot = lut_index(op)
    if slot is not None:
        parts.append(f"LUT {slot}")
    return " ".join(parts)


def _view(view: FeatureMap) -> str:
    kind = f"{'int' if view.signed else 'uint'}{8 * view.element_bytes}"
    layout = "NHCWB16" if view.brick else "NHWC"
    return f"{kind}[{view.height},{view.width},{view.depth}] {layout} @{view.region}:{view.bases[0]:#x}"


def _accesses(op: Operation, accelerator: Architecture) -> Iterator[dict[str, Any]]:
    for access in accesses(op, accelerator):
        ranges = access.ranges
        if len(ranges):
            yield {
                "role": access.role.value,
                "region": "shram" if access.region == SHRAM_REGION else access.region,
                "first_byte": int(ranges[0, 0]),
                "end": int(ranges[-1, 1]),
                "bytes": int((ranges[:, 1] - ranges[:, 0]).sum()),
                "writes": access.is_write,
            }


def meaning(register: Register, value: int, op: Operation) -> str:
    """What a raw value says; "" when it is just a number."""
    name = register.name
    if name.endswith("_M1"):
        return str(value + 1)
    if name.endswith("PRECISION"):
        return _precision(name, value)
    if "ZERO_POINT" in name or name in ("ACTIVATION_MIN", "ACTIVATION_MAX", "IFM2_SCALAR"):
        prefix = "IFM2" if name.startswith("IFM2") else "IFM" if name.startswith("IFM") else "OFM"
        return str(sign_extend(value, bool(op.get(Register[f"{prefix}_PRECISION"]) & 1)))
    if register in (Register.OFM_SCALE, Register.OPA_SCALE, Register.OPB_SCALE):
        return f"{value & 0xFFFFFFFF} >> {value >> 32 & 0x3F}"
    if register in ADDRESS_REGISTERS:
        return f"{value:#x}"
    if register is Register.KERNEL_STRIDE:
        kernel = Kernel.of(op)
        order = "part-kernel first" if kernel.part_kernel_first else "depth first"
        stride = f"stride {kernel.stride_y}x{kernel.stride_x}"
        return f"{stride}, dilation {kernel.dilation_y}x{kernel.dilation_x}, {order}"
    if register is Register.ACTIVATION:
        return _activation(value)
    if register is Register.IFM2_BROADCAST:
        return " ".join(str(b.name) for b in Broadcast if value & b) or "none"
    enumeration: Any = {Register.IFM_UPSCALE: Upscale, Register.ACC_FORMAT: AccFormat}.get(register)
    if enumeration is not None:
        return next((str(m.name) for m in enumeration if m == value), "")
    if name.endswith("REGION") and value & 0x100:
        return "SHRAM"
    return ""


def _precision(name: str, value: int) -> str:
    bits = 8 << (value >> (1 if name.startswith("OFM") else 2) & 3)
    words = [f"{'int' if value & 1 else 'uint'}{bits}", "NHCWB16" if value & 1 << 6 else "NHWC"]
    if name.startswith("OFM"):
        words.append("global scale" if value & 1 << 8 else "scale per channel")
        rounding = value >> 14 & 3
        words.append({int(r): r.name for r in Rounding}.get(rounding, str(rounding)))
    elif name == "IFM_PRECISION" and value >> 8 & 3:
        words.append(f"operand {'A' if value >> 8 & 3 == 1 else 'B'} scaled")
    return " ".join(words)


def _activation(value: int) -> str:
    kind = value & 0x1F
    word = f"LUT {kind - 16}" if kind >= 16 else {0: "none", 3: "tanh", 4: "sigmoid"}.get(kind, str(kind))
    clip = value >> 12 & 7
    return word + (f", clip range {clip}" if clip else "")
