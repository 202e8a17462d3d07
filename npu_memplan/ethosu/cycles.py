"""A rough estimate of time: what an operation costs, and when it runs.

Invariant: never used for results. Kernels and transfers each run one after the other, overlap each other
unless a wait forbids it, and cost the largest of their multiply-accumulates, outputs and bytes. It is a
figure to compare plans with, not a prediction of hardware.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .arch import Architecture
from .featuremap import Kernel
from .stream.commands import Command, Operation, Wait
from .stream.isa import Op, PoolMode, Register

_START = 64  # cycles to set up any operation


@dataclass(frozen=True, slots=True)
class Slot:
    """When an operation runs, in cycles."""

    operation: Operation
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """All operations of a stream in time, in its order."""

    slots: tuple[Slot, ...]
    total: int  # cycles from the start of the stream to the end of its last operation

    @property
    def macs(self) -> int:
        """Multiply-accumulates of all convolutions."""
        return sum(macs(slot.operation) for slot in self.slots)


def macs(operation: Operation) -> int:
    """Multiply-accumulates of a convolution, padding included; 0 for everything else."""
    return _steps(operation) if operation.op in (Op.CONV, Op.DEPTHWISE) else 0


def cost(operation: Operation, accelerator: Architecture) -> int:
    """Cycles of one operation on its own."""
    bus = accelerator.port_bytes
    if operation.op is Op.DMA_START:
        return _START + -(-_moved_bytes(operation) // bus)
    elements = _elements(operation)
    out_per_cycle = max(1, accelerator.macs // 32)
    traffic = elements << (operation[Register.OFM_PRECISION] >> 1 & 3)
    steps_per_cycle = out_per_cycle
    if operation.op in (Op.CONV, Op.DEPTHWISE):
        # A depthwise kernel keeps one of the 8 input lanes of each multiplier busy.
        lanes = 8 if operation.op is Op.DEPTHWISE else 1
        steps_per_cycle = accelerator.macs // lanes >> (operation[Register.IFM_PRECISION] >> 2 & 3) or 1
        traffic += _weight_bytes(operation, accelerator)
    return _START + max(-(-_steps(operation) // steps_per_cycle), -(-elements // out_per_cycle), -(-traffic // bus))


def timeline(commands: Iterable[Command], accelerator: Architecture) -> Timeline:
    """Place all operations: in order within kernels and within transfers, honouring waits."""
    now = 0
    ends: tuple[list[int], list[int]] = ([], [])  # of kernels, of transfers
    slots: list[Slot] = []
    for command in commands:
        if isinstance(command, Wait):
            done = ends[command.op is Op.DMA_WAIT]
            if len(done) > command.outstanding:
                now = max(now, done[len(done) - 1 - command.outstanding])
        elif isinstance(command, Operation):
            queue = ends[command.op is Op.DMA_START]
            start = max(now, queue[-1] if queue else 0)
            stop = start + cost(command, accelerator)
            queue.append(stop)
            slots.append(Slot(command, start, stop))
    return Timeline(tuple(slots), max((s.stop for s in slots), default=0))


def _elements(operation: Operation) -> int:
    r = Register
    return (operation[r.OFM_HEIGHT_M1] + 1) * (operation[r.OFM_WIDTH_M1] + 1) * (operation[r.OFM_DEPTH_M1] + 1)


def _steps(operation: Operation) -> int:
    """Input elements that go into all outputs: multiply-accumulates, comparisons or additions."""
    if operation.op is Op.ELEMENTWISE:
        return _elements(operation)
    kernel = Kernel.of(operation)
    rows, columns = (kernel.height - 1) // kernel.dilation_y + 1, (kernel.width - 1) // kernel.dilation_x + 1
    deep = operation.op is Op.CONV or (operation.op is Op.POOL and operation.parameter == PoolMode.REDUCE_SUM)
    depth = operation[Register.IFM_DEPTH_M1] + 1 if deep else 1
    return _elements(operation) * rows * columns * depth


def _weight_bytes(operation: Operation, accelerator: Architecture) -> int:
    """Bytes of weights and scales of all cores."""
    both = accelerator.cores == 2 and operation.get(Register.PARALLEL_MODE)
    prefixes = ("WEIGHT", "SCALE", "WEIGHT1", "SCALE1") if both else ("WEIGHT", "SCALE")
    return sum(operation[Register[f"{prefix}_LENGTH"]] for prefix in prefixes)


def _moved_bytes(operation: Operation) -> int:
    r = Register
    dimensions = max(operation[r.DMA0_SRC_REGION] >> 9 & 3, operation[r.DMA0_DST_REGION] >> 9 & 3)
    rows = operation[r.DMA0_SIZE0] if dimensions > 0 else 1
    planes = operation[r.DMA0_SIZE1] if dimensions > 1 else 1
    return operation[r.DMA0_LEN] * rows * planes
