"""The items of one pool and the distances between them, as the compiled searches see them.

Invariant: the arrays are what the header says; items that C's 64 bits do not hold are refused before.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate, chain

from ...compiled import Struct, floats, int32s, int64s, structure
from ..model import Item, Zones

LARGEST_END = 1 << 59  # bytes; C counts in 64 bits

_Network = structure("planners/general/distances.h", "Network")


def fits_c(items: Sequence[Item], end: int) -> bool:
    """Whether C can count with items that end at `end` bytes."""
    return end < LARGEST_END and all(item.modulus < LARGEST_END for item in items)


def network_of(items: Sequence[Item], pairs: Sequence[tuple[int, int, Zones]]) -> Struct:
    """`pairs`: positions of two items, and zones of origin[a] - origin[b]."""
    near: list[list[int]] = [[] for _ in items]
    for p, (a, b, _) in enumerate(pairs):
        near[a].append(p)
        near[b].append(p)
    return _Network(
        items=len(items),
        pairs=len(pairs),
        first=int32s(a for a, _, _ in pairs),
        second=int32s(b for _, b, _ in pairs),
        zone_at=int32s(accumulate((len(zones) for _, _, zones in pairs), initial=0)),
        zone_low=int64s(low for _, _, zones in pairs for low, _ in zones),
        zone_high=int64s(high for _, _, zones in pairs for _, high in zones),
        near_at=int32s(accumulate(map(len, near), initial=0)),
        near=int32s(chain.from_iterable(near)),
        modulus=int64s(item.modulus for item in items),
        residue=int64s(item.residue for item in items),
        size=int64s(item.size for item in items),
        home=int64s(item.home for item in items),
        fixed=array("b", [item.fixed is not None for item in items]),
        weight=floats([1.0]) * len(pairs),
    )
