"""What a compiled model is: `plan.json` as an `Artifact` (`model`, of `parts`), its text (`json`), and how the stages'
results become one (`described`).

Invariant: whoever reads an artifact needs nothing but its directory; importing this needs no TVM.
"""

from .model import Artifact

__all__ = ["Artifact"]
