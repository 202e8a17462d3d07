"""Faults put into the NPU's register page, to see a driver report them."""

from __future__ import annotations

from enum import Enum
from typing import Any

from fvp_runner.register_page import EthosURegisters, JobOutcome, Reg, Status


class Sabotage(Enum):
    """What is wrong with the device."""

    REFUSE_RESET = "PROT never takes the requested security and privilege"
    RESET_NEVER_ENDS = "STATUS.reset_status stays set"
    NEVER_ENDS = "a job never leaves the running state"
    OTHER_NPU = "CONFIG is that of an NPU with twice the MACs"
    ECC = "a job ends in an ECC fault"
    WEIGHT_DECODER = "a job ends in a weight decoder fault"


OUTCOMES = {
    Sabotage.ECC: JobOutcome(Status.ECC_FAULT, message="sabotage: ECC fault"),
    Sabotage.WEIGHT_DECODER: JobOutcome(Status.WEIGHT_FAULT, message="sabotage: weight decoder fault"),
}


class SabotagedRegisters(EthosURegisters):
    """A register page with one fault."""

    def __init__(self, fault: Sabotage, *arguments: Any) -> None:
        self.fault = fault
        super().__init__(*arguments)
        if fault in OUTCOMES:
            self._execute = lambda job: OUTCOMES[fault]

    def read_word(self, offset: int) -> int:
        return super().read_word(offset) + (self.fault is Sabotage.OTHER_NPU and offset == Reg.CONFIG)

    def write_word(self, offset: int, value: int) -> None:
        before = self._protection
        super().write_word(offset, value)
        if self.fault is Sabotage.REFUSE_RESET:
            self._protection = before
        if self.fault is Sabotage.RESET_NEVER_ENDS and offset == Reg.RESET:
            self._status |= Status.RESET_ONGOING

    def _run_job(self) -> None:
        if self.fault is Sabotage.NEVER_ENDS:
            self._status |= Status.RUNNING
        else:
            super()._run_job()
