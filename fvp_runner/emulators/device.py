"""The NPU of an emulated board: which memory it reaches, what lies there, and its register page.

Invariant: the NPU reaches what the board's description gives it, nothing else.
"""

from __future__ import annotations

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.problem import Agent
from npu_memplan.target_data import Board, BoardMemory

from ..firmware_build.build import Firmware
from .job import GuestMemory, JobRunner
from .register_page import EthosURegisters, Sabotage


def pool_spans(firmware: Firmware) -> list[tuple[int, int]]:
    """(address, size in bytes) of each planned pool in the linked image."""
    artifact = firmware.artifact
    return [
        (firmware.elf.symbol(f"npu_memplan_pool_{index}").address + guard, artifact.pool_bytes(pool.name))
        for index, (pool, guard) in enumerate(zip(artifact.run_pools, firmware.layout.guards_bytes, strict=True))
    ]


def known_objects(firmware: Firmware) -> dict[int, int]:
    """Start address -> size of the pools and of every array, where the NPU reaches them."""
    objects = {s.address: s.size_bytes for s in firmware.elf.symbols.values() if s.size_bytes}
    objects.update({address: size for address, size in pool_spans(firmware) if size})
    return {a: size for a, size in objects.items() if reaching_memory(firmware.board, a, size)}


def reaching_memory(board: Board, address: int, size_bytes: int) -> BoardMemory | None:
    """The board memory that holds all of the range and that the NPU reaches, or None."""
    for memory in board.memories:
        offset = memory.offset_of(address)
        if offset is not None and Agent.NPU in memory.agents and offset + size_bytes <= memory.size_bytes:
            return memory
    return None


class Device:
    """One NPU with its job runner, for the machine that a runner starts."""

    def __init__(self, firmware: Firmware, checks: bool, sabotage: frozenset[Sabotage]) -> None:
        name = firmware.artifact.target.accelerator
        self._accelerator = accelerator(name if name != "none" else firmware.board.accelerators[0])
        self._objects = known_objects(firmware)
        self._checks, self._where = checks, firmware.artifact.memory_map
        self._sabotage = sabotage
        self._jobs: JobRunner | None = None

    def start(self, memory: GuestMemory) -> EthosURegisters:
        """A reset NPU on `memory`."""
        if self._jobs is None:
            self._jobs = JobRunner(self._accelerator, memory, self._objects, self._checks, self._where)
        self._jobs.attach(memory)
        self._jobs.notes.clear()
        return EthosURegisters(self._accelerator, self._jobs.run, sabotage=self._sabotage)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the NPU model remarked about the jobs since `start`."""
        return tuple(dict.fromkeys(self._jobs.notes)) if self._jobs else ()
