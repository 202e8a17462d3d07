"""How much work a check is: what decides, in place of a clock, whether it is done by default.

Invariant: the same artifact has the same work. A unit is about a millisecond of a PC; measured on kws_ref_model,
pretrainedResnet_quant, person_detect and mobilenet_v2, of which all but the last are checked.
"""

from __future__ import annotations

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


def work(artifact: Artifact, inputs: int) -> int:
    """Units of work of a check on so many inputs."""
    macs, cycles = artifact.npu_macs or 0, artifact.host_cycles or 0
    once = _OF_AN_OPERATION * artifact.npu_operations + _OF_A_HOST_CALL * artifact.host_operations
    if artifact.npu_operations:
        once += artifact.constants_bytes // _CONSTANT_BYTES
    each = macs // _MACS + macs // _REFERENCE_MACS + cycles // _HOST_CYCLES + cycles // _REFERENCE_CYCLES
    return once + inputs * each


def too_much(artifact: Artifact, inputs: int, limit: int = LIMIT) -> str:
    """Why a check needs --check; "" if it is not."""
    if any(operator.kind == "WHILE" for operator in artifact.operators):
        return "how often its WHILE turns is not known; --check runs it"
    found = work(artifact, inputs)
    if found <= limit:
        return ""
    operations = counted(artifact.npu_operations, "NPU operation")
    npu = f"{artifact.npu_macs:,} MACs in {operations}" if artifact.npu_macs else ""
    calls = sum(call.agent is Agent.HOST for call in artifact.calls)
    host = f"{counted(calls, 'host call')} of about {artifact.host_cycles:,} cycles" if artifact.host_cycles else ""
    description = " and ".join(part for part in (npu, host) if part)
    return f"{description} are much work ({found:,} units, {limit:,} are done unasked); --check does it"
