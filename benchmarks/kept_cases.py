"""Outcomes of cases of a campaign in a file, so that a campaign that was ended goes on where it was.

Invariant: a case is known by what it was made of and the bytes that were tried; a line is written when all its commands
have ended.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(slots=True)
class KeptCases:
    """Cases in `path`, a JSON object a line; of none where it is None."""

    path: Path | None
    _known: dict[str, tuple[dict[str, str], list[str]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.is_file():
            for line in self.path.read_text(encoding="utf-8").splitlines():
                case = json.loads(line)
                self._known[case["case"]] = case["outcomes"], case["faults"]

    @staticmethod
    def key(what: str, tried: Path) -> str:
        """A case that is called `what`, of which the file `tried` was given to the commands."""
        content = tried.read_bytes() if tried.is_file() else b""
        return f"{what}, {zlib.crc32(content):08x}"

    def find(self, key: str) -> tuple[Mapping[str, str], Sequence[str]] | None:
        """How each command ended, and what was wrong; None of a case that is not in the file."""
        return self._known.get(key)

    def add(self, key: str, outcomes: dict[str, str], faults: list[str]) -> None:
        self._known[key] = outcomes, faults
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"case": key, "outcomes": outcomes, "faults": faults}) + "\n")
