"""Why Vela left an operator on the CPU, from what it printed.

Invariant: nothing but explanations depends on Vela's wording; where it is not understood, there is no reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_OPERATOR = re.compile(r"operator: (?P<kind>\w+), ofm: '(?P<tensor>.*)'")


def refusals(messages: Sequence[str]) -> dict[tuple[str, str], str]:
    """(operator kind, name of its output tensor) -> Vela's reason."""
    found: dict[tuple[str, str], str] = {}
    current: tuple[str, str] | None = None
    for line in messages:
        match = _OPERATOR.search(line)
        if match:
            current = match["kind"], match["tensor"]
            found.pop(current, None)  # another operator of the same name: its reason, not both
        elif current is not None and line.startswith(("Reason:", "- ", " ")):
            text = line.removeprefix("Reason:").strip(" -")
            found[current] = f"{found[current]} {text}" if current in found else text
        elif current is not None and current in found and not line.startswith(("Warning", "Tensor", "Info")):
            found[current] += f" {line.strip()}"
        else:
            current = None
    return found


def refusal(found: Mapping[tuple[str, str], str], kind: str, tensor: str) -> str:
    """Vela's reason for one operator; it renames outputs with a fused activation, and repeats itself by kind."""
    for key in ((kind, tensor), (kind, f"{tensor}_act")):
        if key in found:
            return found[key]
    return next((reason for (other, _), reason in found.items() if other == kind), "")
