"""Problems whose placements are pinned, byte for byte: each reaches other steps of the compiled searches.

Invariant: a case is planned with a node budget, so its answer depends on no clock. `digest` covers pool and offset of
every buffer, the bounds, the status and whether the budget ended the search.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from npu_memplan.artifact.files import read_problem
from npu_memplan.planners import PlanningError, plan
from npu_memplan.problem import AliasGroup, AllowedOverlap, Buffer, Lifetime, Pool, Problem
from tests.support.planner_generate import inference_like, training_like
from tests.support.random_problems import from_graph, random_graph, random_intervals

MIB = 1 << 20
Case = tuple[str, Callable[[], Problem], str, int, int]  # name, problem, planner, seed, node budget


def digest(problem: Problem, planner: str, seed: int, nodes: int) -> str:
    """Height of the first pool and a hash of what the plan says; `no plan`, whether proven, how many are to blame."""
    try:
        answer = plan(problem, planner, seed=seed, node_budget=nodes)
    except PlanningError as error:
        return f"no plan {error.proven} {len(error.subset)}"
    text = repr(
        (
            [(p.buffer, p.pool, p.offset_bytes) for p in answer.placements],
            [(u.used_bytes, u.lower_bound_bytes) for u in answer.usage],
            answer.status.value,
            answer.stopped_early,
        )
    )
    return f"{answer.usage[0].used_bytes} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def crowded(count: int, seed: int, aligned: bool = False) -> Problem:
    """Lifetimes that cross each other, a few sizes far above the others; no order of first fit meets the bound."""
    random = Random(seed)
    buffers = []
    for k in range(count):
        at = random.randint(0, count // 2)
        size = random.randint(1, 64) * random.choice((16, 16, 256, 1024))
        life = Lifetime(at, at + random.randint(1, count // 4 + 1))
        buffers.append(Buffer(f"b{k}", size + aligned * random.randint(0, 60), (life,), random.choice((4, 16, 64, 96))))
    if not aligned:
        buffers = [replace(b, alignment=16) for b in buffers]
    return Problem(tuple(buffers), (Pool("m"),), name=f"crowded {count} {seed}")


def related(count: int, seed: int) -> Problem:
    """Lifetimes with aliases, in-place and trailing overlaps, conflicts beyond time and one fixed buffer."""
    random = Random(seed)
    buffers = []
    for k in range(count):
        at = random.randint(0, count)
        life = Lifetime(at, at + random.randint(1, 12))
        buffers.append(Buffer(f"b{k}", random.randint(20, 2000), (life,), random.choice((1, 16))))
    buffers[0] = replace(buffers[0], fixed=("m", 0))
    names = [b.name for b in buffers]
    aliases = tuple(AliasGroup(f"g{k}", ((names[k], 0), (names[k + 1], 0))) for k in range(1, count - 1, 12))
    overlaps = tuple(
        AllowedOverlap(names[k], names[k + 1], 0, random.choice((0, None))) for k in range(3, count - 1, 5)
    )
    conflicts = tuple((names[k], names[-k]) for k in range(4, count // 2, 9))
    return Problem(tuple(buffers), (Pool("m"),), conflicts, aliases, overlaps, name=f"related {count} {seed}")


def hard(problem: Problem, share: float) -> Problem:
    """The same in a pool of `share` times the largest total ever live."""
    peak = plan(problem, "first-fit", node_budget=0).usage[0].lower_bound_bytes
    return replace(problem, pools=(Pool(problem.pools[0].name, int(peak * share)),))


def drawn() -> Iterator[Case]:
    """Cases that need no files."""
    for seed in range(6):
        yield f"crowded 60 {seed}", lambda seed=seed: crowded(60, seed), "auto", seed, 4_000
        yield f"crowded 150 {seed}", lambda seed=seed: crowded(150, seed), "auto", seed, 6_000
        yield f"aligned 80 {seed}", lambda seed=seed: crowded(80, seed, True), "auto", seed, 4_000
        yield f"gaps 60 {seed}", lambda seed=seed: random_intervals(seed, 60, 30, 90), "auto", seed, 4_000
        yield f"related 80 {seed}", lambda seed=seed: related(80, seed), "auto", seed, 8_000
        yield f"tight 60 {seed}", lambda seed=seed: hard(crowded(60, seed), 1.0), "auto", seed, 4_000
        yield f"fit 150 {seed}", lambda seed=seed: hard(crowded(150, seed), 1.02), "fit", seed, 6_000
        yield f"related fit {seed}", lambda seed=seed: hard(related(60, seed), 1.01), "fit", seed, 4_000
        yield f"graph {seed}", lambda seed=seed: random_graph(seed), "auto", seed, 2_000
    yield "ring", lambda: from_graph([1] * 61, [(k, (k + 1) % 61) for k in range(61)], capacity=2), "auto", 0, 4_000
    for make in (inference_like, training_like):
        for count in (520, 2_500):
            yield f"{make.__name__} {count}", lambda make=make, count=count: make(count), "auto", 1, 8_000
    yield "related 450", lambda: related(450, 1), "auto", 1, 30_000


def filed(folder: Path) -> Iterator[Case]:
    """The challenging instances, with and without a capacity."""
    for path in sorted(folder.glob("*.csv")):
        for seed in range(2):
            yield f"{path.name[0]} fit {seed}", lambda path=path: read_problem(path, MIB), "fit", seed, 20_000
            yield f"{path.name[0]} free {seed}", lambda path=path: read_problem(path), "auto", seed, 12_000
