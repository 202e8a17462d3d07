"""A command stream in words people can read: what each operation does, with which registers.

Invariant: everything printed is computed from the stream; a register's raw value is always shown with
its meaning, so nothing is lost when the meaning is not known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..arch import Architecture
from ..program.access import accesses, lut_span
from ..program.featuremap import FeatureMap
from ..program.kernel import Kernel
from .commands import Command, Marker, Operation, Wait
from .decode import decode
from .fields import DmaRegion, Precision, signed16
from .groups import ADDRESS_REGISTERS, FEATURE_MAPS, IFM2, OFM, registers_of
from .isa import SHRAM_REGION, Op, Register
from .register_text import MODES, REGISTER_TEXT, name_in


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
    for command in decode(words, accelerator.language):
        if not isinstance(command, Operation):
            yield _simple(command)
            continue
        registers = []
        for register in Register:
            if register not in command.registers or register not in registers_of(command.op, command.language):
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
    assert isinstance(command, Marker)
    text = f"go on at stream offset {command.target:#x}" if command.op.has_payload else ""
    return Line(command.offset_bytes, f"{command.op.name} {command.parameter:#x}", text)


def _title(op: Operation) -> str:
    mode = MODES.get(op.op)
    return op.op.name if mode is None else f"{op.op.name} {name_in(mode, op.parameter)}"


def summary(op: Operation) -> str:
    """One line: shapes and places of what an operation works on."""
    if op.op is Op.DMA_START:
        target = op[Register.DMA0_DST_REGION]
        inside = DmaRegion.INTERNAL.of(target)
        place = "SHRAM" if inside else f"region {DmaRegion.REGION.of(target)}"
        source = DmaRegion.REGION.of(op[Register.DMA0_SRC_REGION])
        return (
            f"{op[Register.DMA0_LEN]} bytes, region {source} {op[Register.DMA0_SRC]:#x} -> "
            f"{place} {op[Register.DMA0_DST]:#x}"
        )
    views = [FeatureMap.ifm(op), FeatureMap.ifm2(op)]
    parts = [" , ".join(_view(v) for v in views if v is not None), "->", _view(FeatureMap.ofm(op))]
    if op.op not in (Op.ELEMENTWISE, Op.RESIZE):
        kernel = Kernel.of(op)
        parts.append(f"kernel {kernel.height}x{kernel.width} stride {kernel.stride_y}x{kernel.stride_x}")
    table = lut_span(op)
    if table is not None:
        parts.append(f"LUT {table[0] // 256}")
    return " ".join(parts)


def _view(view: FeatureMap) -> str:
    kind = f"{'int' if view.signed else 'uint'}{8 * view.element_bytes}"
    layout = "NHCWB16" if view.brick else "NHWC"
    if not view.depth:
        return f"{kind} not in memory"
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
    """The meaning of a raw value; "" when it is just a number."""
    if register in ADDRESS_REGISTERS:
        return f"{value:#x}"
    if register in _ONE_LESS:
        return str(value + 1)
    if register in _NUMBER_OF:
        return str(signed16(value, bool(Precision.SIGNED.of(op.get(_NUMBER_OF[register].precision)))))
    to_text = REGISTER_TEXT[op.language].get(register)
    return "" if to_text is None else to_text(value)


_ONE_LESS = frozenset(r for r in Register if r.name.endswith("_M1"))  # so the architecture names what it holds less one
_NUMBER_OF = {view.zero_point: view for view in FEATURE_MAPS.values()} | {
    Register.IFM2_SCALAR: IFM2,
    Register.ACTIVATION_MIN: OFM,
    Register.ACTIVATION_MAX: OFM,
}
