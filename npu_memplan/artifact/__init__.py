"""A compiled model as data: `plan.json` as an `Artifact` (`model`), files of problems, plans and applications
(`files`), estimated times (`timing`), the memories of a board that it needs (`board_fit`). `codegen.description` makes
an `Artifact` of the stages' results.

Invariant: reading an artifact needs nothing but its directory; importing this needs no TVM.
"""

from .model import Artifact

__all__ = ["Artifact"]
