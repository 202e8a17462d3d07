"""Problems for the planner tests: random ones of every feature, real ones from files, and an oracle."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from random import Random

import pytest

from npu_memplan.problem import AliasGroup, AllowedOverlap, Buffer, Lifetime, Placement, Pool, Problem

BUILT_IN = ("auto", "fit", "first-fit", "greedy-by-conflicts", "greedy-by-size", "hill-climb", "linear", "optimal")


def random_problem(seed: int, most: int = 8) -> Problem:
    """A small problem with gaps, aliases, overlaps, fixed places, extra conflicts and several pools."""
    random = Random(seed)
    count = random.randint(0, most)
    pools = tuple(Pool(f"p{k}", random.choice([None, 64, 128, 256])) for k in range(random.randint(1, 3)))
    buffers = []
    for k in range(count):
        points = sorted(random.sample(range(16), 2 * random.randint(1, 3)))
        lives = tuple(Lifetime(a, b) for a, b in zip(points[::2], points[1::2], strict=True))
        alignment = random.choice([1, 2, 4, 16, 3])
        buffers.append(
            Buffer(
                f"b{k}",
                random.choice([0, 1, 5, 16, 32, 40, 64]),
                () if random.random() < 0.1 else lives,
                alignment,
                tuple(random.sample([p.name for p in pools], random.randint(0, len(pools)))),
                fixed=(random.choice(pools).name, alignment * random.randint(0, 5)) if random.random() < 0.08 else None,
                read_bytes=random.choice([0, 0, 10, 1000]),
            )
        )
    names = [b.name for b in buffers]
    conflicts: list[tuple[str, str]] = []
    aliases, overlaps = [], []
    if count >= 2:
        for _ in range(random.randint(0, 2)):
            first, second = random.sample(names, 2)
            conflicts.append((first, second))
        for _ in range(random.randint(0, 3)):
            first, second = random.sample(names, 2)
            low, high = random.choice([None, 0, -5, 3]), random.choice([None, 0, 10, -7])
            if low is not None and high is not None and low > high:
                low, high = high, low
            overlaps.append(AllowedOverlap(first, second, low, high))
    if count >= 3 and random.random() < 0.4:
        members = random.sample(names, random.randint(1, 3))
        aliases.append(AliasGroup("g", tuple((m, random.choice([0, 0, 4, 16, -16])) for m in members)))
    return Problem(tuple(buffers), pools, tuple(conflicts), tuple(aliases), tuple(overlaps), name=f"random {seed}")


def random_intervals(seed: int, count: int = 7, points: int = 6, most: int = 6) -> Problem:
    """`count` buffers of up to `most` bytes that begin at 0 to `points`; some are dead for a while, some aligned."""
    random = Random(seed)
    buffers = []
    for k in range(count):
        first = random.randint(0, points)
        lives = [Lifetime(first, first + random.randint(1, points // 2 + 1))]
        if random.random() < 0.2:
            lives.append(Lifetime(lives[0].last + 1, lives[0].last + 3))
        buffers.append(Buffer(f"b{k}", random.randint(1, most), tuple(lives), random.choice((1, 1, 2, 4))))
    return Problem(tuple(buffers), (Pool("m"),))


def random_graph(seed: int) -> Problem:
    """Four to nine buffers, half of the pairs in conflict."""
    random = Random(seed)
    count = random.randint(4, 9)
    edges = [(a, b) for a in range(count) for b in range(a) if random.random() < 0.5]
    return from_graph([random.randint(1, 9) for _ in range(count)], edges)


def share(problem: Problem, a: Placement, b: Placement) -> bool:
    """Oracle, written from the definition: do two placed buffers illegally share a byte at some point?"""
    first, second = problem.buffer(a.buffer), problem.buffer(b.buffer)
    if a.pool != b.pool:
        return False
    bytes_a = set(range(a.offset_bytes, a.offset_bytes + first.size_bytes))
    bytes_b = set(range(b.offset_bytes, b.offset_bytes + second.size_bytes))
    if not bytes_a & bytes_b:
        return False
    points_a = {t for life in first.lifetimes for t in range(life.first, life.last)}
    points_b = {t for life in second.lifetimes for t in range(life.first, life.last)}
    pair = {first.name, second.name}
    if not points_a & points_b and not any({*c} == pair for c in problem.conflicts):
        return False
    if any(pair <= {name for name, _ in group.members} for group in problem.aliases):
        return False
    for overlap in problem.overlaps:
        if {overlap.first, overlap.second} == pair:
            at = {a.buffer: a.offset_bytes, b.buffer: b.offset_bytes}
            if overlap.permits(at[overlap.second] - at[overlap.first]):
                return False
    return True


def brute_force(problem: Problem) -> int | None:
    """Least height of a one-pool problem, by trying every offset; None when nothing fits."""
    (pool,) = problem.pools
    limit = sum(b.size_bytes + b.alignment for b in problem.buffers) + max(
        [b.fixed[1] for b in problem.buffers if b.fixed], default=0
    )
    inner = {name: (group.name, at) for group in problem.aliases for name, at in group.members}
    best: int | None = None

    def place(k: int, placed: list[Placement], height: int) -> None:
        nonlocal best
        if best is not None and height >= best:
            return
        if k == len(problem.buffers):
            best = height
            return
        buffer = problem.buffers[k]
        for offset in range(0, limit, buffer.alignment):
            end = offset + buffer.size_bytes
            if (pool.size_bytes is not None and end > pool.size_bytes) or (best is not None and end >= best):
                break
            if buffer.fixed is not None and offset != buffer.fixed[1]:
                continue
            here = Placement(buffer.name, pool.name, offset)
            if buffer.name in inner:
                group, at = inner[buffer.name]
                origins = {
                    p.offset_bytes - inner[p.buffer][1] for p in placed if inner.get(p.buffer, ("",))[0] == group
                }
                if origins and origins != {offset - at}:
                    continue
            if not any(share(problem, here, other) for other in placed):
                place(k + 1, [*placed, here], max(height, end))

    place(0, [], 0)
    return best


def from_graph(
    sizes: list[int], edges: list[tuple[int, int]], alignment: int = 1, capacity: int | None = None
) -> Problem:
    """A problem whose conflicts are a graph, without lifetimes."""
    return Problem(
        tuple(Buffer(f"n{k}", size, (), alignment) for k, size in enumerate(sizes)),
        (Pool("memory", capacity),),
        tuple((f"n{a}", f"n{b}") for a, b in edges),
    )


@pytest.fixture(scope="session")
def small_instances(shared_instances: Callable[[str], Path]) -> list[tuple[str, Problem, dict[str, int]]]:
    """(name, problem, heights of the legacy planners) of the USMP cases and the dumped legacy models."""
    found = []
    for case in json.loads((shared_instances("usmp") / "cases.json").read_text()):
        problem = from_graph(case["sizes"], [tuple(e) for e in case["edges"]])
        found.append((case["name"], problem, {**case["legacy"], "optimum": case["optimum"]}))
    for path in sorted(shared_instances("legacy_models").glob("*.json")):
        document = json.loads(path.read_text())
        sizes = [b["size"] for b in document["buffers"]]
        edges = sorted({(min(i, j), max(i, j)) for i, b in enumerate(document["buffers"]) for j in b["conflicts"]})
        problem = from_graph(sizes, edges, 16)
        legacy = {name: sum(plan["pool"].values()) for name, plan in document["plans"].items()}
        found.append((path.stem, problem, {**legacy, "pressure": document["memory_pressure"]}))
    return found


def pairs_of(problem: Problem) -> Iterator[tuple[Buffer, Buffer]]:
    """All pairs of buffers."""
    yield from combinations(problem.buffers, 2)
