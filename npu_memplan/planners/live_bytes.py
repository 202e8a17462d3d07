"""Least height of what is live at one point, where alias groups, allowed overlaps and alignment play a part.

Invariant: sound. All origins are multiples of the grain, so bytes map to blocks of that size by rounding up, which
keeps what is disjoint disjoint: a part at `[start, stop)` of its item takes the blocks from `up(start)` to `up(stop)`.
What no two parts share must fit below the top, and only the part on top may leave its last block incomplete.
"""

from __future__ import annotations

from .model import Item, Model


def up(at: int, grain: int) -> int:
    """The least multiple of `grain` not below `at`."""
    return at + -at % grain


class _Live:
    """The live parts of one item, in blocks."""

    def __init__(self, item: Item, point: int, grain: int) -> None:
        self.starts: dict[str, int] = {}  # name of a live buffer -> bytes from the origin to its first block
        self.sizes: dict[str, int] = {}  # and bytes of its blocks
        self.inner: dict[str, int] = {}  # and true bytes from the origin
        self.pad = 0
        spans = []
        for buffer, delta in item.parts:
            if buffer.size_bytes and buffer.lives_at(point):
                start, end = delta, delta + buffer.size_bytes
                self.pad = max(self.pad, -end % grain)
                self.inner[buffer.name] = delta
                self.starts[buffer.name] = up(start, grain)
                self.sizes[buffer.name] = up(end, grain) - up(start, grain)
                spans.append((up(start, grain), up(end, grain)))
        self.bytes, reach = 0, -1
        for start, end in sorted(spans):
            self.bytes += max(0, end - max(start, reach))
            reach = max(reach, end)


def most_shared(size_a: int, size_b: int, lowest: int | None, highest: int | None) -> int:
    """Most bytes a and b share when offset(b) - offset(a) is in `[lowest, highest]`."""
    if lowest is not None and highest is not None and lowest > highest:
        return 0
    # sharing is greatest for distances in [min(0, a-b), max(0, a-b)] and falls off on both sides
    distance = min(0, size_a - size_b)
    distance = distance if lowest is None else max(distance, lowest)
    distance = distance if highest is None else min(distance, highest)
    return max(0, min(size_a, distance + size_b) - max(0, distance))


def _pair_shares(a: _Live, b: _Live, first: str, second: str, model: Model, grain: int) -> int:
    """Most bytes of blocks that an allowed overlap lets buffers `first` of a and `second` of b share."""
    most = 0
    # distances of the items' origins are multiples of the grain
    inner = b.inner[second] - a.inner[first]
    blocks = b.starts[second] - a.starts[first]
    for overlap in model.allowed[first, second]:
        lowest = None if overlap.lowest is None else up(overlap.lowest - inner, grain) + blocks
        highest = None if overlap.highest is None else -up(inner - overlap.highest, grain) + blocks
        most = max(most, most_shared(a.sizes[first], b.sizes[second], lowest, highest))
    return most


def least_bytes(model: Model, live: set[int], special: set[int], point: int, grain: int) -> int:
    """Least height in bytes of the items `live` at `point`, of which `special` have aliases or allowed overlaps.

    `grain` divides every item's modulus and residue. Each item counts by its live parts, less what overlaps may save.
    """
    plain = [model.items[i].size for i in live - special]
    found = {i: _Live(model.items[i], point, grain) for i in special}
    total = sum(up(size, grain) for size in plain)
    most_pad = max([-size % grain for size in plain] + [f.pad for f in found.values()], default=0)
    covered = {i: f.bytes for i, f in found.items()}
    owner = {name: i for i, f in found.items() for name in f.sizes}
    shared: dict[tuple[int, int], int] = {}
    for name, i in owner.items():
        for other in model.partners.get(name, ()):
            j = owner.get(other, i)
            if i != j:
                most = _pair_shares(found[i], found[j], name, other, model, grain)
                pair = (min(i, j), max(i, j))
                shared[pair] = shared.get(pair, 0) + most
    saving: dict[int, dict[int, int]] = {}
    for (i, j), most in shared.items():
        most = min(most, covered[i], covered[j])
        if most:
            saving.setdefault(i, {})[j] = most
            saving.setdefault(j, {})[i] = most
    # |union| >= sum of sizes - sum of pairwise shares, for any subset: drop members that only cost
    kept = set(saving)
    while kept:
        worst = max(kept, key=lambda i: (sum(s for j, s in saving[i].items() if j in kept) - covered[i], i))
        if sum(s for j, s in saving[worst].items() if j in kept) <= covered[worst]:
            break
        kept.discard(worst)
    total += sum(bytes_ for i, bytes_ in covered.items() if i not in saving or i in kept)
    total -= sum(s for i in kept for j, s in saving[i].items() if j in kept and i < j)
    return total - most_pad
