"""The planning problem and its answer, as pure data (`model`), and whether a problem is one (`validation`).

Invariant: imports neither TVM, Vela nor numpy, and what is here imports nothing else of this package but its
error. Their text formats are in this folder: `json` and MiniMalloc's CSV (`csv`); `artifact.files` reads
and writes files.
"""

from .model import POISON as POISON
from .model import AccessHistory as AccessHistory
from .model import Agent as Agent
from .model import AliasGroup as AliasGroup
from .model import AllowedOverlap as AllowedOverlap
from .model import BranchPoints as BranchPoints
from .model import Buffer as Buffer
from .model import BufferAccess as BufferAccess
from .model import BufferKind as BufferKind
from .model import ByteRun as ByteRun
from .model import Count as Count
from .model import Lifetime as Lifetime
from .model import Placement as Placement
from .model import Plan as Plan
from .model import PlanStatus as PlanStatus
from .model import Point as Point
from .model import Pool as Pool
from .model import PoolUsage as PoolUsage
from .model import Problem as Problem
from .model import ProblemError as ProblemError
from .model import used_bytes as used_bytes
from .validation import validate as validate
