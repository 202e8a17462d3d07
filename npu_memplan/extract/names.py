"""Names for storages: readable, unique, the same on every walk.

Invariant: a name depends only on the names asked for before it.
"""

from __future__ import annotations


class Names:
    """Hands out names; a name asked for again gets `_1`, `_2`, ... appended."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}

    def unique(self, wish: str) -> str:
        """`wish` itself, or the first free `wish_N`."""
        if wish not in self._next:
            self._next[wish] = 1
            return wish
        while True:
            name = f"{wish}_{self._next[wish]}"
            self._next[wish] += 1
            if name not in self._next:
                self._next[name] = 1
                return name
