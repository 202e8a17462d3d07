"""The NPU and the memories that the delegates of a program were compiled for, and whether pools fit a board's.

Invariant: what the user names comes first, then what the delegate's compile flags name, then what the accelerator has.
Of all ways to put each pool into one memory that may hold it, the first that fits is given, in the order of the pools'
own preferences; where none fits, the one that lacks the fewest bytes.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import InternalError, NpuMemplanError
from ..ethosu.time import MemoryMap
from ..models.executorch.delegates import EthosUCall
from ..options import CompileOptions
from ..problem import Agent
from ..target_data import BoardMemory

_FLAGS = {"system-config": "system_config", "memory-mode": "memory_mode"}
_SPEC = "compile_flags"


def options_for(one: EthosUCall, given: Mapping[str, str], board: str = "") -> CompileOptions:
    """The options that Vela was given for a delegate, as far as its specs name them, with those that a user gives."""
    stated, accelerator = _stated_options(one), one.call.accelerator.name
    requested = {key: value for key, value in {"board": board, **given}.items() if value}
    if "board" in requested:
        stated.pop("system_config", None)
    for known in [stated, {}] if stated else [{}]:
        try:
            options = CompileOptions(**{**known, **requested}).resolve_for(accelerator)  # type: ignore[arg-type]
            options.memory_map()
            return options
        except NpuMemplanError:
            if not known:
                raise
    raise InternalError("options that were not given are not tried")


def memories_for(one: EthosUCall, given: Mapping[str, str], board: str = "") -> MemoryMap:
    """The memories behind the NPU's regions."""
    memory_map = options_for(one, given, board).memory_map()
    assert memory_map is not None
    return memory_map


def _stated_options(one: EthosUCall) -> dict[str, str]:
    text = one.method.delegates[one.delegate].specs.get(_SPEC, b"").decode("utf-8", "replace")
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    pairs = (word.removeprefix("--").partition("=") for word in words if word.startswith("--"))
    return {_FLAGS[key]: value for key, _, value in pairs if key in _FLAGS}


_MOST_WAYS = 200_000


@dataclass(frozen=True, slots=True)
class PoolNeed:
    """A pool of the firmware, or the file."""

    name: str
    size_bytes: int
    npu: bool = False  # the NPU reads it
    read_only: bool = False  # flash will do
    preferred: tuple[str, ...] = ()  # names of memories, best first; then the others of the board


@dataclass(frozen=True, slots=True)
class PoolFit:
    """The memory of each pool, and the memories that have too few bytes for what they are given."""

    homes: tuple[tuple[PoolNeed, BoardMemory | None], ...]
    short: tuple[tuple[BoardMemory, int], ...]  # memory, bytes that it is given

    @property
    def fits(self) -> bool:
        """Whether every pool has a memory, and every memory the bytes."""
        return not self.short and all(memory is not None for _, memory in self.homes)


def fit_pools(needs: Sequence[PoolNeed], memories: Sequence[BoardMemory]) -> PoolFit:
    """Put every pool of `needs` into one of `memories`."""
    choices = [_candidates(need, memories) for need in needs]
    best: tuple[int, PoolFit] | None = None
    for ways in itertools.islice(itertools.product(*choices), _MOST_WAYS):
        given: dict[str, int] = {}
        for need, memory in zip(needs, ways, strict=True):
            if memory is not None:
                given[memory.name] = given.get(memory.name, 0) + need.size_bytes
        short = tuple((m, given[m.name]) for m in memories if given.get(m.name, 0) > m.size_bytes)
        found = PoolFit(tuple(zip(needs, ways, strict=True)), short)
        lacking = sum(used - memory.size_bytes for memory, used in short)
        if best is None or lacking < best[0]:
            best = lacking, found
        if not lacking:
            break
    assert best is not None
    return best[1]


def _candidates(need: PoolNeed, memories: Sequence[BoardMemory]) -> list[BoardMemory | None]:
    usable = [
        memory
        for memory in memories
        if (need.read_only or not memory.read_only)
        and (Agent.NPU in memory.agents if need.npu else Agent.HOST in memory.agents)
    ]
    rank = {name: place for place, name in enumerate(need.preferred)}
    last = len(rank)  # what the NPU does not reach holds code, or the stack
    ordered = sorted(usable, key=lambda memory: (rank.get(memory.name, last), Agent.NPU not in memory.agents))
    return [*ordered] or [None]
