"""A problem file and a plan file as something to report on, without any model.

Invariant: the plan is verified against the problem before anything is drawn.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..artifact import Artifact
from ..options import CompileOptions
from ..problem_io import read_plan, read_problem
from ..verify import check


def bare_artifact(problem_file: Path, plan_file: Path) -> Artifact:
    """An artifact without calls, operators and code; errors are those of the readers and the verifier."""
    problem = read_problem(problem_file)
    plan = read_plan(plan_file, problem)
    check(problem, plan)
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
    )
