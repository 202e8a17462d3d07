"""Where the planned pools and the constants of a model lie on a board.

Invariant: a layout exists only if everything fits: each whole pool is in one memory that
all its agents reach and that can be written, and no memory is promised more bytes than it
has. So a pool that is too big is refused before anything is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_memplan.artifact import Artifact
from npu_memplan.problem import Agent
from npu_memplan.sizes import format_size
from npu_memplan.target_data import Board, BoardMemory

from ..base import RunnerError
from ..guards import GUARD_BYTES

_ALIGN = 16
_PROGRAM_BYTES = 64 << 10  # left for code and variables, whose bytes only the linker has exactly


class LayoutError(RunnerError):
    """A pool or the constants do not fit the board, or the board does not know the pool."""


@dataclass(frozen=True, slots=True)
class BoardLayout:
    """`pools[i]` is the memory of the artifact's pool i, with `guards_bytes[i]` guard bytes on either side of it."""

    board: Board
    pools: tuple[BoardMemory, ...]
    constants: BoardMemory
    guards_bytes: tuple[int, ...]
    notes: tuple[str, ...] = ()


def input_bytes(artifact: Artifact) -> int:
    """Bytes of all inputs of one inference, without gaps."""
    found = sum(slot.size_bytes for slot in artifact.inputs)
    if artifact.stream is None:
        return found
    index, stream = artifact.stream
    return found + stream.rows * stream.row_bytes - artifact.inputs[index].size_bytes


def place(artifact: Artifact, board: Board, steps: int = 1) -> BoardLayout:
    """Lay out `artifact`, with inputs for `steps` inferences, on `board`; `LayoutError` says what does not fit, and by
    how much.
    """
    if artifact.target.accelerator not in (*board.accelerators, "none"):
        raise LayoutError(
            f"{artifact.name} is compiled for {artifact.target.accelerator}, but board {board.name} has "
            f"{' or '.join(board.accelerators)}; compile for one of these, or choose another board with --board"
        )
    mode = artifact.target.memory_mode
    placement = board.placement(mode)
    free = {memory.name: memory.size_bytes for memory in board.memories}
    for name in (board.firmware.code, board.firmware.data):  # the linker checks these two to the byte
        free[name] -= board.firmware.stack_bytes if name == board.firmware.data else 0
    free[board.firmware.io] -= _padded(16 + steps * _padded(input_bytes(artifact)))
    pools = []
    for pool in artifact.run_pools:
        names = placement.pools.get(pool.name)
        if names is None:
            raise LayoutError(
                f"board {board.name} does not say where pool {pool.name!r} lies in memory mode {mode}; it knows: "
                f"{', '.join(placement.pools)}. Add it to [placement.{mode}] in {board.path}"
            )
        size = artifact.pool_bytes(pool.name)
        candidates = [board.memory(n) for n in names]
        usable = [m for m in candidates if pool.agents <= m.agents and not m.read_only]
        if not usable:
            agents = " and ".join(sorted(a.value for a in pool.agents))
            raise LayoutError(
                f"pool {pool.name!r} must be written by {agents}, which none of {', '.join(names)} on board "
                f"{board.name} allows; name another memory in [placement.{mode}] of {board.path}"
            )
        what = f"pool {pool.name!r} of {artifact.name}"
        hint = f"compile with a smaller pool, e.g. --pool {pool.name}={usable[0].size_bytes}"
        pools.append(_take(what, size, usable, free, board, hint))
    size = artifact.constants_bytes + artifact.stream_bytes
    candidates = [board.memory(n) for n in placement.constants]
    usable = [m for m in candidates if Agent.NPU in m.agents]
    what = f"the constants of {artifact.name}"
    constants = _take(what, size, usable, free, board, "choose a memory mode with constants in a bigger memory")
    notes: tuple[str, ...] = ()
    if usable and constants is not usable[0]:
        notes = (
            f"constants: {format_size(size)} do not fit {usable[0].name} of {board.name}, they are in {constants.name}",
        )
    return BoardLayout(board, tuple(pools), constants, _guards(artifact, pools, free, board), notes)


def _guards(artifact: Artifact, memories: Sequence[BoardMemory], free: dict[str, int], board: Board) -> tuple[int, ...]:
    """Guard bytes on either side of each pool: of what is left when everything else has its place."""
    guards = []
    for pool, memory in zip(artifact.run_pools, memories, strict=True):
        alignment = max(pool.alignment, _ALIGN)  # a multiple of it, so that the pool after it is aligned
        kept = alignment + (_PROGRAM_BYTES if memory.name in (board.firmware.code, board.firmware.data) else 0)
        guard = max(0, min(GUARD_BYTES, (free[memory.name] - kept) // 2) // alignment * alignment)
        free[memory.name] -= 2 * guard
        guards.append(guard)
    return tuple(guards)


def _padded(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def _take(
    what: str, size: int, usable: Sequence[BoardMemory], free: dict[str, int], board: Board, hint: str
) -> BoardMemory:
    for memory in usable:
        if _padded(size) <= free[memory.name]:
            free[memory.name] -= _padded(size)
            return memory
    best = max(usable, key=lambda m: free[m.name], default=None)
    if best is None:
        raise LayoutError(f"{what}: no memory of board {board.name} named for it can be reached by the NPU")
    left = ", ".join(f"{memory.name} has {format_size(free[memory.name])} left" for memory in usable)
    raise LayoutError(
        f"{what} needs {format_size(size)}, but {left} on board {board.name}: "
        f"{format_size(size - free[best.name])} too much; {hint}, or choose another board with --board"
    )
