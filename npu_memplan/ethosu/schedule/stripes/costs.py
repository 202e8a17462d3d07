"""Cycles of an operation's rows by the estimate, with its weights where they are or kept near.

Invariant: rows are in the blocks that a stripe of that height gets; a started micro-block takes as long as a whole one.
"""

from __future__ import annotations

from ...program.program import NpuProgram
from ...stream.decode import Operation
from ...stream.isa import Op, Register
from ...time import MemoryMap, ResourceUseCache, cycles_in_a_row
from ...time.cost import resource_use
from ..blocks import BESIDE, BlockError, Blocks
from ..prefetch.reads import ConstantBlock
from ..regions import places
from ..shram import round_up
from .channels import Deep, Inner
from .kept import constants_of


class Costs:
    """Of one program in the memories `memory_map`, of which the last region's has the feature maps."""

    def __init__(self, program: NpuProgram, memory_map: MemoryMap) -> None:
        self.program, self.memory_map = program, memory_map
        self.resource_uses = ResourceUseCache(program.accelerator, memory_map)
        self._places = places(program, memory_map)
        self.blocks = Blocks(program.accelerator, memory_map, BESIDE)
        self.micro_rows = program.accelerator.ofm_micro.height
        self._near = max(memory_map.regions)
        self._cycles: dict[tuple[int, int, bool], int] = {}
        self._slices: dict[tuple[int, int, int, frozenset[str]], int] = {}
        self._kept: dict[int, ConstantBlock | None] = {}

    def rows(self, index: int, rows: int, near: bool = False) -> int:
        """Cycles of `rows` rows of operation `index`; `near`: its weights are with the feature maps."""
        rows = round_up(rows, self.micro_rows)
        key = (index, rows, near)
        if key not in self._cycles:
            operation = self._operation(index)
            stripe = {Register.OFM_HEIGHT_M1: rows - 1}
            if near:
                stripe |= {Register.WEIGHT_REGION: self._near, Register.SCALE_REGION: self._near}
            made = operation.with_registers(stripe)
            if rows < operation[Register.OFM_HEIGHT_M1] + 1:
                self._cycles[key] = self._in_best_blocks(made)
            else:
                self._cycles[key] = cycles_in_a_row(made, self.program.accelerator, self.memory_map)
        return self._cycles[key]

    def channels(self, layer: Deep, count: int, inner: Inner, step: int) -> int:
        """Cycles of `count` channels of a layer, where buffers in `inner` hold `step`."""
        key = (layer.index, count, step, frozenset(inner))
        if key not in self._slices:
            made = layer.about((0, count), inner, step).place(self._places, layer.index)
            self._slices[key] = self._in_best_blocks(made)
        return self._slices[key]

    def _in_best_blocks(self, operation: Operation) -> int:
        """Cycles of an operation whose weights are encoded, in the cheapest blocks; in its own where none fit."""
        try:
            return self.blocks.choose(operation, encoded=True).cycles
        except BlockError:
            return cycles_in_a_row(operation, self.program.accelerator, self.memory_map)

    def whole(self, index: int, near: bool = False) -> int:
        """Cycles of operation `index` made at once; `near` as for `rows`."""
        operation = self.program.operations[index]
        if operation.op is Op.DMA_START:
            return 0  # it runs at the same time as kernels
        return self.rows(index, operation.registers[Register.OFM_HEIGHT_M1] + 1, near)

    def kept(self, index: int) -> ConstantBlock | None:
        if index not in self._kept:
            self._kept[index] = constants_of(self.program, index)
        return self._kept[index]

    def copy(self, kept: ConstantBlock) -> int:
        """Cycles until a copy of `kept` is there."""
        regions = {Register.DMA0_SRC_REGION: 0, Register.DMA0_DST_REGION: self._near, Register.DMA0_DST: 0}
        total = 0.0
        for start, stop in kept.spans:
            registers = {**regions, Register.DMA0_SRC: start, Register.DMA0_LEN: stop - start}
            needs = resource_use(Operation(Op.DMA_START, 0, registers), self.program.accelerator, self.memory_map)
            total += needs.floor + max(load.latency for load in needs.loads)
        return round(total)

    def _operation(self, index: int) -> Operation:
        return self.program.place(index, self._places)
