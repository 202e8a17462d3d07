"""Storages whose sizes are only known when the function is called.

Invariant: such a storage is planned where its symbols are known on entry and a pool without a size, free of constants,
serves its device; otherwise it stays a run-time allocation, and `RelaxTensor.external` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm.tirx.analysis import undefined_vars

from ...problem import BufferKind, Pool
from ..devices import labels, serves
from ..liveness import Storage
from ..program import Program, RelaxTensor
from ..sizes import entry_symbols
from .extents import Extents, Values

GREATEST = 4096
"""Samples of symbols without a bound go up to this."""

MANY = 500
"""Storages from which on there are fewer samples: each costs what there is of them."""


@dataclass(slots=True)
class Sample:
    """The storages whose sizes depend on symbols (`numbers` of `extents`), at certain values of these.

    `distances` are found meanwhile: buffers that may overlap -> the number of how far below the first the second
    must be, where that depends on symbols too.
    """

    extents: Extents
    numbers: Mapping[Storage, int]
    values: Values
    points: Sequence[Values] = ()  # further values that a plan should be good at
    distances: dict[tuple[str, str], int] = field(default_factory=dict)

    def sizes_bytes(self) -> dict[Storage, int]:
        """The sizes at the sample."""
        return {storage: self.extents.value(size, self.values) for storage, size in self.numbers.items()}

    def distance(self, first: str, second: str, found: Any) -> int | None:
        """A proven distance at the sample, no more than 0; None for one that has no value somewhere."""
        number = self.extents.gap(found)
        if not self.extents.has_values(number, (self.values, *self.points)):
            return None
        self.distances[first, second] = number
        return -self.extents.value(number, self.values)


def samples(symbols: Sequence[Any], bounds: Mapping[Any, int], storages: int = 0) -> list[dict[Any, int]]:
    """Values of the symbols to look at: small and large ones, alike and not; so many `storages` have these sizes."""
    steps: tuple[int, ...] = (1, 2, 7, 32, 64, 128, 256, 512, 1024, 2048, GREATEST)
    if len(symbols) == 2:
        steps = (1, 8, 32, 128, 512, 1024, GREATEST) if storages < MANY else (1, 32, 512, GREATEST)
    elif len(symbols) > 2:
        steps = (1, 128, GREATEST)
    lists = [sorted({min(n, max(1, bounds.get(v, GREATEST))) for n in steps}) for v in symbols]
    if len(symbols) <= 3:
        return [dict(zip(symbols, numbers, strict=True)) for numbers in itertools.product(*lists)]
    alike = [
        {v: numbers[min(k, len(numbers) - 1)] for v, numbers in zip(symbols, lists, strict=True)} for k in range(3)
    ]
    one = [{**alike[1], v: number} for v, numbers in zip(symbols, lists, strict=True) for number in numbers]
    return [*alike, *one]


def sampled(
    program: Program, pools: Sequence[Pool], constant_pools: Sequence[Pool] = (), alignment: int = 1
) -> Sample | None:
    """The sample in the middle of all; None where no size that can be planned depends on symbols."""
    count = len(program.tensors) + sum(len(call.internals) for call in program.calls)
    points = samples(sorted(entry_symbols(program.function), key=lambda v: v.name), program.bounds, count)
    extents, sizes = dynamic_sizes(program, pools, constant_pools, points, alignment)
    if not sizes:
        return None
    return Sample(extents, sizes, points[len(points) // 2], points)


def dynamic_sizes(
    program: Program,
    pools: Sequence[Pool],
    constant_pools: Sequence[Pool] = (),
    points: Sequence[Values] = (),
    alignment: int = 1,
) -> tuple[Extents, dict[Storage, int]]:
    """The storages of unknown size that can be planned, and their sizes: numbers of the extents.

    Sizes have values at all `points`, and are multiples of `alignment` and of what any storage requires.
    """
    devices = labels(program.vdevices)
    constants = any(t.kind is BufferKind.CONSTANT for t in program.tensors)
    filled = {p.name for p in constant_pools} if constants else set()
    free = [p for p in pools if p.size_bytes is None and p.name not in filled]
    known = entry_symbols(program.function)
    storages: list[Storage] = [t for t in program.tensors if t.size_bytes is None and not t.external]
    storages += [i for call in program.calls for i in call.internals if i.size_bytes is None]
    alignment = max(alignment, *(s.least_alignment for s in _inner(program)), 1)
    extents = Extents([s.shape for s in storages], program.bounds, alignment)
    found = {}
    for storage in storages:
        unknown = sorted(
            {v.name for e in storage.shape if not isinstance(e, int) for v in undefined_vars(e) if v not in known}
        )
        served = any(not devices or serves(p, devices[storage.device]) for p in free)
        size = extents.size(storage.shape, storage.dtype) if not unknown and served else None
        if size is not None and extents.has_values(size, points):
            found[storage] = size
        elif isinstance(storage, RelaxTensor):
            storage.external = "its size has no upper bound, and no pool without a size is free for it"
            if size is not None:
                storage.external = "its size is an expression that is not understood"
            elif unknown:
                storage.external = f"its size depends on {', '.join(unknown)}, which the inputs do not tell"
    return extents, found


def _inner(program: Program) -> Iterator[Storage]:
    """The storages that lie in pools whatever the caller wants: neither inputs nor results."""
    boundary = {*program.inputs, *(view.tensor for view in program.results)}
    yield from (t for t in program.tensors if t not in boundary and not t.external)
    yield from (i for call in program.calls for i in call.internals)
