"""What a user asks of a compile, the command line that asks for it, and the pools that follow from it.

Invariant: the pools are in the order of the NPU's regions: pool i is region i + 1; parsing `flags()` gives the
same options again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import NpuMemplanError
from .problem import Agent, Pool
from .target_data import accelerator_system, load_memory_mode

if TYPE_CHECKING:
    from .ethosu.time import MemoryMap


class OptionError(NpuMemplanError):
    """Options of a compile contradict each other or name something unknown."""


NO_NPU = "none"

# How the command line says each of `CompileOptions`: by a value, by NAME=SIZE once a pool, or by being there.
_VALUES = {
    "accelerator": "--accelerator",
    "system_config": "--system-config",
    "vela_ini": "--vela-ini",
    "memory_mode": "--memory-mode",
    "optimise": "--optimise",
    "arena_cache_size_bytes": "--arena-cache-size",
    "host_ops": "--host-ops",
    "npu_compiler": "--npu-compiler",
    "planner": "--planner",
    "time_limit_s": "--time-limit",
    "seed": "--seed",
    "name": "--name",
}
_SIZES = {"pools": "--pool", "constant_pools": "--constant-pool"}
_SWITCHES = {
    "overlaps": "--no-overlap",
    "reorder": "--reorder",
    "stripes": "--stripes",
    "prefetch": "--prefetch",
    "reuse_inputs": "--keep-inputs",
}


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """Options of `npu-memplan compile`; of system_config and memory_mode, empty is the accelerator's own.

    `pools` are capacities in bytes by pool name; a capacity is hard. `constant_pools` are read-only
    pools for constants, in order of preference, with a capacity or None; none: single C arrays.
    """

    accelerator: str = "ethos-u55-256"  # or "none"
    system_config: str = ""
    memory_mode: str = ""
    optimise: str = "Performance"
    arena_cache_size_bytes: int | None = None
    pools: Mapping[str, int] = field(default_factory=dict)
    constant_pools: Mapping[str, int | None] = field(default_factory=dict)
    host_ops: tuple[str, ...] = ()
    npu_compiler: str = "vela"
    planner: str = "auto"
    time_limit_s: float | None = None
    seed: int = 0
    overlaps: bool = True  # in-place and partial overlap where proven safe
    reorder: bool = False  # independent calls in the order that needs least memory
    stripes: bool = False  # NPU operations cut by rows where that saves memory; of our own lowering only
    prefetch: bool = False  # room for weights to be copied one operation early, as far as the pools have it
    reuse_inputs: bool = True  # a graph input's bytes may be reused once it has been read
    name: str = ""  # of the model in C; empty: from the file name
    vela_ini: str = ""  # a file that describes system_config; empty: those that come with npu_memplan

    def resolved(self) -> CompileOptions:
        """The same options with the accelerator's defaults filled in; checks their names."""
        self._check_stripes()
        if self.accelerator == NO_NPU:
            if self.host_ops:
                raise OptionError("--host-ops names operators to keep off the NPU, but --accelerator none has no NPU")
            return replace(self, system_config="", memory_mode=self.memory_mode or "Shared_Sram")
        system = accelerator_system(self.accelerator)
        mode = load_memory_mode(self.memory_mode or system.memory_mode).name
        return replace(self, system_config=self.system_config or system.system_config, memory_mode=mode)

    def said(self) -> tuple[tuple[str, ...], ...]:
        """The command line that asks for these options, a flag with its value each; what is the default is left out."""
        own = CompileOptions(self.accelerator).resolved()
        usual = CompileOptions(system_config=own.system_config, memory_mode=own.memory_mode)
        said: list[tuple[str, ...]] = []
        for name, flag in _VALUES.items():
            value = getattr(self, name)
            if value not in ("", getattr(usual, name)):
                said.append((flag, ",".join(value) if isinstance(value, tuple) else str(value)))
        for name, flag in _SIZES.items():
            for pool, size in getattr(self, name).items():
                said.append((flag, pool if size is None else f"{pool}={size}"))
        return (*said, *((flag,) for name, flag in _SWITCHES.items() if getattr(self, name) != getattr(usual, name)))

    def flags(self) -> tuple[str, ...]:
        """The words of that command line."""
        return tuple(word for words in self.said() for word in words)

    def _check_stripes(self) -> None:
        if self.stripes and (self.accelerator == NO_NPU or self.npu_compiler != "tvm"):
            raise OptionError(
                "--stripes cuts the NPU operations of this package's own lowering: add --npu-compiler tvm and an "
                "--accelerator (Vela cuts its own with --optimise Size)"
            )
        if self.stripes and not self.overlaps:
            raise OptionError(
                "--stripes lets outputs lie over inputs, which --no-overlap forbids; leave one of them out"
            )

    def memory_map(self, regions: Mapping[int, str] | None = None) -> MemoryMap | None:
        """Which memory each of the NPU's regions lies in, by pool name; None without an NPU."""
        from .ethosu.time import load_system

        if self.accelerator == NO_NPU:
            return None
        usual = accelerator_system(self.accelerator)
        mode = self.memory_mode or usual.memory_mode
        if regions is None:
            regions = dict(enumerate(load_memory_mode(mode).pools, start=1))
        ini = Path(self.vela_ini) if self.vela_ini else None
        system = load_system(self.system_config or usual.system_config, ini)
        return system.memory_map(mode, regions, self.constant_pools)

    def planned_pools(self) -> tuple[Pool, ...]:
        """The pools to plan; `OptionError` when `pools` names one that the memory mode lacks."""
        mode = load_memory_mode(self.memory_mode or "Shared_Sram")
        unknown = [name for name in self.pools if name not in mode.pools]
        if unknown:
            raise OptionError(
                f"--pool names {unknown[0]!r}, but memory mode {mode.name} has: {', '.join(mode.pools)}; "
                "name one of these or choose another --memory-mode"
            )
        capacities: dict[str, int] = {**mode.capacity_bytes, **self.pools}
        if self.arena_cache_size_bytes is not None and len(mode.pools) > 1:
            capacities.setdefault("sram", self.arena_cache_size_bytes)
        return tuple(
            Pool(name, capacities.get(name), alignment=16, agents=frozenset((Agent.HOST, Agent.NPU)))
            for name in mode.pools
        )

    def planned_constant_pools(self) -> tuple[Pool, ...]:
        """The read-only pools to plan; `OptionError` when one has the name of another pool."""
        taken = load_memory_mode(self.memory_mode or "Shared_Sram").pools
        for name in self.constant_pools:
            if name in taken:
                raise OptionError(
                    f"--constant-pool {name} has the name of a pool for other buffers; give it another name, e.g. flash"
                )
        agents = frozenset((Agent.HOST, Agent.NPU))
        return tuple(
            Pool(name, size, alignment=16, agents=agents, read_only=True) for name, size in self.constant_pools.items()
        )
