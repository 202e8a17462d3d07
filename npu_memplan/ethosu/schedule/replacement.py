"""Feature maps that leave the fast memory between two uses: a transfer takes them to slower memory after the last
early use, another brings them back before the next one.

Invariant: the program computes the same: whatever reads a map reads the bytes that its writers wrote, and those in
slower memory are written and read by transfers alone. Source of the idea: tensor replacement of COSMA
(arXiv 2311.18246), which chooses by an integer program; here the maps that free most bytes go first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from ...names import Names
from ..program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram, chain_bounds
from ..stream.isa import Op, Register

_UNIT = 16  # bytes of which a transfer moves a whole number
_SHORTEST = 4  # operations between two uses: two transfers take about as long as the kernels during which they run
_EARLIER = 1  # operations by which a map is back before it is needed


@dataclass(frozen=True, slots=True)
class Absence:
    """`buffer` is touched by no operation between `after` and `before`; `before` reads it."""

    buffer: NpuBuffer
    after: int
    before: int

    @property
    def free_range(self) -> range:
        """Operations at which its bytes are free."""
        return range(self.after + 1, self.before - _EARLIER)


def absences(program: NpuProgram) -> Iterator[Absence]:
    """Maps that are written, not used for a while, and only read from then on."""
    uses: dict[str, list[tuple[int, bool]]] = {}
    for index in range(len(program.operations)):
        for name, writes in program.buffers_of(index):
            uses.setdefault(name, []).append((index, writes))
    for name, found in uses.items():
        buffer = program.buffer(name)
        if buffer.role is not BufferRole.FEATURE_MAP or buffer.size_bytes % _UNIT:
            continue
        written = max(index for index, writes in found if writes)
        indices = sorted({index for index, _ in found})
        for after, before in pairwise(indices):
            if after >= written and before - after > _SHORTEST:
                yield Absence(buffer, after, before)


def live_bytes(program: NpuProgram, away: tuple[Absence, ...] = ()) -> list[int]:
    """Bytes of inner maps alive at each operation, without those that are `away`."""
    live = [0] * len(program.operations)
    for name, (first, last) in program.live_ranges().items():
        buffer = program.buffer(name)
        if buffer.role is BufferRole.FEATURE_MAP:
            for index in range(first, last + 1):
                live[index] += buffer.size_bytes
    for absence in away:
        for index in absence.free_range:
            live[index] -= absence.buffer.size_bytes
    return live


def chosen(program: NpuProgram, limit_bytes: int) -> tuple[Absence, ...]:
    """Absences after which no more than `limit_bytes` of inner maps are alive, or as few more as can be: the largest
    map of the worst operation first, of equal ones that which is away longest.
    """
    left = list(absences(program))
    found: list[Absence] = []
    while True:
        live = live_bytes(program, tuple(found))
        worst = max(range(len(live)), key=lambda index: live[index], default=0)
        if not live or live[worst] <= limit_bytes:
            break
        fitting = [absence for absence in left if worst in absence.free_range]
        if not fitting:
            break
        best = max(fitting, key=lambda absence: (absence.buffer.size_bytes, len(absence.free_range)))
        found.append(best)
        left.remove(best)
    return tuple(sorted(found, key=lambda absence: absence.after))


def move_maps_away(program: NpuProgram, away: tuple[Absence, ...], slow_region: int) -> NpuProgram:
    """`program` in which the maps of `away` are in the memory of `slow_region` meanwhile."""
    names = Names(b.name for b in program.buffers)
    chains = chain_bounds(program.operations)
    buffers = list(program.buffers)
    current = {b.name: b.name for b in program.buffers}
    behind: dict[int, list[tuple[Absence, str]]] = {}
    in_front: dict[int, list[tuple[Absence, str, str]]] = {}
    for absence in away:
        old = absence.buffer
        slow, again = (names.unique_name(f"{old.name}_{word}") for word in ("away", "again"))
        buffers += [replace(old, name=slow, original_region=slow_region), replace(old, name=again)]
        behind.setdefault(chains[absence.after][1], []).append((absence, slow))
        in_front.setdefault(chains[absence.before - _EARLIER][0], []).append((absence, slow, again))
    operations: list[NpuOperation] = []
    for index, operation in enumerate(program.operations):
        for absence, slow, again in in_front.get(index, ()):
            operations.append(_transfer(operation, absence.buffer, slow, again))
            current[absence.buffer.name] = again
        addresses = {register: (current[name], offset) for register, (name, offset) in operation.addresses.items()}
        operations.append(replace(operation, addresses=addresses))
        for absence, slow in behind.get(index, ()):
            operations.append(_transfer(operation, absence.buffer, current[absence.buffer.name], slow))
    return replace(program, buffers=tuple(buffers), operations=tuple(operations))


def _transfer(operation: NpuOperation, buffer: NpuBuffer, source: str, target: str) -> NpuOperation:
    addresses = {Register.DMA0_SRC: (source, 0), Register.DMA0_DST: (target, 0)}
    length = {Register.DMA0_LEN: buffer.size_bytes}
    return NpuOperation(Op.DMA_START, 0, length, addresses, operation.operator, operation.language)
