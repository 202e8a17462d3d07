"""What was looked at and what came of it.

Invariant: pure data.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Level(Enum):
    """How bad it is; the value is printed."""

    RIGHT = "ok"
    NOTE = "note"
    WRONG = "WRONG"


@dataclass(frozen=True, slots=True)
class Remark:
    level: Level
    topic: str
    text: str

    def to_dict(self) -> dict[str, str]:
        return {"level": self.level.value, "topic": self.topic, "text": self.text}
