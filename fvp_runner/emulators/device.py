"""The NPU of an emulated board: which memory it reaches, what lies there, and its register page.

Invariant: the NPU reaches what the board's description gives it, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.ethosu.time import MemoryMap
from npu_memplan.problem import Agent
from npu_memplan.target_data import Board, BoardMemory

from ..firmware_build.build import Firmware
from ..firmware_build.elf import Elf
from .job import GuestMemory, JobRunner
from .register_page import EthosURegisters, Sabotage

_COMMON = (".text", ".rodata", ".data", ".bss")  # sections that hold what nobody placed


def pool_spans(firmware: Firmware) -> list[tuple[int, int]]:
    """(address, size in bytes) of each planned pool in the linked image."""
    artifact = firmware.artifact
    return [
        (firmware.elf.symbol(f"npu_memplan_pool_{index}").address + guard, artifact.pool_bytes(pool.name))
        for index, (pool, guard) in enumerate(zip(artifact.run_pools, firmware.layout.guards_bytes, strict=True))
    ]


def known_objects(board: Board, elf: Elf) -> dict[int, int]:
    """Start address -> size of every array of the program, where the NPU reaches it."""
    objects = {s.address: s.size_bytes for s in elf.symbols.values() if s.size_bytes}
    return {a: size for a, size in objects.items() if reaching_memory(board, a, size)}


def reaching_memory(board: Board, address: int, size_bytes: int) -> BoardMemory | None:
    """The board memory that holds all of the range and that the NPU reaches, or None."""
    for memory in board.memories:
        offset = memory.offset_of(address)
        if offset is not None and Agent.NPU in memory.agents and offset + size_bytes <= memory.size_bytes:
            return memory
    return None


def why_unreachable(board: Board, elf: Elf, address: int, written: bool) -> str:
    """What lies at an address that the NPU does not reach, and where it should lie; in brackets, for a message."""
    usable = [m for m in board.memories if Agent.NPU in m.agents and not (written and m.read_only)]
    reachable = ", ".join(memory.name for memory in usable)
    place = next((memory for memory in board.memories if memory.offset_of(address) is not None), None)
    if place is None:
        return f" (no memory of board {board.name}; the NPU reaches {reachable})"
    if Agent.NPU in place.agents:
        return f" (it begins in {place.name}, which ends before it does)"
    unset = ": is the base pointer set?" if address == 0 else ""
    found = elf.name_of(address)
    what = f"{found} lies" if found else "that is"
    section = next((s.name for s in elf.sections if s.address <= address < s.address + s.size_bytes), "what lies there")
    return f" ({what} in {place.name}, which the NPU cannot reach{unset}; {_advice(section, reachable)})"


def _advice(section: str, reachable: str) -> str:
    """Where a section should lie; one that holds other things too (.text, .bss) is not to move as a whole."""
    if section in _COMMON:
        return (
            f"the linker script has no place for it and took it into {section}: give it a section of its own in one of "
            f"{reachable}, as examples/firmware/linker/npu_memplan.ld does for .rodata.npu_memplan and .bss.npu_memplan"
        )
    return f"place {section} in one of {reachable}"


@dataclass(frozen=True, slots=True)
class NpuSetup:
    """An NPU on a board, for one program."""

    board: Board
    elf: Elf
    accelerator: Architecture
    objects: dict[int, int]  # start address -> size of what a base pointer may name
    where: MemoryMap | None = None
    checks: bool = True
    sabotage: frozenset[Sabotage] = frozenset()

    @classmethod
    def of_firmware(cls, firmware: Firmware, checks: bool, sabotage: frozenset[Sabotage]) -> NpuSetup:
        """The NPU that a built artifact was compiled for; its pools are known objects."""
        name = firmware.artifact.target.accelerator
        found = accelerator(name if name != "none" else firmware.board.accelerators[0])
        pools = {address: size for address, size in pool_spans(firmware) if size}
        pools = {a: size for a, size in pools.items() if reaching_memory(firmware.board, a, size)}
        objects = known_objects(firmware.board, firmware.elf) | pools
        return cls(firmware.board, firmware.elf, found, objects, firmware.artifact.memory_map, checks, sabotage)


class Device:
    """One NPU with its job runner, for the machine that a runner starts."""

    def __init__(self, setup: NpuSetup) -> None:
        self._setup = setup
        self._jobs: JobRunner | None = None

    def start(self, memory: GuestMemory) -> EthosURegisters:
        """A reset NPU on `memory`."""
        setup = self._setup
        if self._jobs is None:
            self._jobs = JobRunner(
                setup.accelerator, memory, setup.objects, setup.checks, setup.where, self._why_unreachable
            )
        self._jobs.attach(memory)
        self._jobs.notes.clear()
        self._jobs.streams.clear()
        return EthosURegisters(setup.accelerator, self._jobs.run, sabotage=setup.sabotage)

    def _why_unreachable(self, address: int, written: bool) -> str:
        return why_unreachable(self._setup.board, self._setup.elf, address, written)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the NPU model remarked about the jobs since `start`."""
        return tuple(dict.fromkeys(self._jobs.notes)) if self._jobs else ()

    @property
    def streams(self) -> tuple[tuple[int, ...], ...]:
        """Command streams of the jobs since `start`."""
        return tuple(self._jobs.streams) if self._jobs else ()
