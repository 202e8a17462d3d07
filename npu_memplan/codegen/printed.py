"""The printed sources, as data.

Invariant: nothing heavy is imported here: a program that was compiled before is written without TVM.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ..files.paths import write_text

if TYPE_CHECKING:
    from .npu_c import NpuLaunch


@dataclass(frozen=True, slots=True)
class Sources:
    """File name -> text, what the read-only data amount to in bytes, and the NPU's launches."""

    texts: dict[str, str]
    constants_bytes: int
    stream_bytes: int
    launches: dict[str, NpuLaunch]  # by the name of the function in the module
    files: dict[str, bytes] = field(default_factory=dict)  # constants in files next to the texts, where requested

    def write(self, directory: Path | str) -> tuple[Path, ...]:
        """Write the files into an existing `directory`; returns their paths, sorted by name."""
        folder = Path(directory)
        for name in (*self.texts, *self.files):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            if name in self.files:
                (folder / name).write_bytes(self.files[name])
            else:
                write_text(folder / name, self.texts[name])
        return tuple(folder / name for name in sorted((*self.texts, *self.files)))
