"""A rough estimate of time: cycles of each operation, and when it runs.

Invariant: never used for results. Kernels and transfers each run one after the other, overlap each other
unless a wait forbids it, and cost the largest of their multiply-accumulates, outputs and bytes. It is a
figure to compare plans with, not a prediction of hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.accelerator import Accelerator, Product
from npu_memplan.ethosu.isa import Op
from npu_memplan.ethosu.stream import Wait

from .convolution import ConvolutionSpec
from .dma import DmaSpec
from .program import Program, Step

_START = 64  # cycles to set up any operation
_BUS_BYTES = {Product.U55: 8, Product.U65: 16}  # a cycle, of one AXI port


@dataclass(frozen=True, slots=True)
class Slot:
    """When a step runs, in cycles."""

    step: Step
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All steps of a program in time."""

    slots: tuple[Slot, ...]
    total: int


def cost(step: Step, accelerator: Accelerator) -> int:
    """Cycles of one operation on its own."""
    spec = step.spec
    bus = _BUS_BYTES[accelerator.product]
    if isinstance(spec, DmaSpec):
        return _START + -(-spec.size_bytes // bus)
    output = spec.output
    elements = output.height * output.width * output.depth
    out_per_cycle = max(1, accelerator.macs // 32)
    traffic = elements * output.dtype.itemsize
    macs_per_cycle = out_per_cycle
    if isinstance(spec, ConvolutionSpec):
        # A depthwise kernel keeps one of the 8 input lanes of each multiplier busy.
        macs_per_cycle = accelerator.macs // (8 if spec.depthwise else 1) // spec.ifm.dtype.itemsize or 1
        traffic += sum(span.length for span in spec.weights + spec.scales)
    return _START + max(-(-spec.macs // macs_per_cycle), -(-elements // out_per_cycle), -(-traffic // bus))


def timeline(program: Program) -> Timeline:
    """Place all steps: in order within kernels and within transfers, honouring waits."""
    now = 0
    ends: tuple[list[int], list[int]] = ([], [])  # of kernels, of transfers
    slots: list[Slot] = []
    for command in program.commands:
        if isinstance(command, Wait):
            done = ends[command.op is Op.DMA_WAIT]
            if len(done) > command.outstanding:
                now = max(now, done[len(done) - 1 - command.outstanding])
        elif isinstance(command, Step):
            queue = ends[command.is_dma]
            start = max(now, queue[-1] if queue else 0)
            stop = start + cost(command, program.accelerator)
            queue.append(stop)
            slots.append(Slot(command, start, stop))
    return Timeline(tuple(slots), max((s.stop for s in slots), default=0))
