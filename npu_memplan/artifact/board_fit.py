"""The bytes that a compiled model needs of each memory of its board, compared with those that the memory has.

Invariant: a whole pool is in one memory, the first of its places that has room, as a linker would put it; bytes of the
user's own program are not known here and are not counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..ethosu.time import Needs, constants_home, homes
from ..target_data import Board, BoardMemory, load_board
from . import Artifact

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """One memory of a board under a plan."""

    memory: BoardMemory
    holds: tuple[str, ...]
    used_bytes: int

    @property
    def headroom_bytes(self) -> int:
        """The bytes that are left; negative where it does not fit."""
        return self.memory.size_bytes - self.used_bytes


@dataclass(frozen=True, slots=True)
class BoardFit:
    board: Board
    uses: tuple[MemoryUse, ...]  # pools' memories first
    loading: str = ""  # what the program has to load at each start, where constants have no memory that keeps them

    @property
    def shortest_memory(self) -> MemoryUse | None:
        """The memory that lacks most bytes; None when all fits."""
        lacking = [use for use in self.uses if use.headroom_bytes < 0]
        return min(lacking, key=lambda use: use.headroom_bytes, default=None)

    @property
    def has_dram(self) -> bool:
        """Whether tensors may lie in the memory of the constants, beside a memory of the NPU (Dedicated_Sram)."""
        return len(self.uses) > 1 and any(CONSTANTS in use.holds and len(use.holds) > 1 for use in self.uses)

    @property
    def verdict(self) -> str:
        """`fits`, or which memories are short by how much."""
        lacking = [use for use in self.uses if use.headroom_bytes < 0]
        return "; ".join(f"{u.memory.name} is short by {-u.headroom_bytes:,} bytes" for u in lacking) or "fits"

    def bytes_of(self, constants: bool) -> tuple[int, int]:
        """(bytes needed, bytes there) of the memories that hold pools alone, or of the one that holds constants and
        may hold tensors beside them, as DRAM does; a memory that holds everything is one of pools.
        """
        chosen = [use for use in self.uses if (CONSTANTS in use.holds and len(self.uses) > 1) is constants]
        return sum(use.used_bytes for use in chosen), sum(use.memory.size_bytes for use in chosen)


CONSTANTS = "constants, command streams"


def fit_of(artifact: Artifact) -> BoardFit | None:
    """How the artifact lies on the board it is compiled for; None without a board."""
    target = artifact.target
    if not target.board:
        return None
    board = load_board(target.board)
    constants = artifact.constants_bytes + artifact.stream_bytes
    sizes = {pool.name: artifact.pool_bytes(pool.name) for pool in artifact.run_pools}
    needs = Needs(sizes, constants)
    parts = [
        (memory, f"pool {name}", sizes[name]) for name, memory in homes(board, target.memory_mode, sizes, needs).items()
    ]
    home = constants_home(board, target.memory_mode, needs, target.constant_pools)
    parts.append((home, CONSTANTS, constants))
    uses: dict[str, MemoryUse] = {}
    for memory, what, size in parts:
        before = uses.get(memory.name, MemoryUse(memory, (), 0))
        uses[memory.name] = MemoryUse(memory, (*before.holds, what), before.used_bytes + size)
    return BoardFit(board, tuple(uses.values()), board.loading_of(home, constants) if constants else "")
