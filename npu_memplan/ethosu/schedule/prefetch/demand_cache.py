"""What kernels need in the best blocks for where their constants are, worked out once for all programs compared.

Invariant: what is remembered is a function of the registers that are no addresses, the NPU and the memories.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ...arch import Architecture
from ...stream.commands import Operation
from ...stream.groups import kind_of
from ...stream.isa import Register
from ...time import Demand, Demands, MemoryMap, cycles_in_a_row
from ..blocks import BESIDE, BlockError, Blocks

Changes = Mapping[Register, int]


class DemandCache:
    """Kernels of one NPU among one set of memories."""

    def __init__(self, accelerator: Architecture, where: MemoryMap) -> None:
        self.where, self.demands = where, Demands(accelerator, where)
        self._blocks = Blocks(accelerator, where, BESIDE)
        self._known: dict[Hashable, tuple[Changes | None, Demand]] = {}

    def best(self, kernel: Operation) -> tuple[Changes | None, Demand]:
        """Registers that say better blocks than the kernel's own, None where there are none, and its needs in them."""
        key = kind_of(kernel)
        if key not in self._known:
            self._known[key] = self._best(kernel)
        return self._known[key]

    def _best(self, kernel: Operation) -> tuple[Changes | None, Demand]:
        own = self.demands(kernel)
        try:
            choice = self._blocks.choose(kernel, encoded=True)
        except BlockError:
            return None, own
        changes = choice.registers(kernel)
        if changes[Register.ACC_FORMAT] == kernel.get(Register.ACC_FORMAT):
            needs = self.demands(kernel.with_registers(changes))
            cycles = cycles_in_a_row(kernel, self.demands.accelerator, self.where)
            if self._blocks.priced(choice.cycles, needs) < self._blocks.priced(cycles, own):
                return changes, needs
        return None, own
