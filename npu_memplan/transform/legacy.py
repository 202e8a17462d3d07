"""Pools under the names that TVM's Unified Static Memory Planner gave them.

Invariant: every attribute maps one to one to an attribute of `Pool`; what a `Pool` cannot say is
refused, never dropped. -1 means "unknown" or "unbounded", as it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import NpuMemplanError
from ..problem import Agent, Pool

HOST_KINDS = ("c", "llvm", "cmsis-nn")
NPU_KINDS = ("ethos-u",)


class LegacyPoolError(NpuMemplanError):
    """A legacy pool description says something that cannot be planned for."""


@dataclass(frozen=True, slots=True)
class PoolInfoProperties:
    """Size, speed and burst of a memory. Frequencies in Hz, bandwidths in bytes a cycle, latencies in cycles."""

    size_hint_bytes: int = -1
    clock_frequency_hz: int = -1
    read_bandwidth_bytes_per_cycle: int = -1
    write_bandwidth_bytes_per_cycle: int = -1
    read_latency_cycles: int = 0
    write_latency_cycles: int = 0
    target_burst_bytes: Mapping[Any, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WorkspacePoolInfo:
    """A read-write pool and the targets (names or `tvm.target.Target`) that can reach it; `llvm:1` is one device."""

    pool_name: str
    targets: Sequence[Any]
    pool_info_properties: PoolInfoProperties = PoolInfoProperties()

    def pool(self, alignment: int = 16) -> Pool:
        """The same pool for this planner."""
        agents = set()
        kinds = list(map(_kind, self.targets))
        for kind in (k.split(":")[0] for k in kinds):
            if kind not in HOST_KINDS + NPU_KINDS:
                known = ", ".join(HOST_KINDS + NPU_KINDS)
                raise LegacyPoolError(f"pool {self.pool_name!r}: target {kind!r} is unknown; known: {known}")
            agents.add(Agent.NPU if kind in NPU_KINDS else Agent.HOST)
        if not agents:
            raise LegacyPoolError(f"pool {self.pool_name!r} names no target that can reach it")
        properties = self.pool_info_properties
        return Pool(
            name=self.pool_name,
            size_bytes=_known(properties.size_hint_bytes),
            alignment=alignment,
            agents=frozenset(agents),
            read_only=isinstance(self, ConstantPoolInfo),
            clock_hz=_known(properties.clock_frequency_hz),
            read_bandwidth_bytes_per_cycle=_known(properties.read_bandwidth_bytes_per_cycle),
            write_bandwidth_bytes_per_cycle=_known(properties.write_bandwidth_bytes_per_cycle),
            read_latency_cycles=properties.read_latency_cycles,
            write_latency_cycles=properties.write_latency_cycles,
            burst_bytes={_kind(t): int(b) for t, b in properties.target_burst_bytes.items()},
            targets=tuple(kinds),
        )


class ConstantPoolInfo(WorkspacePoolInfo):
    """A read-only pool for constants."""


@dataclass(frozen=True, slots=True)
class WorkspaceMemoryPools:
    """Workspace pools in order of preference."""

    pools: Sequence[WorkspacePoolInfo]

    def __iter__(self) -> Any:
        """The pools for this planner, so that `PlanMemory(pools=WorkspaceMemoryPools([...]))` works."""
        return iter([p.pool() for p in self.pools])


class ConstantMemoryPools(WorkspaceMemoryPools):
    """Constant pools (`ConstantPoolInfo`) in order of preference, for `PlanMemory(constant_pools=...)`."""


def _kind(target: Any) -> str:
    return str(target.kind.name) if hasattr(target, "kind") else str(target).split()[0]


def _known(value: int) -> int | None:
    return None if value < 0 else value
