"""Many models on many targets: each case computed once, on this machine or by any executor.

from npu_memplan import sweep

swept = sweep.run(sweep.cases(models, targets), store="results.jsonl")

Invariant: results follow from cases alone, on any worker, in any order (`case`, `run`).
"""

from .case import Case as Case
from .case import CaseLimits as CaseLimits
from .case import Content as Content
from .case import Outcome as Outcome
from .case import Result as Result
from .case import SweepError as SweepError
from .case import Verification as Verification
from .case import cases as cases
from .run import Swept as Swept
from .run import local_executor as local_executor
from .run import run as run
