"""How much work a check is: what decides, in place of a clock, whether it is done by default.

Invariant: the same artifact has the same work. A unit is about a millisecond of a PC; measured on kws_ref_model,
pretrainedResnet_quant, person_detect and mobilenet_v2, of which all but the last are checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..artifact import Artifact
from ..problem import Agent
from ..sizes import counted

LIMIT = 5_000
LIMIT_OF_SEARCHES = 20_000  # of compiles that compare many programs, and take longer themselves

_OF_AN_OPERATION = 4  # the NPU model reads, checks and times each once
_MACS = 60_000  # of the NPU model in a unit
_REFERENCE_MACS = 150_000
_CONSTANT_BYTES = 800  # weights are decoded once
_OF_A_HOST_CALL = 100  # the C compiler
_HOST_CYCLES = 1_000_000
_REFERENCE_CYCLES = 300_000


@dataclass(frozen=True, slots=True)
class CheckWork:
    """What a check of a program runs, once and for every input."""

    npu_operations: int
    npu_macs: int
    constants_bytes: int
    host_operations: int = 0  # of C that is compiled
    host_calls: int = 0
    host_cycles: int = 0
    loops: bool = False  # how often they turn is not known

    def units(self, inputs: int) -> int:
        """On so many inputs."""
        once = _OF_AN_OPERATION * self.npu_operations + _OF_A_HOST_CALL * self.host_operations
        if self.npu_operations:
            once += self.constants_bytes // _CONSTANT_BYTES
        each = self.npu_macs // _MACS + self.npu_macs // _REFERENCE_MACS
        return once + inputs * (each + self.host_cycles // _HOST_CYCLES + self.host_cycles // _REFERENCE_CYCLES)

    def too_much(self, inputs: int, limit: int = LIMIT) -> str:
        """Why a check needs --check; "" if it is not."""
        if self.loops:
            return "how often its WHILE turns is not known; --check runs it"
        found = self.units(inputs)
        if found <= limit:
            return ""
        operations = counted(self.npu_operations, "NPU operation")
        npu = f"{self.npu_macs:,} MACs in {operations}" if self.npu_macs else ""
        host = (
            f"{counted(self.host_calls, 'host call')} of about {self.host_cycles:,} cycles" if self.host_cycles else ""
        )
        description = " and ".join(part for part in (npu, host) if part)
        return f"{description} are {found:,} work units, more than the limit of {limit:,}; --check does it"


def work_of(artifact: Artifact) -> CheckWork:
    """What a check of `artifact` runs."""
    return CheckWork(
        artifact.npu_operations,
        artifact.npu_macs or 0,
        artifact.constants_bytes,
        artifact.host_operations,
        sum(call.agent is Agent.HOST for call in artifact.calls),
        artifact.host_cycles or 0,
        any(operator.kind == "WHILE" for operator in artifact.operators),
    )
