"""`--workspace-pools`, `--constant-pools` and their attributes.

Invariant: every value given counts: a repeated option extends the ones before it, an attribute of a pool that
was not named is an error, and an attribute with a value per target keeps them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..problem import Agent, Pool
from . import TvmcError

NPU_TARGET = "ethos-u"
WORKSPACE, CONSTANT = "workspace-pools", "constant-pools"
# option suffix -> what a value is
ATTRIBUTES = {
    "targets": "targets",
    "size-hint-bytes": "size",
    "clock-frequency-hz": "clock",
    "read-bandwidth-bytes-per-cycle": "read bandwidth",
    "write-bandwidth-bytes-per-cycle": "write bandwidth",
    "read-latency-cycles": "read latency",
    "write-latency-cycles": "write latency",
    "target-burst-bytes": "burst",
}


@dataclass(slots=True)
class PoolOptions:
    """One pool as the command line describes it."""

    name: str
    targets: list[str] = field(default_factory=list)  # empty: every target
    numbers: dict[str, int] = field(default_factory=dict)  # option suffix -> value; -1: not given
    bursts: dict[str, int] = field(default_factory=dict)  # target -> bytes


def parse_pools(
    kind: str, names: Iterable[str], attributes: Mapping[str, Iterable[str]], targets: Iterable[str]
) -> list[Pool]:
    """Pools of one kind in the order given; those of constants are read-only.

    `attributes` maps an option suffix to all of its values; `TvmcError` on nonsense.
    """
    pools: dict[str, PoolOptions] = {}
    for text in names:
        for name in filter(None, (part.strip() for part in text.split(","))):
            pools.setdefault(name, PoolOptions(name))
    known = tuple(targets)
    for suffix, values in attributes.items():
        for text in values:
            _apply(pools, f"--{kind}", suffix, text, known)
    return [_pool(options, read_only=kind == CONSTANT) for options in pools.values()]


def _apply(pools: dict[str, PoolOptions], base: str, suffix: str, text: str, known: tuple[str, ...]) -> None:
    option = f"{base}-{suffix}"
    current: PoolOptions | None = None
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, colon, value = part.partition(":")
        if colon:
            current = pools.get(name)
            if current is None:
                listed = ", ".join(pools) or "none"
                raise TvmcError(f"{option}={text}: pool {name!r} is not in {base} (which has: {listed})")
        elif suffix == "targets" and current is not None:
            value = part  # sram:c,ethos-u names two targets of one pool
        else:
            raise TvmcError(f"{option}={text}: {part!r} is no POOL:VALUE")
        assert current is not None
        if suffix == "targets":
            if value not in known:
                raise TvmcError(f"{option}={text}: {value!r} is no target of --target={','.join(known)}")
            if value not in current.targets:
                current.targets.append(value)
        elif suffix == "target-burst-bytes":
            target, colon, size = value.partition(":")
            if not colon or target not in known:
                raise TvmcError(f"{option}={text}: {part!r} is no POOL:TARGET:BYTES with a target of {','.join(known)}")
            current.bursts[target] = _number(option, text, size)
        else:
            current.numbers[suffix] = _number(option, text, value)


def _number(option: str, text: str, value: str) -> int:
    try:
        number = int(value, 0)
    except ValueError:
        raise TvmcError(f"{option}={text}: {value!r} is no whole number") from None
    if number < -1:
        raise TvmcError(f"{option}={text}: {number} is negative")
    return number


def _pool(options: PoolOptions, *, read_only: bool) -> Pool:
    agents = {Agent.NPU if t == NPU_TARGET else Agent.HOST for t in options.targets} or {Agent.HOST, Agent.NPU}
    given = {suffix.replace("-", "_"): number for suffix, number in options.numbers.items()}
    size, clock = given.pop("size_hint_bytes", -1), given.pop("clock_frequency_hz", 0)
    speeds: dict[str, Any] = {name: number for name, number in given.items() if number > 0}
    return Pool(
        options.name,
        None if size < 0 else size,
        agents=frozenset(agents),
        read_only=read_only,
        clock_hz=clock if clock > 0 else None,
        **speeds,
        burst_bytes=dict(options.bursts),
    )
