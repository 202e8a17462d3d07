"""How long networks of several NPUs take where they may run at the same time and use the same memories.

Invariant: the least is a network by itself; the most is it with every memory that another NPU uses meanwhile served in
turn (`ethosu.time.in_turn`). Both are of the streams that were written, in the memories that the joint plan needs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ...artifact.application import Contention
from ...artifact.model import Artifact
from ...ethosu.arch import Architecture, accelerator
from ...ethosu.time import MemoryMap, Needs, Requester, cycles_by_model, served_in_turn
from ...problem import Plan
from ...target_data import load_board
from .bricks import command_streams


@dataclass(frozen=True, slots=True)
class WrittenNetwork:
    """One network that was written into `folder`; `npu` is the board of its NPU."""

    artifact: Artifact
    folder: Path
    npu: str

    @property
    def architecture(self) -> Architecture:
        return accelerator(self.artifact.target.accelerator)


def contention(
    networks: Mapping[str, WrittenNetwork], joint: Plan, together: Collection[tuple[str, str]]
) -> dict[str, Contention]:
    """Of networks that may run together with one of another NPU."""
    used = {usage.pool: usage.used_bytes for usage in joint.usage}
    constants = sum(one.artifact.constants_bytes + one.artifact.stream_bytes for one in networks.values())
    maps: dict[str, MemoryMap] = {}
    for name, one in networks.items():
        regions = dict(zip(one.artifact.regions, (p.name for p in one.artifact.problem.pools), strict=True))
        found = one.artifact.target.memory_map(regions, Needs(used, constants))
        if found is not None and one.artifact.target.board:
            maps[name] = found
    made = {}
    for name in maps:
        pairs = [{*pair} for pair in together if name in pair]
        partners = [n for n in maps if {name, n} in pairs and networks[n].npu != networks[name].npu]
        if partners:
            made[name] = _beside(name, partners, networks, maps)
    return made


def _beside(
    name: str, others: Iterable[str], networks: Mapping[str, WrittenNetwork], maps: Mapping[str, MemoryMap]
) -> Contention:
    own, own_map = networks[name], maps[name]
    users: dict[str, dict[str, Requester]] = {}  # by memory of ours and NPU
    for other in others:
        for memory in {m.name: m for m in (*maps[other].regions.values(), maps[other].stream)}.values():
            there = Requester(networks[other].architecture, maps[other].clock_hz, memory)
            for mine in {m.name for m in (*own_map.regions.values(), own_map.stream)}:
                if _base(networks[other], memory.name) == _base(own, mine):
                    users.setdefault(mine, {})[networks[other].npu] = there
    slower = {
        m.name: served_in_turn(Requester(own.architecture, own_map.clock_hz, m), list(users[m.name].values()))
        for m in (*own_map.regions.values(), own_map.stream)
        if m.name in users
    }
    shared = replace(
        own_map,
        regions={region: slower.get(m.name, m) for region, m in own_map.regions.items()},
        stream=slower.get(own_map.stream.name, own_map.stream),
    )
    streams = [(commands, own.architecture) for _, commands in command_streams(own.artifact, own.folder)]
    alone, most = (cycles_by_model(streams, where).values() for where in (own_map, shared))
    return Contention(min(alone), max(*alone, *most), own_map.clock_hz, tuple(others), tuple(sorted(users)))


def _base(network: WrittenNetwork, memory: str) -> int:
    """The first byte of a memory, by which boards of one chip know it."""
    return load_board(network.artifact.target.board).memory(memory).base
