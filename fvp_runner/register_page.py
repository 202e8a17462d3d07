"""The register page of an Ethos-U: what a driver sees of the NPU.

Invariant: registers behave as documented for the hardware, under any driver: no driver is
known here, and a job is run only through the `execute` hook. A job runs to its end inside
the write that starts it; its outcome is only reported through STATUS, QREAD, the PMU and
the interrupt line. A fault can be cleared by a reset alone. On Ethos-U85 the PMU is in a second page, with twice as
many counters, and ports are set up otherwise; the rest is where it was. Source: register names and bit positions of
Arm's public driver headers, checked by running that driver unmodified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from npu_memplan.ethosu.arch import Architecture


class Reg(IntEnum):
    """Byte offsets in the page; 64-bit registers have their high half 4 bytes on."""

    ID = 0x000
    STATUS = 0x004
    CMD = 0x008
    RESET = 0x00C
    QBASE = 0x010
    QBASE_HI = 0x014
    QREAD = 0x018
    QCONFIG = 0x01C
    QSIZE = 0x020
    PROT = 0x024
    CONFIG = 0x028
    LOCK = 0x02C
    REGIONCFG = 0x03C
    AXI_LIMIT0 = 0x040
    AXI_LIMIT3 = 0x04C  # MEM_ATTR 0 to 3 on Ethos-U85
    AXI_SRAM = 0x050
    AXI_EXT = 0x054
    BASEP0 = 0x080
    BASEP_END = 0x0C0
    PMCR = 0x180
    PMCNTENSET = 0x184
    PMCNTENCLR = 0x188
    PMOVSSET = 0x18C
    PMOVSCLR = 0x190
    PMINTSET = 0x194
    PMINTCLR = 0x198
    PMCCNTR = 0x1A0
    PMCCNTR_HI = 0x1A4
    PMCCNTR_CFG = 0x1A8
    PMCAXI_CHAN = 0x1AC
    PMEVCNTR0 = 0x300
    PMEVTYPER0 = 0x380
    SHARED_BUFFER = 0x400
    SHARED_BUFFER_END = 0x800
    PID0 = 0xFD0
    PID_END = 0x1000


class Status(IntFlag):
    RUNNING = 1 << 0
    IRQ_RAISED = 1 << 1
    BUS_ERROR = 1 << 2
    RESET_ONGOING = 1 << 3
    PARSE_ERROR = 1 << 4
    END_REACHED = 1 << 5
    PMU_IRQ = 1 << 6
    WEIGHT_FAULT = 1 << 7
    ECC_FAULT = 1 << 8


class Command(IntFlag):
    """Bits of CMD; 31:16 clear the same bits of STATUS's interrupt history."""

    RUN = 1 << 0
    CLEAR_IRQ = 1 << 1
    CLOCK_Q = 1 << 2
    POWER_Q = 1 << 3


NO_FAULT = Status(0)
FAULTS = Status.BUS_ERROR | Status.PARSE_ERROR | Status.WEIGHT_FAULT | Status.ECC_FAULT

_PMU_CYCLE_BIT = 1 << 31
_PMU_CYCLE_EVENTS = frozenset((17, 35))  # CYCLE, NPU_ACTIVE: counted as the job's cycles
# AXI0 and AXI1, DATA_BEAT_RECEIVED and DATA_BEAT_WRITTEN: places in `JobOutcome.beats`
_PMU_BEAT_EVENTS = {130: 0, 135: 1, 386: 2, 391: 3}
_PLAIN = frozenset((Reg.QCONFIG, Reg.LOCK, Reg.REGIONCFG, *range(Reg.AXI_LIMIT0, Reg.AXI_EXT + 4, 4)))
_RESERVED = 1 << 16
_CLEARING = frozenset((Reg.PMCNTENCLR, Reg.PMOVSCLR, Reg.PMINTCLR))  # each behind the register whose bits it clears
# Component identification: CID is Arm's constant; PID carries part number 0x580 (U55) or 0x58B (U65).
_CID = (0x0D, 0xF0, 0x05, 0xB1)


@dataclass(frozen=True, slots=True)
class Job:
    """The contents of the registers when CMD starts the NPU. Addresses are the NPU's, sizes bytes."""

    queue_base: int
    queue_bytes: int
    bases: tuple[int, ...]  # BASEP0..7


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """How a job ended: no fault bits means it reached its STOP."""

    faults: Status = NO_FAULT
    cycles: int = 0
    beats: tuple[int, int, int, int] = (0, 0, 0, 0)  # port 0 read, written; port 1 read, written
    read_bytes: int = 0  # of the command stream, for QREAD
    message: str = ""


class EthosURegisters:
    """One NPU behind its register page.

    `execute(job)` runs a job on the machine's real memory. `set_irq(level)` drives the
    interrupt line; it is called only when the level changes. `read`/`write` take the byte
    offset in the page; 8- and 16-bit accesses are the caller's to widen to words.
    """

    def __init__(
        self,
        accelerator: Architecture,
        execute: Callable[[Job], JobOutcome],
        set_irq: Callable[[bool], None] = lambda level: None,
    ) -> None:
        self.accelerator = accelerator
        self.messages: list[str] = []  # why jobs failed, in the NPU model's words
        self.jobs: list[JobOutcome] = []
        self._execute = execute
        self.set_irq = set_irq
        self.irq = False  # level of the interrupt line
        self._words: dict[int, int] = {}
        self._protection = 0
        self._reset_registers()

    def read_word(self, offset: int) -> int:
        """The 32-bit word at byte `offset` (rounded down to a word); reserved words read 0."""
        offset = self._word_place(offset)
        if offset in _CLEARING:
            offset -= 4
        if Reg.PID0 <= offset < Reg.PID_END:
            return self._identification_word(offset)
        kept = self._words.get(offset, 0)
        values: dict[int, int] = {
            Reg.ID: self.accelerator.id_word,
            Reg.CONFIG: self.accelerator.config_word,
            Reg.STATUS: int(self._status) | self._history << 16,
            Reg.CMD: self._command,
            Reg.QREAD: self._queue_read,
            Reg.PROT: self._protection,
            Reg.PMCR: kept | self.accelerator.pmu_counters << 11,
            Reg.PMCCNTR: self._cycles & 0xFFFFFFFF,
            Reg.PMCCNTR_HI: self._cycles >> 32 & 0xFFFF,
        }
        return values.get(offset, kept)

    def write_word(self, offset: int, value: int) -> None:
        """Write the 32-bit word at byte `offset`; read-only and reserved words ignore it."""
        offset = self._word_place(offset)
        value &= 0xFFFFFFFF
        if offset == Reg.CMD:
            self._write_command(value)
        elif offset == Reg.RESET:
            self._reset_registers()
            self._protection = value & 3
        elif offset in (Reg.QBASE, Reg.QBASE_HI, Reg.QSIZE):
            self._words[offset] = value & (0xFF if offset == Reg.QBASE_HI else 0xFFFFFFFF)
            if not self._status & Status.RUNNING:
                self._status &= ~Status.END_REACHED
                self._queue_read = 0
        elif Reg.BASEP0 <= offset < Reg.BASEP_END:
            wide = self.accelerator.address_bits > 32
            self._words[offset] = value if not offset & 4 else value & (0xFF if wide else 0)
        elif offset in _PLAIN or Reg.SHARED_BUFFER <= offset < Reg.SHARED_BUFFER_END:
            self._words[offset] = value
        elif Reg.PMCR <= offset < Reg.SHARED_BUFFER:
            self._write_pmu(offset, value)

    def _word_place(self, offset: int) -> int:
        """Offset of the word in a page where the PMU is in no page of its own; reserved words are beyond all others."""
        base, offset = self.accelerator.pmu_base, offset & ~3
        if not base:
            return offset
        if Reg.PMCR <= offset < Reg.PID0:
            return _RESERVED  # here the other NPUs have their PMU
        return offset - base if base + Reg.PMCR <= offset < base + Reg.SHARED_BUFFER else offset

    def _reset_registers(self) -> None:
        """Soft reset: everything but protection and the clock/power requests goes to its reset value."""
        self._words.clear()
        self._status = Status(0)
        self._history = 0
        self._command = int(Command.CLOCK_Q | Command.POWER_Q)
        self._queue_read = 0
        self._cycles = 0
        self._drive_irq()

    def _drive_irq(self) -> None:
        level = bool(self._status & Status.IRQ_RAISED)
        if level != self.irq:
            self.irq = level
            self.set_irq(level)

    def _write_command(self, value: int) -> None:
        command = Command(value & 0xF)
        self._command = value & int(Command.CLOCK_Q | Command.POWER_Q)
        self._history &= ~(value >> 16)
        if command & Command.CLEAR_IRQ:
            self._status &= ~Status.IRQ_RAISED
            self._drive_irq()
        if command & Command.RUN and not self._status & (FAULTS | Status.RUNNING | Status.RESET_ONGOING):
            self._run_job()

    def _current_job(self) -> Job:
        words = self._words
        return Job(
            queue_base=words.get(Reg.QBASE, 0) | words.get(Reg.QBASE_HI, 0) << 32,
            queue_bytes=words.get(Reg.QSIZE, 0),
            bases=tuple(
                words.get(Reg.BASEP0 + 8 * i, 0) | words.get(Reg.BASEP0 + 8 * i + 4, 0) << 32 for i in range(8)
            ),
        )

    def _run_job(self) -> None:
        self._status |= Status.RUNNING
        outcome = self._execute(self._current_job())
        self.jobs.append(outcome)
        if outcome.message:
            self.messages.append(outcome.message)
        self._queue_read = outcome.read_bytes
        self._count_events(outcome)
        self._status &= ~Status.RUNNING
        self._status |= Status.IRQ_RAISED | (self._reported_faults(outcome.faults) or Status.END_REACHED)
        self._history |= 1
        self._drive_irq()

    def _reported_faults(self, faults: Status) -> Status:
        """Ethos-U85 has no bit for damaged weights."""
        if faults & Status.WEIGHT_FAULT and self.accelerator.pmu_base:
            return faults & ~Status.WEIGHT_FAULT | Status.PARSE_ERROR
        return faults

    def _count_events(self, outcome: JobOutcome) -> None:
        """PMU: the cycle counter and the events that a job has an amount for advance, where they are enabled."""
        enabled = self._words.get(Reg.PMCNTENSET, 0)
        if not self._words.get(Reg.PMCR, 0) & 1:
            return
        if enabled & _PMU_CYCLE_BIT:
            self._cycles = (self._cycles + outcome.cycles) & (1 << 48) - 1
        amounts = dict.fromkeys(_PMU_CYCLE_EVENTS, outcome.cycles)
        amounts |= {event: outcome.beats[place] for event, place in _PMU_BEAT_EVENTS.items()}
        for i in range(self.accelerator.pmu_counters):
            if enabled >> i & 1:
                counter, event = Reg.PMEVCNTR0 + 4 * i, self._words.get(Reg.PMEVTYPER0 + 4 * i, 0)
                self._words[counter] = (self._words.get(counter, 0) + amounts.get(event, 0)) & 0xFFFFFFFF

    def _write_pmu(self, offset: int, value: int) -> None:
        words = self._words
        if offset == Reg.PMCR:
            words[Reg.PMCR] = value & 0b1001
            if value & 2:
                for i in range(self.accelerator.pmu_counters):
                    words.pop(Reg.PMEVCNTR0 + 4 * i, None)
            if value & 4:
                self._cycles = 0
        elif offset in (Reg.PMCNTENSET, Reg.PMOVSSET, Reg.PMINTSET):
            words[offset] = words.get(offset, 0) | value
        elif offset in _CLEARING:
            words[offset - 4] = words.get(offset - 4, 0) & ~value
        elif offset == Reg.PMCCNTR:
            self._cycles = self._cycles & ~0xFFFFFFFF | value
        elif offset == Reg.PMCCNTR_HI:
            self._cycles = self._cycles & 0xFFFFFFFF | (value & 0xFFFF) << 32
        else:
            words[offset] = value

    def _identification_word(self, offset: int) -> int:
        if offset >= 0xFF0:
            return _CID[(offset - 0xFF0) // 4]
        part = self.accelerator.part_number
        return {0xFD0: 0x04, 0xFE0: part & 0xFF, 0xFE4: 0xB0 | part >> 8, 0xFE8: 0x0B}.get(offset, 0)
