"""Many models on many targets: each case computed once, on this machine or on a cluster.

    from npu_memplan import sweep

    swept = sweep.run(sweep.cases(models, targets), "processes:8", store="results")

Invariant: results follow from cases alone, whoever computes them, in whatever order (`case`, `results`).
"""

from .case import Case, Content, SweepError, Verification, cases, shard
from .drive import Swept, run
from .executors.specs import open_executor
from .results import CaseLimits, Outcome, Result
from .store import Store

__all__ = [
    "Case",
    "CaseLimits",
    "Content",
    "Outcome",
    "Result",
    "Store",
    "SweepError",
    "Swept",
    "Verification",
    "cases",
    "open_executor",
    "run",
    "shard",
]
