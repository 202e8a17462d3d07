"""`NpuModel`: executes register command streams on the caller's memory.

Invariant: memory is never copied; regions are read and written in place, in stream order. A stream is
decoded once (`prepare`) and bound to memory once as long as the same arrays are used again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.accelerator import Accelerator
from npu_memplan.ethosu.decode import StreamError, decode
from npu_memplan.ethosu.isa import Op
from npu_memplan.ethosu.stream import Command, Operation

from .convolution import Convolution, ConvolutionSpec
from .dma import Dma, DmaSpec
from .elementwise import Elementwise, ElementwiseSpec
from .errors import NpuModelError, UninitialisedReadError
from .layout import Bytes
from .memory import Memory, Shadow
from .output import OutputSpec
from .pooling import Pooling, PoolingSpec
from .registers import Registers

Spec = ConvolutionSpec | PoolingSpec | ElementwiseSpec | DmaSpec
Bound = Convolution | Pooling | Elementwise | Dma


class MalformedStreamError(NpuModelError):
    """The words are no command stream."""


@dataclass(frozen=True, slots=True)
class RunStats:
    """What a run did."""

    cycles: int  # estimate
    operations: int
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A decoded and checked stream."""

    commands: tuple[Command, ...]
    registers: tuple[Registers, ...]  # of each operation
    specs: tuple[Spec, ...]


class NpuModel:
    """A functional Ethos-U55/U65."""

    def __init__(self, accelerator: Accelerator, checks: bool = True) -> None:
        self.accelerator = accelerator
        self.checks = checks
        self._programs: OrderedDict[bytes, Program] = OrderedDict()
        self._bound: OrderedDict[Any, tuple[Memory, list[Bound]]] = OrderedDict()

    def prepare(self, words: Sequence[int]) -> Program:
        """Decode a stream and check it; the last few streams are remembered by content."""
        key = np.asarray(words, np.uint32).tobytes()
        program = self._programs.get(key)
        if program is None:
            program = self._decode(words)
            self._programs[key] = program
            while len(self._programs) > 16:
                self._programs.popitem(last=False)
        return program

    def _decode(self, words: Sequence[int]) -> Program:
        try:
            commands = decode(words)
        except StreamError as error:
            raise MalformedStreamError(str(error)) from error
        operations = [c for c in commands if isinstance(c, Operation)]
        registers = tuple(Registers(op, i) for i, op in enumerate(operations))
        return Program(commands, registers, tuple(self._spec(r) for r in registers))

    def _spec(self, regs: Registers) -> Spec:
        if regs.op is Op.DMA_START:
            return DmaSpec.read(regs)
        if regs.op is Op.POOL:
            return PoolingSpec.read(regs)
        if regs.op is Op.ELEMENTWISE:
            return ElementwiseSpec.read(regs)
        return ConvolutionSpec.read(regs, self.accelerator.ofm_ublock_depth, self.accelerator.cores)

    def _bind(self, program: Program, regions: Sequence[Bytes | None], defined: Any) -> tuple[Memory, list[Bound]]:
        def pointer(array: NDArray[Any] | None) -> Any:
            return None if array is None else (array.__array_interface__["data"][0], array.size)

        key = (id(program), tuple(map(pointer, regions)), None if defined is None else tuple(map(pointer, defined)))
        found = self._bound.get(key)
        if found is None:
            memory = Memory(self.accelerator, regions, defined)
            bound: list[Bound] = []
            for regs, spec in zip(program.registers, program.specs, strict=True):
                if isinstance(spec, ConvolutionSpec):
                    bound.append(Convolution(spec, memory, regs, self.checks))
                elif isinstance(spec, PoolingSpec):
                    bound.append(Pooling(spec, memory, regs))
                elif isinstance(spec, ElementwiseSpec):
                    bound.append(Elementwise(spec, memory, regs))
                else:
                    bound.append(Dma(spec, memory, regs))
            found = memory, bound
            self._bound[key] = found
            while len(self._bound) > 16:
                self._bound.popitem(last=False)
        return found

    def run(
        self,
        words: Sequence[int],
        regions: Sequence[Bytes | None],
        defined: Sequence[Shadow | None] | None = None,
    ) -> RunStats:
        """Execute a stream (without its container)."""
        program = self.prepare(words)
        memory, bound = self._bind(program, regions, defined)
        memory.reset()
        for regs, spec, step in zip(program.registers, program.specs, bound, strict=True):
            if self.checks:
                self._check(memory, regs, spec, step)
            step.run()
            if isinstance(step, Dma):
                step.mark_defined()
            else:
                step.output.map.mark_defined()
        return RunStats(0, len(bound))

    def _check(self, memory: Memory, regs: Registers, spec: Spec, step: Bound) -> None:
        if isinstance(step, Dma):
            step.check_defined()
            return
        if isinstance(step, Elementwise):
            step.ifm.check_defined()
            if step.ifm2 is not None:
                step.ifm2.check_defined()
        else:
            step.input.map.check_defined()
        if isinstance(step, Convolution):
            for span, shadow in step.constants():
                if shadow is not None and not shadow.all():
                    raise UninitialisedReadError(
                        f"{regs.where}: {span.name} reads bytes of region {span.region} that nobody wrote, "
                        f"the first at address {span.start + int(np.argmin(shadow)):#x}"
                    )
        output: OutputSpec = step.output.spec
        if output.lut_bytes:
            start = memory.accelerator.lut_address + 256 * output.lut_slot
            if not memory.shram_shadow[start : start + output.lut_bytes].all():
                raise UninitialisedReadError(f"{regs.where}: LUT slot {output.lut_slot} was never loaded")
