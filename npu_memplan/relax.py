"""Relax programs for the Ethos-U, by the names that users know: partition a quantised module, lower its parts.

Invariant: names only; the work is in `ethosu.relax`.
"""

from __future__ import annotations

from .ethosu.lower.tensors import Arithmetic as Arithmetic
from .ethosu.relax.lowering import lower_for_ethosu as lower_for_ethosu
from .ethosu.relax.partition import HostOperator as HostOperator
from .ethosu.relax.partition import host_operators as host_operators
from .ethosu.relax.partition import partition_for_ethosu as partition_for_ethosu
from .ethosu.relax.partition import with_arithmetic as with_arithmetic
