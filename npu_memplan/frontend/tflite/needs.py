"""What a TFLite network needs: its operators by kind and type of activations, and what can run each.

Invariant: whether the host can is decided by the very code that would lower the operator. Whether the NPU can depends
on shapes, too, which only compiling shows: what is stated here is that its compilers support the operator in this type.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...exactness import Claim, Code, Exactness, claim
from ...models.network import CpuOperator, Network
from ...models.vela import NpuCall
from .completion import completed
from .described import activation_type
from .on_host import float_operators, host_reason


@dataclass(frozen=True, slots=True)
class Need:
    """`count` operators of one kind and type; `refused` is why the host has no code for one of them, if it has none."""

    kind: str
    dtype: str
    count: int
    lifted: Claim
    lowered: Claim
    host: Claim
    refused: str = ""

    @property
    def runs_on(self) -> str:
        """Who runs it, at best."""
        if self.lifted.exactness is not Exactness.UNPROVEN or self.lowered.exactness is not Exactness.UNPROVEN:
            return "NPU" if self.refused else "NPU or host"
        return "nothing" if self.refused else "host"


def needs(network: Network) -> tuple[Need, ...]:
    """What `network` needs, most frequent first; calls of the NPU in a compiled one count as `ethos-u`."""
    network = completed(network)
    groups: dict[tuple[str, str], list[CpuOperator]] = {}
    for operator in network.operators:
        if not isinstance(operator, NpuCall):
            dtype = activation_type(network, operator) if operator.inputs or operator.outputs else ""
            groups.setdefault((operator.name, dtype), []).append(operator)
    floats = float_operators(network)
    found = [_need(network, kind, dtype, members, floats) for (kind, dtype), members in groups.items()]
    found.sort(key=lambda need: (-need.count, need.kind, need.dtype))
    calls = len(network.npu_calls)
    compiled = Claim(reason="the file was compiled already")
    return (*((Need("ethos-u", "", calls, compiled, compiled, compiled),) if calls else ()), *found)


def _need(network: Network, kind: str, dtype: str, members: list[CpuOperator], floats: dict[int, str]) -> Need:
    refused = next((reason for o in members if (reason := host_reason(network, o)) is not None), "")
    unknown = Claim()
    on_npu = not any(operator.index in floats for operator in members)
    lifted, lowered = (claim(code, kind, dtype) if on_npu else unknown for code in (Code.LIFTED, Code.LOWERED))
    return Need(kind, dtype, len(members), lifted, lowered, claim(Code.HOST, kind, dtype), refused)
