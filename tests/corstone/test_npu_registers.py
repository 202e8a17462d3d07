"""The register page as a driver sees it."""

from __future__ import annotations

from functools import partial

import pytest

from fvp_runner.register_page import EthosURegisters, Job, JobOutcome, Reg, Status
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U55_65
from tests.support.sabotage import Sabotage, SabotagedRegisters


class Bench:
    """A device whose jobs end as `outcome` says; keeps what it was asked and each change of the line."""

    def __init__(self, outcome: JobOutcome | None = None, name: str = "ethos-u55-256", *sabotage: Sabotage) -> None:
        self.outcome = outcome or JobOutcome(cycles=1000, read_bytes=64)
        self.jobs: list[Job] = []
        self.line: list[bool] = []
        made = partial(SabotagedRegisters, *sabotage) if sabotage else EthosURegisters
        self.device = made(accelerator(name), self._execute, self.line.append)

    def _execute(self, job: Job) -> JobOutcome:
        self.jobs.append(job)
        return self.outcome


def test_success_is_status_0x22_until_cleared() -> None:
    bench = Bench()
    d = bench.device
    d.write_word(Reg.QBASE, 0x60000010)
    d.write_word(Reg.QSIZE, 64)
    d.write_word(Reg.CMD, 1)
    assert d.read_word(Reg.STATUS) & 0xFFFF == Status.IRQ_RAISED | Status.END_REACHED == 0x22
    assert d.read_word(Reg.STATUS) >> 16 == 1, "the interrupt history"
    assert d.read_word(Reg.QREAD) == 64
    d.write_word(Reg.CMD, 2 | 1 << 16)
    assert d.read_word(Reg.STATUS) == Status.END_REACHED, "the end stays until the next queue is written"
    d.write_word(Reg.QSIZE, 32)
    assert d.read_word(Reg.STATUS) == 0
    assert bench.line == [True, False]


def test_a_job_sees_all_that_was_written() -> None:
    bench = Bench(name="ethos-u65-512")
    d = bench.device
    d.write_word(Reg.QBASE, 0x12345670)
    d.write_word(Reg.QBASE_HI, 0xAB)
    d.write_word(Reg.QSIZE, 400)
    d.write_word(Reg.QCONFIG, 2)
    d.write_word(Reg.REGIONCFG, 0xE4)
    for i in range(8):
        d.write_word(Reg.BASEP0 + 8 * i, 0x1000 * (i + 1))
        d.write_word(Reg.BASEP0 + 8 * i + 4, i)
    d.write_word(Reg.CMD, 0xD)
    (job,) = bench.jobs
    assert job == Job(0xAB12345670, 400, tuple(0x1000 * (i + 1) | i << 32 for i in range(8)))
    assert (d.read_word(Reg.QCONFIG), d.read_word(Reg.REGIONCFG)) == (2, 0xE4)
    assert d.read_word(Reg.CMD) == 0xC, "only the clock and power requests read back"


def test_a_u55_has_32_bit_bases() -> None:
    bench = Bench()
    bench.device.write_word(Reg.BASEP0 + 4, 0xFF)
    assert bench.device.read_word(Reg.BASEP0 + 4) == 0


@pytest.mark.parametrize("fault", [Status.BUS_ERROR, Status.PARSE_ERROR, Status.WEIGHT_FAULT, Status.ECC_FAULT])
def test_a_fault_stops_everything_until_reset(fault: Status) -> None:
    bench = Bench(JobOutcome(fault, message="why"))
    d = bench.device
    d.write_word(Reg.CMD, 1)
    assert d.read_word(Reg.STATUS) & 0xFFFF == fault | Status.IRQ_RAISED
    d.write_word(Reg.CMD, 2)
    d.write_word(Reg.QSIZE, 16)
    d.write_word(Reg.CMD, 1)
    assert d.read_word(Reg.STATUS) & 0xFFFF == fault, "neither a cleared interrupt nor a new queue clears it"
    assert len(bench.jobs) == 1, "no job runs while a fault is set"
    d.write_word(Reg.RESET, 1)
    assert d.read_word(Reg.STATUS) == 0
    assert d.messages == ["why"]


def test_reset_takes_protection_and_forgets_the_rest() -> None:
    d = Bench().device
    d.write_word(Reg.BASEP0, 0x100)
    d.write_word(Reg.AXI_LIMIT0, 0x0F1F0000)
    for bits in (1, 2, 3, 0):
        d.write_word(Reg.RESET, bits)
        assert d.read_word(Reg.PROT) == bits
    assert d.read_word(Reg.BASEP0) == d.read_word(Reg.AXI_LIMIT0) == d.read_word(Reg.STATUS) == 0
    d.write_word(Reg.PROT, 3)
    assert d.read_word(Reg.PROT) == 0, "PROT is read-only"


@pytest.mark.parametrize("name", [a.name for a in ETHOS_U55_65])
def test_config_says_what_the_npu_is(name: str) -> None:
    a = accelerator(name)
    d = Bench(name=name).device
    config = d.read_word(Reg.CONFIG)
    assert 1 << (config & 0xF) == a.macs
    assert config >> 8 & 0xFF == a.shram_kib * a.cores
    assert config >> 28 == a.product.value
    assert d.read_word(Reg.ID) >> 28 == 1, "architecture 1, as in Vela's payloads"
    assert [d.read_word(0xFF0 + 4 * i) for i in range(4)] == [0x0D, 0xF0, 0x05, 0xB1], "Arm's component id"
    d.write_word(Reg.CONFIG, 0)
    assert d.read_word(Reg.CONFIG) == config, "CONFIG is read-only"


def test_pmu_counts_only_while_enabled() -> None:
    d = Bench(JobOutcome(cycles=0x1_2345_6789)).device
    d.write_word(Reg.CMD, 1)
    assert d.read_word(Reg.PMCCNTR) == 0
    d.write_word(Reg.PMCR, 1)
    d.write_word(Reg.PMCNTENSET, 1 << 31 | 1)
    d.write_word(Reg.PMEVTYPER0, 17)
    d.write_word(Reg.CMD, 1)
    assert (d.read_word(Reg.PMCCNTR_HI) << 32 | d.read_word(Reg.PMCCNTR)) == 0x1_2345_6789
    assert d.read_word(Reg.PMEVCNTR0) == 0x2345_6789
    d.write_word(Reg.PMCNTENCLR, 1 << 31)
    d.write_word(Reg.CMD, 1)
    assert d.read_word(Reg.PMCCNTR) == 0x2345_6789
    assert d.read_word(Reg.PMCNTENSET) == d.read_word(Reg.PMCNTENCLR) == 1
    d.write_word(Reg.PMCR, 1 | 1 << 1 | 1 << 2)
    assert d.read_word(Reg.PMCCNTR) == d.read_word(Reg.PMCCNTR_HI) == d.read_word(Reg.PMEVCNTR0) == 0
    assert d.read_word(Reg.PMCR) >> 11 & 31 == 4, "event counters"


def test_pmu_counts_beats_of_both_ports() -> None:
    """DATA_BEAT_RECEIVED and DATA_BEAT_WRITTEN of AXI0 and AXI1; another event counts nothing."""
    d = Bench(JobOutcome(cycles=9, beats=(1, 2, 3, 4))).device
    d.write_word(Reg.PMCR, 1)
    d.write_word(Reg.PMCNTENSET, 0b1111)
    for number, event in enumerate((391, 386, 130, 135)):
        d.write_word(Reg.PMEVTYPER0 + 4 * number, event)
    d.write_word(Reg.CMD, 1)
    d.write_word(Reg.PMEVTYPER0, 128)
    d.write_word(Reg.CMD, 1)
    assert [d.read_word(Reg.PMEVCNTR0 + 4 * number) for number in range(4)] == [4, 6, 2, 4]


def test_ethos_u85_has_its_pmu_in_a_second_page_and_eight_counters() -> None:
    bench = Bench(JobOutcome(cycles=700, read_bytes=64, beats=(1, 2, 3, 4)), "ethos-u85-256")
    d = bench.device
    assert d.read_word(Reg.CONFIG) == 0x20000118
    for place, word in enumerate((0, 0, 4, 4, 0x21F3F, 0x21F3E)):  # MEM_ATTR 0 to 3, AXI_SRAM, AXI_EXT
        d.write_word(0x40 + 4 * place, word)
    assert [d.read_word(0x40 + 4 * i) for i in range(6)] == [0, 0, 4, 4, 0x21F3F, 0x21F3E]
    for offset in (Reg.PMCR, Reg.PMCNTENSET, Reg.PMEVTYPER0):
        d.write_word(offset, 1)
        assert d.read_word(offset) == 0, "the other NPUs' PMU is not there"
    assert d.read_word(0x1000 + Reg.PMCR) >> 11 == 8
    d.write_word(0x1000 + Reg.PMCR, 1)
    d.write_word(0x1000 + Reg.PMEVTYPER0 + 4 * 7, 391)  # beats written to the external port, in the last counter
    d.write_word(0x1000 + Reg.PMCNTENSET, 1 << 31 | 1 << 7)
    d.write_word(Reg.CMD, 1)
    assert d.read_word(0x1000 + Reg.PMCCNTR) == 700
    assert d.read_word(0x1000 + Reg.PMEVCNTR0 + 4 * 7) == 4
    assert d.read_word(Reg.PID_END - 0x20) == 0x82, "part number 0x582"


def test_ethos_u85_has_no_bit_for_damaged_weights() -> None:
    bench = Bench(JobOutcome(Status.WEIGHT_FAULT), "ethos-u85-256")
    bench.device.write_word(Reg.CMD, 1)
    assert bench.device.read_word(Reg.STATUS) & 0xFFFF == Status.IRQ_RAISED | Status.PARSE_ERROR
