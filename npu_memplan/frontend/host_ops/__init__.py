"""TFLite operators on the host: TIR that equals TFLite Micro's reference kernels.

Invariant: importing this package registers every lowering; there is no other list of them.
"""

from __future__ import annotations

import importlib
import pkgutil

from .operator import LoweredOperator as LoweredOperator
from .operator import UnsupportedOperatorError as UnsupportedOperatorError
from .operator import complete_operators as complete_operators
from .operator import lower_operator as lower_operator
from .operator import supported_names as supported_names
from .operator import unsupported_reason as unsupported_reason

# Each module registers its operators when it is imported.
for _module in pkgutil.walk_packages(__path__, f"{__name__}."):
    importlib.import_module(_module.name)
