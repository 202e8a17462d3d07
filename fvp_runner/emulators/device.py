"""The NPU of an emulated board: which memory it reaches, what is there, and its register page; and a run with it.

Invariant: the NPU reaches what the board's description gives it, nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np

from npu_memplan.ethosu.arch import Architecture, accelerator
from npu_memplan.ethosu.time import MemoryMap
from npu_memplan.problem import Agent
from npu_memplan.target_data import Board, BoardMemory

from ..base import RunOptions, RunOutputs
from ..firmware_build.build import Elf, Firmware
from ..firmware_run import END_OF_TRANSMISSION, Stopwatch, image_with_inputs, outputs_of, start_stopwatch
from ..npu_model.model import NpuModel
from ..npu_model.spec.feature_maps import Bytes
from ..register_page import EthosURegisters
from ..result import Array
from .job import GuestMemory, JobRunner
from .trap import RegisterAccess

_COMMON = (".text", ".rodata", ".data", ".bss")  # sections that hold what was not placed


def pool_spans(firmware: Firmware) -> list[tuple[int, int]]:
    """(address, size in bytes) of each planned pool in the linked image."""
    artifact = firmware.artifact
    return [
        (firmware.elf.find_symbol(f"npu_memplan_pool_{index}").address + guard, artifact.pool_bytes(pool.name))
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
    """The reason that the NPU does not reach an address: what is there and where it should be, in brackets."""
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
    return f" ({what} in {place.name}, which the NPU cannot reach{unset}; {_section_advice(section, reachable)})"


def _section_advice(section: str, reachable: str) -> str:
    """The place where a section should be; one that holds other things too (.text, .bss) is not to move as a whole."""
    if section in _COMMON:
        return (
            f"the linker script has no place for it and took it into {section}: give it a section of its own in one of "
            f"{reachable}, as examples/firmware/linker/npu_memplan.ld does for .rodata.npu_memplan and .bss.npu_memplan"
        )
    return f"place {section} in one of {reachable}"


@dataclass(frozen=True, slots=True)
class End:
    """How a program ended: all that it printed, and its exit code where it gave one by semihosting."""

    uart: bytes
    exit_code: int | None = None
    accesses: list[RegisterAccess] = field(default_factory=list)


class Machine(GuestMemory, Protocol):
    """An emulated board with a program in its memory, its CPU at reset."""

    def run(self, device: EthosURegisters, watch: Stopwatch) -> End:
        """Let the CPU run to the program's end, serving its accesses to the NPU's registers."""

    def read(self, address: int, size_bytes: int) -> Bytes:
        """Memory as it is now."""


class Device:
    """The NPU of a board, for one program; `objects`: start address -> size of what a base pointer may name."""

    jobs: JobRunner  # since the last `start`

    def __init__(
        self,
        board: Board,
        elf: Elf,
        npu: Architecture,
        objects: Mapping[int, int],
        checks: bool = True,
        where: MemoryMap | None = None,
    ) -> None:
        self._board, self._elf, self._npu, self._objects = board, elf, npu, objects
        self._model = NpuModel(npu, checks, where)

    @classmethod
    def of_firmware(cls, firmware: Firmware, checks: bool) -> Device:
        """The NPU that a built artifact was compiled for; its pools are known objects."""
        board, elf, name = firmware.board, firmware.elf, firmware.artifact.target.accelerator
        npu = accelerator(name if name != "none" else board.accelerators[0])
        pools = {a: size for a, size in pool_spans(firmware) if size and reaching_memory(board, a, size)}
        return cls(board, elf, npu, known_objects(board, elf) | pools, checks, firmware.artifact.memory_map)

    def attach_npu(self, memory: GuestMemory) -> EthosURegisters:
        """A reset NPU on `memory`; decoded streams are kept."""
        self.jobs = JobRunner(self._model, memory, self._objects, partial(why_unreachable, self._board, self._elf))
        return EthosURegisters(self._npu, self.jobs.run)

    @property
    def job_notes(self) -> tuple[str, ...]:
        """The remarks of the NPU model about the jobs since `attach_npu`, each once."""
        return tuple(dict.fromkeys(self.jobs.notes))


class EmulatedRunner(ABC):
    """Runs firmware on an emulated CPU. Every run is a new machine."""

    name: str

    def __init__(self, firmware: Firmware, options: RunOptions) -> None:
        self.firmware, self._options = firmware, options
        self._device = Device.of_firmware(firmware, options.checks)

    @abstractmethod
    def _machine(self, image: Elf) -> AbstractContextManager[Machine]:
        """The firmware's board with `image` loaded."""

    @abstractmethod
    def _emulator_version(self) -> str:
        """The version of the emulator."""

    def run(self, inputs: Sequence[Array]) -> RunOutputs:
        """Boot, run one inference, and read what came out. See `Runner.run`."""
        return self._run_inferences(inputs)

    def run_steps(self, sequence: Sequence[Sequence[Array]]) -> RunOutputs:
        """Boot and run an inference for each of `sequence`, as many as the firmware was built for; see `steps`."""
        ran, count = self._run_inferences(*sequence), len(self.firmware.artifact.outputs)
        return replace(ran, outputs=tuple(np.stack(ran.outputs[i::count]) for i in range(count)))

    def _run_inferences(self, *sequence: Sequence[Array]) -> RunOutputs:
        """Outputs of all inferences, one after the other."""
        with self._machine(image_with_inputs(self.firmware, *sequence)) as machine:
            npu = self._device.attach_npu(machine)
            with start_stopwatch(self.name, self.firmware.artifact, self._options, npu.jobs) as watch:
                uart = machine.run(npu, watch).uart
                seconds = watch.limit_s
            pools = None
            if self._options.pools_after and END_OF_TRANSMISSION in uart:
                pools = tuple(machine.read(address, size) for address, size in pool_spans(self.firmware))
            return outputs_of(
                self.firmware,
                uart,
                messages=npu.messages,
                notes=self._device.job_notes,
                pools=pools,
                version=self._emulator_version(),
                seconds=seconds,
                steps=len(sequence),
            )
