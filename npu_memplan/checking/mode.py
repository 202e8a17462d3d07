"""Whether a compile is to be checked.

Invariant: the call and the command line take precedence over the environment.
"""

from __future__ import annotations

import os
from enum import Enum

from ..errors import NpuMemplanError

VARIABLE = "NPU_MEMPLAN_CHECK"  # auto, always or never


class CheckModeError(NpuMemplanError):
    """The environment names an unknown mode."""


class CheckMode(Enum):
    """When results are checked."""

    AUTO = "auto"  # where that is little work compared with the compile
    ALWAYS = "always"  # however much work that is
    NEVER = "never"


def check_mode(requested: bool | None = None) -> CheckMode:
    """The mode that was `asked` for; None: the environment's, else `AUTO`."""
    if requested is not None:
        return CheckMode.ALWAYS if requested else CheckMode.NEVER
    text = os.environ.get(VARIABLE, "").strip() or CheckMode.AUTO.value
    try:
        return CheckMode(text)
    except ValueError:
        known = ", ".join(mode.value for mode in CheckMode)
        raise CheckModeError(f"{VARIABLE} is {text!r}; it may be one of: {known}") from None
