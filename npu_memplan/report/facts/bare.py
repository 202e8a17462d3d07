"""A problem file and a plan file as something to report on, without any model.

Invariant: the plan is verified against the problem before anything is drawn. A problem whose time begins before point
0 is shown from its first point on, and a note says so.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from ...artifact import Artifact
from ...options import CompileOptions
from ...problem import Lifetime, Problem
from ...problem.files import read_plan, read_problem
from ...verify import check


def bare_artifact(problem_file: Path, plan_file: Path) -> Artifact:
    """An artifact without calls, operators and code; errors are those of the readers and the verifier."""
    problem = read_problem(problem_file)
    plan = read_plan(plan_file, problem)
    check(problem, plan)
    problem, notes = _from_zero(problem)
    return Artifact(
        name=problem.name or problem_file.stem,
        source=problem_file.name,
        source_sha256=hashlib.sha256(problem_file.read_bytes()).hexdigest(),
        target=CompileOptions("none", "", ""),
        problem=problem,
        plan=plan,
        regions=tuple(range(1, len(problem.pools) + 1)),
        inputs=(),
        outputs=(),
        notes=notes,
    )


def _from_zero(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """`problem` with no lifetime before point 0, and what the reader of its report should know then."""
    first = min((life.first for b in problem.buffers for life in b.lifetimes), default=0)
    if first >= 0:
        return problem, ()
    buffers = tuple(
        replace(b, lifetimes=tuple(Lifetime(life.first - first, life.last - first) for life in b.lifetimes))
        for b in problem.buffers
    )
    return replace(problem, buffers=buffers, points=()), (f"point 0 here is point {first} of the problem",)
