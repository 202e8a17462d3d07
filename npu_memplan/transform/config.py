"""Options of `PlanMemory` by name, from a scope around the compilation, and pools under their old names in TVM.

Invariant: an option given to `PlanMemory` itself wins over the scope, an inner scope over an outer one. TVM 0.27 has no
way to register an option of a `PassContext` from Python, so `pass_context` takes the whole configuration, keeps what is
this package's, and hands the rest to TVM's. Every attribute of a pool of the Unified Static Memory Planner maps one to
one to an attribute of `Pool`; what a `Pool` cannot say is refused. -1 means "unknown" or "unbounded", as it did.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, replace
from typing import Any

import tvm

from ..errors import NpuMemplanError
from ..planners.registry import USMP_PLANNERS, planner_names
from ..problem import Agent, Pool

PREFIX = "npu_memplan."


class ConfigError(NpuMemplanError):
    """A planning option has an unknown name or a value of the wrong kind."""


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options that `PlanMemory` plans with; its parameters say what each means."""

    pools: tuple[Pool, ...] = (Pool("workspace"),)
    constant_pools: tuple[Pool, ...] = ()
    planner: str = "auto"
    use_workspace_io: bool = False
    overlaps: bool = True
    reorder: bool = False
    alignment: int = 1
    seed: int = 0
    bounds: Mapping[str, int] | None = None
    worst_case: bool | None = None
    share: bool = False
    poison: int | None = None


_SCOPE: ContextVar[Mapping[str, Any]] = ContextVar("npu_memplan_options", default={})  # noqa: B039 - never mutated


@contextlib.contextmanager
def config(options: Mapping[str, Any]) -> Iterator[None]:
    """A scope in which `PlanMemory` uses `options`, e.g. `{"npu_memplan.planner": "first-fit"}`.

    Parameters
    ----------
    options : mapping of str to object
        `npu_memplan.<name of a PlanOptions field>` -> value. The legacy keys `tir.usmp.enable`, `.algorithm`,
        `.custom_algorithm` and `.use_workspace_io` mean what they meant.

    Raises
    ------
    ConfigError
        A name is unknown, or a value of the wrong kind.
    """
    token = _SCOPE.set({**_SCOPE.get(), **_checked_config(options)})
    try:
        yield
    finally:
        _SCOPE.reset(token)


@contextlib.contextmanager
def pass_context(*, config: Mapping[str, Any] | None = None, **others: Any) -> Iterator[Any]:
    """`tvm.transform.PassContext(...)` whose `config` may also hold options of this package.

    Parameters
    ----------
    config : mapping of str to object, optional
        Options of this package as for `config`, and TVM's own.
    **others
        As for `tvm.transform.PassContext`.

    Yields
    ------
    tvm.transform.PassContext
        The context that is entered.

    Raises
    ------
    ConfigError
        An option of this package has an unknown name, or a value of the wrong kind.
    """
    given = dict(config or {})
    own = {k: v for k, v in given.items() if k.startswith((PREFIX, "tir.usmp."))}
    # The legacy companion has the same meaning under its new name.
    rest = {("tirx" + k[3:] if k == "tir.disable_storage_rewrite" else k): v for k, v in given.items() if k not in own}
    with _config(own), tvm.transform.PassContext(config=rest, **others) as context:
        yield context


_config = config  # `pass_context` has a parameter of this name


def check_options(**given: Any) -> Mapping[str, Any]:
    """The `given` options that are not None; `ConfigError` for a value of the wrong kind."""
    return {name: _check_option(name, name, value) for name, value in given.items() if value is not None}


def options(given: Mapping[str, Any]) -> PlanOptions:
    """The options in force; those `given`, which `check_options` has checked, win."""
    chosen = {**_SCOPE.get(), **given}
    result = replace(PlanOptions(), **chosen)
    for pool in result.pools:
        if pool.read_only:
            raise ConfigError(
                f"pool {pool.name!r} is read-only, so only constants can lie there; give it as a constant pool"
            )
    if result.planner not in planner_names():
        raise ConfigError(f"no planner is called {result.planner!r}; there are: {', '.join(planner_names())}")
    if result.worst_case is None:  # a pool with a size holds nothing whose bytes are not known
        sized = any(pool.size_bytes is not None for pool in result.pools)
        result = replace(result, worst_case=result.use_workspace_io or sized)
    if result.use_workspace_io and (result.share or not result.worst_case):
        other = "share=True" if result.share else "worst_case=False"
        raise ConfigError(
            f"{other} and use_workspace_io=True contradict each other: with the latter the caller makes the pools,"
            " of the size of the worst case; leave one of them out"
        )
    return result


def check_symbols(bounds: Mapping[str, int] | None, known: Iterable[str]) -> None:
    """`ConfigError` for a bound of a shape symbol that is not among the `known` ones."""
    there = sorted(set(known))
    if unknown := sorted(set(bounds or ()).difference(there)):
        raise ConfigError(
            f"bounds has {unknown[0]!r}, but no parameter of a Relax function has such a shape symbol;"
            f" there are: {', '.join(there) or 'none'}"
        )


def check_values(symbols: Mapping[str, int], bounds: Mapping[str, int]) -> Mapping[str, int]:
    """The values of shape `symbols`; `ConfigError` for one that is no number of elements, or above its bound."""
    if not isinstance(symbols, Mapping):
        raise ConfigError(f"symbols must be of type mapping, not {symbols!r}; give e.g. {{'n': 8}}")
    for name, value in symbols.items():
        if type(value) is not int or value < 0:
            raise ConfigError(f"the shape symbol {name!r} is {value!r}; give a whole number >= 0")
        if value > bounds.get(name, value):
            raise ConfigError(
                f"the shape symbol {name!r} is {value}, above its bound {bounds[name]}; give at most that"
            )
    return symbols


def _checked_config(given: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name: f for f in fields(PlanOptions)}
    result: dict[str, Any] = {}
    for key, value in given.items():
        if key in _LEGACY:
            result.update(_LEGACY[key](value))
            continue
        name = key.removeprefix(PREFIX)
        if not key.startswith(PREFIX) or name not in names:
            known = ", ".join([*(PREFIX + n for n in names), *_LEGACY])
            raise ConfigError(f"unknown planning option {key!r}; known: {known}")
        result[name] = _check_option(key, name, value)
    return result


def _check_option(key: str, name: str, value: Any) -> Any:
    """The value of option `name`; `ConfigError`, which says `key`, for one of the wrong kind."""
    if name in ("pools", "constant_pools"):
        several = isinstance(value, Iterable) and not isinstance(value, str)
        pools = tuple(value) if several else ()
        if not all(isinstance(p, Pool) for p in pools) or (not pools and (name == "pools" or not several)):
            example = value if isinstance(value, str) else "sram"
            raise ConfigError(
                f"{key} must be a list of at least one npu_memplan.Pool, not {value!r}; e.g. [Pool({example!r})]"
            )
        names = [pool.name for pool in pools]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ConfigError(f"{key} has two pools called {twice[0]!r}; give each a name of its own")
        return pools
    kinds: dict[str, Any] = {"planner": str, "alignment": int, "seed": int, "bounds": Mapping, "poison": int}
    kind = kinds.get(name, bool)
    if kind is bool and value in (0, 1):
        return bool(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise ConfigError(f"{key} must be of type {kind.__name__.lower()}, not {value!r}")
    allowed, give = _RANGES.get(name, (None, ""))
    if allowed is not None and not allowed(value):
        raise ConfigError(f"{key} is {value!r}; give {give}")
    return dict(value) if kind is Mapping else value


def _is_bounds(value: Mapping[Any, Any]) -> bool:
    return all(isinstance(k, str) and type(v) is int and v >= 1 for k, v in value.items())


_RANGES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "alignment": (lambda value: value >= 1 and value & (value - 1) == 0, "a power of two, in bytes"),
    "poison": (lambda value: 0 <= value <= 255, "a byte, 0 to 255"),
    "seed": (lambda value: value >= 0, "a number >= 0"),
    "bounds": (_is_bounds, "the name of each shape symbol and its greatest value >= 1, e.g. {'n': 32}"),
}


def _enable(value: Any) -> dict[str, Any]:
    if not value:
        raise ConfigError("tir.usmp.enable=False: leave PlanMemory out of the pipeline instead")
    return {}


def _algorithm(value: Any) -> dict[str, Any]:
    if value not in USMP_PLANNERS:
        raise ConfigError(f"tir.usmp.algorithm={value!r} is unknown; known: {', '.join(USMP_PLANNERS)}")
    return {"planner": USMP_PLANNERS[value]}


_LEGACY: dict[str, Any] = {
    "tir.usmp.enable": _enable,
    "tir.usmp.algorithm": _algorithm,
    "tir.usmp.custom_algorithm": lambda value: {"planner": str(value)},
    "tir.usmp.use_workspace_io": lambda value: {"use_workspace_io": bool(value)},
}


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
            size_bytes=_none_if_negative(properties.size_hint_bytes),
            alignment=alignment,
            agents=frozenset(agents),
            read_only=isinstance(self, ConstantPoolInfo),
            clock_hz=_none_if_negative(properties.clock_frequency_hz),
            read_bandwidth_bytes_per_cycle=_none_if_negative(properties.read_bandwidth_bytes_per_cycle),
            write_bandwidth_bytes_per_cycle=_none_if_negative(properties.write_bandwidth_bytes_per_cycle),
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


def _none_if_negative(value: int) -> int | None:
    """`value`; None for a negative one, which is how TVM says that there is none."""
    return None if value < 0 else value
