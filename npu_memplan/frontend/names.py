"""Names for variables and functions: readable, legal in Python and C, unique in one module.

Invariant: the same names taken in the same order give the same results.
"""

from __future__ import annotations

import keyword
import re

_MAX_LENGTH = 48


class NameTable:
    """Hands out each name once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        """A legal, unused name close to `wanted`; its last part, when it is a path or a list of fused names."""
        tail = wanted.split(";")[-1].strip("/")
        name = re.sub(r"[^0-9A-Za-z_]+", "_", tail).strip("_")[-_MAX_LENGTH:].lstrip("_0123456789")
        if not name or keyword.iskeyword(name):
            name = "tensor"
        unique, number = name, 1
        while unique in self._taken:
            unique = f"{name}_{number}"
            number += 1
        self._taken.add(unique)
        return unique
