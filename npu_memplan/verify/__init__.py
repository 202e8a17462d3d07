"""Verification of a plan: every constraint of the problem against every placement (`constraints`), every access
(`last_writers`).

Invariant: shares no code with the planners or the extraction; it reads `problem` and `plan` only, so a fault there
cannot hide here.
"""

from .constraints import Constraint as Constraint
from .constraints import VerificationError as VerificationError
from .constraints import Violation as Violation
from .constraints import check as check
from .constraints import check_own as check_own
from .constraints import verify as verify
from .constraints import violations_of as violations_of
