"""Random problems of every feature, each claim of the planner held against OR-tools; prints what was claimed.

    python -m benchmarks.planner_claims 10000            a problem for each seed
    python -m benchmarks.planner_claims 10000 --from 500 only some seeds

Invariant: a problem depends on its seed alone. Of ten seeds, five are small problems of every feature, one is small in
one pool with exactly the bytes it needs and with one less, two are of up to 16 buffers, one of up to 40 and one of 30
to 90 plain or related ones under a time limit. Exit code 1 when a claim was false, or a limit was passed by more than
20 % and 0.1 s.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from random import Random

from npu_memplan.problem import Problem
from tests.support.claims import false_claims, outcome
from tests.support.planner_cases import crowded, related
from tests.support.random_problems import random_problem
from tests.support.solver import Exact, Unknown, in_one_pool

LIMITS = (0.0, 0.05, 0.2)
SOLVER_S, SOLVER_LARGE_S = 3.0, 0.5


def main() -> None:
    parser = argparse.ArgumentParser(description="Hold the planner's claims against an independent solver.")
    parser.add_argument("count", type=int)
    parser.add_argument("--from", dest="start", type=int, default=0)
    chosen = parser.parse_args()
    seen: Counter[str] = Counter()
    wrong = 0
    began = time.process_time()
    for seed in range(chosen.start, chosen.start + chosen.count):
        for fault in faults(seed, seen):
            wrong += 1
            print(f"seed {seed}: {fault}", flush=True)
        if seed % 1000 == 999:
            print(f"{seed + 1}: {dict(seen)}, {wrong} wrong, {time.process_time() - began:.0f} CPU s", flush=True)
    print(f"\n{chosen.count} problems, {time.process_time() - began:.0f} CPU s\n\n| | plans |\n|---|---|")
    for what, count in sorted(seen.items()):
        print(f"| {what} | {count} |")
    print(f"| false claims, limits passed | {wrong} |")
    sys.exit(1 if wrong else 0)


def faults(seed: int, seen: Counter[str]) -> Iterator[str]:
    """What is wrong with the answers to the problem of `seed`."""
    kind, random = seed % 10, Random(seed)
    if kind < 5:
        problem = random_problem(seed, 8)
        yield from false_claims(problem, outcome(problem), seen, SOLVER_S)
    elif kind == 5:
        yield from _tight(in_one_pool(random_problem(seed, 8)), seen)
    elif kind < 8:
        problem = random_problem(seed, 16)
        yield from false_claims(problem, outcome(problem, node_budget=20_000), seen, SOLVER_S)
    else:
        many = crowded if random.random() < 0.5 else related
        problem = random_problem(seed, 40) if kind == 8 else many(random.randint(30, 90), seed)
        yield from _in_time(problem, random.choice(LIMITS), seen)


def _tight(problem: Problem, seen: Counter[str]) -> Iterator[str]:
    """In a pool of exactly the bytes that the solver needs, and in one of a byte less."""
    if outcome(problem) is None:
        return
    try:
        least = Exact(problem, limit_s=SOLVER_S).least(["m"]) or 0
    except Unknown:
        return
    for size in {max(0, least - 1), least}:
        tight = in_one_pool(problem, size)
        yield from false_claims(tight, outcome(tight, "fit"), seen, SOLVER_S)


def _in_time(problem: Problem, limit_s: float, seen: Counter[str]) -> Iterator[str]:
    before = time.process_time()
    answer = outcome(problem, time_limit_s=limit_s)
    spent = time.process_time() - before
    if spent > 1.2 * limit_s + 0.1:
        yield f"{spent:.2f} CPU s under a limit of {limit_s} s"
    yield from false_claims(problem, answer, seen, SOLVER_LARGE_S)


if __name__ == "__main__":
    main()
