"""About how long a program in stripes takes whose constants are copied into the bytes that its maps leave.

Invariant: constants are copied whole for an operation or a group wherever there is room, as early as there is and no
earlier than needed; others are read where they are. Copies wait for each other and for such reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ...stream.isa import BRICK_CHANNELS, Register
from ..prefetch.reads import ConstantBlock
from .cascade_space import CascadeSpace
from .group import Group, RowGroup


@dataclass(frozen=True, slots=True)
class _Step:
    """An operation, or a group: cycles with its constants near, cycles without room for them, and what is copied."""

    near: int
    far: int
    copied_bytes: int
    copy_cycles: int
    spare_bytes: int  # beside the maps


def cycles_with_copies(near: CascadeSpace, far: CascadeSpace, chosen: Sequence[Group], limit_bytes: int) -> int:
    """Of a program with the groups `chosen` in so many bytes. `near` has its constants beside the maps, `far` where
    they are.
    """
    done = port = 0  # when the last operation and the last copy end
    starts: list[int] = []
    spare: list[int] = []
    for step in _steps(near, far, chosen, limit_bytes):
        size, left, begin, first = step.copied_bytes, step.spare_bytes, done, len(starts)
        if 0 < size <= left:
            while first and spare[first - 1] >= size and begin > max(port, done - step.copy_cycles):
                first -= 1
                begin = starts[first]
            for index in range(first, len(spare)):
                spare[index] -= size
            left -= size
            port = max(port, begin) + step.copy_cycles
            start = max(done, port)
            done = start + step.near
        else:
            start = done
            done += step.far
            port = done if size else port
        starts.append(start)
        spare.append(left)
    return done


def _steps(near: CascadeSpace, far: CascadeSpace, chosen: Sequence[Group], limit_bytes: int) -> Iterator[_Step]:
    heads = {group.first: group for group in chosen}
    index, count = 0, len(near.program.operations)
    while index < count:
        group = heads.get(index)
        last = group.last if group else index
        kept = [found for found in map(far.costs.kept, range(index, last + 1)) if found]
        copy, size = sum(map(far.costs.copy, kept)), sum(one.size_bytes for one in kept)
        spare = limit_bytes - (group.size_bytes if group else near.chains.whole_bytes[index])
        if group is None:
            cycles = near.whole_cycles(index)
            yield _Step(cycles, _whole_without_room(far, index, kept, cycles, spare), size, copy, spare)
        else:
            there = far.same(group)
            there = far.keeping(there, spare) if isinstance(there, RowGroup) else there
            yield _Step(group.cycles, there.cycles, size, copy, spare)
        index = last + 1


def _whole_without_room(
    far: CascadeSpace, index: int, kept: Sequence[ConstantBlock], near_cycles: int, spare: int
) -> int:
    """Of an operation made at once: in slices of channels where there is room for two, one of which is read while the
    other arrives; each is then read once.
    """
    cycles = far.whole_cycles(index)
    channels = far.program.operations[index].registers.get(Register.OFM_DEPTH_M1, 0) + 1
    for constants in kept:
        if 2 * constants.size_bytes * BRICK_CHANNELS <= spare * channels:
            cycles = min(cycles, max(near_cycles, far.costs.copy(constants)))
    return cycles
