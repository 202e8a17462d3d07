"""What kernels need in the best blocks for where their constants are, worked out once for all programs compared.

Invariant: what is remembered is a function of the registers that are no addresses, the NPU and the memories.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping

from ...arch import Architecture
from ...stream.decode import Operation
from ...stream.fields import kind_of
from ...stream.isa import Op, Register
from ...time import MemoryMap, ResourceUse, ResourceUseCache, in_a_row
from ..blocks import BESIDE, BlockError, Blocks

Changes = Mapping[Register, int]


class DemandCache:
    """Kernels of one NPU among one set of memories. `like`: under another model of time, whose needs are the same."""

    def __init__(self, accelerator: Architecture, memory_map: MemoryMap, like: DemandCache | None = None) -> None:
        self.memory_map = memory_map
        self.resource_uses: ResourceUseCache = like.resource_uses if like else ResourceUseCache(accelerator, memory_map)
        self._blocks: Blocks = Blocks(accelerator, memory_map, BESIDE, like._blocks if like else None)
        self._known: dict[Hashable, tuple[Changes | None, ResourceUse]] = {}

    def best(self, kernel: Operation) -> tuple[Changes | None, ResourceUse]:
        """Registers that say better blocks than the kernel's own, None where there are none, and its needs in them."""
        key = kind_of(kernel)
        if key not in self._known:
            self._known[key] = self._best(kernel)
        return self._known[key]

    def _best(self, kernel: Operation) -> tuple[Changes | None, ResourceUse]:
        own = self.resource_uses(kernel)
        try:
            choice = self._blocks.choose(kernel, encoded=True)
        except BlockError:
            return None, own
        changes = choice.registers(kernel)
        if changes[Register.ACC_FORMAT] == kernel.get(Register.ACC_FORMAT):
            needs = self.resource_uses(kernel.with_registers(changes))
            cycles = in_a_row(own, self.resource_uses.accelerator, self.memory_map)
            if self._blocks.priced(choice.cycles, needs) < self._blocks.priced(cycles, own):
                return changes, needs
        return None, own

    def alternatives(self, kernel: Operation) -> Iterator[tuple[Changes, ResourceUse]]:
        """Registers that say other blocks than the kernel's own, of those that could be the best, and its needs."""
        for choice in self._blocks.looked_at(kernel, encoded=kernel.op in (Op.CONV, Op.DEPTHWISE)):
            changes = choice.registers(kernel)
            if changes[Register.ACC_FORMAT] == kernel.get(Register.ACC_FORMAT) and any(
                kernel.get(register) != value for register, value in changes.items()
            ):
                yield changes, self.resource_uses(kernel.with_registers(changes))
