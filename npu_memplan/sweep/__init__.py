"""Many models on many targets: each case computed once, on this machine or on a cluster.

    from npu_memplan import sweep

    swept = sweep.run(sweep.cases(models, targets), "processes:8", store="results")

Invariant: results follow from cases alone, on any worker, in any order (`case`, `results`).
"""

from .case import Case as Case
from .case import Content as Content
from .case import SweepError as SweepError
from .case import Verification as Verification
from .case import cases as cases
from .case import shard as shard
from .drive import Swept as Swept
from .drive import run as run
from .executors.specs import open_executor as open_executor
from .results import CaseLimits as CaseLimits
from .results import Outcome as Outcome
from .results import Result as Result
from .store import Store as Store
