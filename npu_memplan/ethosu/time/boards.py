"""Which memory of a board each region is in, and how fast the NPU reaches it there.

Invariant: a memory's speed is the board file's own; where that has none it is that of a memory of the system
configuration, which the board file names (`like`), and nothing else is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec.structs import asdict

from ...target_data import Board, BoardMemory, load_memory_mode
from .memory import Memory, MemoryMap
from .systems import System, memory_of


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that a plan needs of each pool, and of constants with command streams; unknown, the first place does."""

    pools: Mapping[str, int] = field(default_factory=dict)
    constants: int = 0


def homes(board: Board, memory_mode: str, pools: Iterable[str], needs: Needs) -> dict[str, BoardMemory]:
    """The memory that each of `pools` is in: the first of its places that is large enough, or the largest."""
    placement = board.memory_placement(memory_mode)
    return {p: board.roomy_memory(placement.pools[p], needs.pools.get(p, 0)) for p in pools if p in placement.pools}


def constants_home(board: Board, memory_mode: str, needs: Needs, constant_pools: Iterable[str] = ()) -> BoardMemory:
    """The memory of constants and command streams; a read-only pool with a memory's name says so itself."""
    named = [memory for name in constant_pools for memory in board.memories if memory.name == name]
    return named[0] if named else board.roomy_memory(board.memory_placement(memory_mode).constants, needs.constants)


def board_map(
    board: Board,
    system: System,
    memory_mode: str,
    regions: Mapping[int, str],
    needs: Needs,
    constant_pools: Iterable[str] = (),
) -> MemoryMap:
    """The memories behind the NPU's regions (`regions`: pools by region); `system` for what the board leaves open."""
    mode = load_memory_mode(memory_mode)
    placed = homes(board, memory_mode, {*regions.values(), *mode.pools}, needs)
    fixed = system.behind(mode.constants_port)
    constants = _seen(constants_home(board, memory_mode, needs, constant_pools), system, fixed)
    found = {
        region: _seen(placed[name], system, system.of_pool(name)) if name in placed else constants
        for region, name in regions.items()
    }
    first = mode.pools[0]
    found.setdefault(1, _seen(placed[first], system, system.of_pool(first)))
    found[0] = constants
    return MemoryMap(found, constants, board.clock.npu_hz or system.clock_hz)


def _seen(memory: BoardMemory, system: System, usual: Memory) -> Memory:
    """`memory` as the NPU sees it; `usual` is the system's memory in its place."""
    speed = memory.speed
    if speed is None:
        return replace(system.memories.get(memory.like, usual), name=memory.name)
    return memory_of(memory.name, asdict(speed))
