"""A decoded stream: commands, and for each operation what its registers mean.

Invariant: a `DecodedStream` is independent of memory; every register that an operation uses was found set
and legal while it was made, no operation is larger than the limits below, and jumps stay inside the stream.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from npu_memplan.ethosu.arch import Architecture, Language
from npu_memplan.ethosu.stream.decode import Command, Marker, MissingRegisterError, Operation, StreamError, decode
from npu_memplan.ethosu.stream.isa import BranchCondition, ElementwiseMode, Op, Register, Rounding
from npu_memplan.ethosu.time import Estimate, MemoryMap, default_memory_map, estimate

from ..errors import MalformedStreamError, NpuModelError, UnsetRegisterError
from . import u85
from .feature_maps import Registers
from .operations import DmaSpec, ElementwiseSpec, SumSpec, read_sum
from .u85 import ResizeSpec, read_elementwise, read_resize, read_transfer, unconfirmed_features

Spec = SumSpec | ElementwiseSpec | DmaSpec | ResizeSpec

# A single operation beyond these is a damaged stream, not a network: refuse it before it eats time or memory.
_MAX_OPERATIONS = 1 << 20
_MAX_MACS = 1 << 36
_MAX_ELEMENTS = 1 << 25
_MAX_REPEATED = 1 << 14  # commands, all loops together


@dataclass(frozen=True, slots=True)
class DecodedStep:
    registers: Registers
    spec: Spec

    @property
    def is_dma(self) -> bool:
        return isinstance(self.spec, DmaSpec)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedStream:
    accelerator: Architecture
    commands: tuple[Command | DecodedStep, ...]  # in stream order; operations as steps
    steps: tuple[DecodedStep, ...]
    messages: tuple[str, ...]  # what the stream uses that no reference can confirm

    @staticmethod
    def decode_words(words: Sequence[int], accelerator: Architecture) -> DecodedStream:
        """Decode a stream (without its container); every fault is an `NpuModelError`."""
        try:
            raw = decode(words, accelerator.language)
        except StreamError as error:
            raise MalformedStreamError(str(error)) from error
        if len(raw) > _MAX_OPERATIONS:
            raise MalformedStreamError(f"the stream has {len(raw)} commands; more than {_MAX_OPERATIONS} are refused")
        commands: list[Command | DecodedStep] = []
        steps: list[DecodedStep] = []
        for command in raw:
            if isinstance(command, Operation):
                registers = Registers(command, len(steps))
                step = DecodedStep(registers, read_spec(registers, accelerator))
                steps.append(step)
                commands.append(step)
            else:
                commands.append(command)
        notes = (
            *_unconfirmed_features(steps),
            *unconfirmed_features(step.registers.operation for step in steps),
            *_check_jumps(raw),
        )
        return DecodedStream(accelerator, tuple(commands), tuple(steps), notes)

    def executed_commands(self, flag: Callable[[], bool]) -> Iterator[Command | DecodedStep]:
        """Operations and waits in the order of execution; `flag`: whether the last kernel's result is true."""
        position, repeated = 0, 0
        while position < len(self.commands):
            command = self.commands[position]
            position += 1
            if not _is_jump(command):
                yield command
            elif command.parameter == BranchCondition.ALWAYS or flag():
                target = bisect_left(self.commands, command.target, key=_command_offset)
                repeated += max(position - target, 0)
                if repeated > _MAX_REPEATED:
                    raise NpuModelError(
                        f"BRANCH at stream offset {command.offset_bytes:#x} goes back after {_MAX_REPEATED} commands "
                        "of loops: more are not executed"
                    )
                position = target

    def estimate_time(self, where: MemoryMap | None = None) -> Estimate:
        """The estimated time of each step, in their order; `where`: the memories (None: the NPU's default system)."""
        plain = (c.registers.operation if isinstance(c, DecodedStep) else c for c in self.commands)
        try:
            return estimate(plain, self.accelerator, where or default_memory_map(self.accelerator))
        except MissingRegisterError as error:
            raise UnsetRegisterError(f"the estimate of time: {error}") from None


def _command_offset(command: Command | DecodedStep) -> int:
    return command.registers.operation.offset_bytes if isinstance(command, DecodedStep) else command.offset_bytes


def _is_jump(command: Command | DecodedStep) -> TypeGuard[Marker]:
    return isinstance(command, Marker) and command.op is Op.BRANCH


def _check_jumps(commands: Sequence[Command]) -> list[str]:
    """Notes on a stream that jumps; a target outside of it is a `MalformedStreamError`."""
    jumps = [command for command in commands if _is_jump(command)]
    for jump in jumps:
        if jump.target % 4 or jump.target > commands[-1].offset_bytes:
            raise MalformedStreamError(
                f"BRANCH at stream offset {jump.offset_bytes:#x} goes on at offset {jump.target:#x}: "
                "no command is there"
            )
    return ["the stream jumps: the estimate of time takes each operation once"] if jumps else []


# By language and operation; what is not listed is a CONV, a DEPTHWISE or a POOL.
_READERS: dict[tuple[Language, Op], Callable[[Registers], Spec]] = {
    (Language.U55_U65, Op.DMA_START): DmaSpec.read_registers,
    (Language.U55_U65, Op.ELEMENTWISE): ElementwiseSpec.read_registers,
    (Language.U85, Op.DMA_START): read_transfer,
    (Language.U85, Op.ELEMENTWISE): read_elementwise,
    (Language.U85, Op.RESIZE): read_resize,
}


def read_spec(registers: Registers, accelerator: Architecture) -> Spec:
    reader = _READERS.get((accelerator.language, registers.op))
    spec: Spec
    if reader is not None:
        spec = reader(registers)
    else:
        spec = (u85.read_sum if accelerator.language is Language.U85 else read_sum)(registers, accelerator)
    if isinstance(spec, DmaSpec):
        return spec
    elements = math.prod(spec.output.shape)
    if isinstance(spec, SumSpec):
        window = spec.window
        elements = max(elements, window.padded_height * window.padded_width * spec.input.shape[2])
    if elements > _MAX_ELEMENTS or spec.macs > _MAX_MACS:
        registers.raise_illegal(
            f"it has {elements} elements and {spec.macs} multiply-accumulates; "
            f"at most {_MAX_ELEMENTS} and {_MAX_MACS} are executed: its sizes are damaged"
        )
    registers.one_of(Register.BLOCKDEP, range(accelerator.max_blockdep + 1))
    return spec


def _unconfirmed_features(steps: list[DecodedStep]) -> list[str]:
    """One line for each feature that is implemented from its description only."""
    found: dict[str, str] = {}
    for step in steps:
        spec, where = step.spec, step.registers.op_text
        if isinstance(spec, DmaSpec):
            old = step.registers.operation.language is Language.U55_U65
            if old and spec.shape[:2] != (1, 1):  # which compilers do not emit
                found.setdefault("2D/3D DMA", where)
            continue
        roundings = {spec.output.rounding}
        if isinstance(spec, ElementwiseSpec):
            roundings |= {spec.first_scale.rounding, spec.second_scale.rounding}
            if spec.kind is ElementwiseMode.LRELU and step.registers.operation.language is Language.U55_U65:
                found.setdefault("LRELU", where)
        if Rounding.TRUNCATE in roundings:
            found.setdefault("rounding TRUNCATE", where)
    return [
        f"{name} is modelled from its description; no reference confirms it (first at {where})"
        for name, where in found.items()
    ]
