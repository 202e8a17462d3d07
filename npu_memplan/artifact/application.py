"""app.json: which networks an application has, in addition to the plan.json of them all.

Invariant: `Application.load(folder)` gives back what was saved; a network is an artifact in the folder of its name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import NpuMemplanError
from ..files.paths import check_folder, read_text
from ..files.schema import check_schema, from_values, json_values
from ..problem import BufferKind

if TYPE_CHECKING:
    from .model import Artifact

FILE_NAME = "app.json"
SCHEMA = "npu_memplan.application/1"


class ApplicationError(NpuMemplanError):
    """Networks cannot be linked as asked, or a directory is no application."""


@dataclass(frozen=True, slots=True)
class LinkedNetwork:
    """One network: its name in C, how often it runs beside the others, its cycles, its bytes by pool alone; `npu` is
    the board of its NPU where the application has several, `contention` its time beside networks of the others.
    """

    name: str
    rate: float
    estimated_cycles: int | None
    alone_bytes: dict[str, int]
    kept_bytes: int  # states and resident constants
    npu: str = ""
    contention: Contention | None = None


@dataclass(frozen=True, slots=True)
class Contention:
    """Cycles of a network's NPU for one run, under all timing models: alone at least, and at most while networks of
    other NPUs use some of its memories.
    """

    least_cycles: int
    most_cycles: int
    clock_hz: float
    others: tuple[str, ...]  # networks
    memories: tuple[str, ...]

    def __str__(self) -> str:
        least, most = (f"{1000 * cycles / self.clock_hz:.3f}" for cycles in (self.least_cycles, self.most_cycles))
        return f"{least} to {most} ms while {' or '.join(self.others)} uses {' and '.join(self.memories)} too"


@dataclass(frozen=True, slots=True)
class Application:
    """Networks in the order in which they were given; pairs of `together` may run at the same time, `connected` are
    outputs and the inputs that have their bytes, as NETWORK/BUFFER.
    """

    name: str
    networks: tuple[LinkedNetwork, ...]
    together: tuple[tuple[str, str], ...] = ()
    connected: tuple[tuple[str, str], ...] = ()

    def save(self, folder: Path) -> None:
        """Write app.json into an existing folder."""
        text = json.dumps({"schema": SCHEMA, **asdict(self)}, indent=1)
        (folder / FILE_NAME).write_text(text + "\n", encoding="utf-8")

    @classmethod
    def load(cls, folder: Path) -> Application:
        """The application in `folder`; `ApplicationError` where its file is damaged."""
        check_folder(folder)
        path = folder / FILE_NAME
        try:
            values = json_values(read_text(path), str(path), ApplicationError)
        except (OSError, UnicodeDecodeError) as error:
            raise ApplicationError(f"cannot read {path}: {error}; link the networks again") from None
        check_schema(values, SCHEMA, str(path), ApplicationError)
        return from_values(values, cls, str(path), ApplicationError)


def named(network: str, buffer: str) -> str:
    """What a buffer of `network` is called in the joint plan."""
    return f"{network}/{buffer}"


def tensor_buffers(artifact: Artifact, kind: BufferKind) -> dict[str, str]:
    """Names of the inputs or outputs of `artifact` -> their buffers; without those that are a part of one."""
    slots = artifact.inputs if kind is BufferKind.INPUT else artifact.outputs
    sizes = {b.name: b.size_bytes for b in artifact.problem.buffers if b.kind is kind}
    at = {(p.pool, p.offset_bytes, sizes[p.buffer]): p.buffer for p in artifact.plan.placements if p.buffer in sizes}
    found = {slot.name: at.get((slot.pool, slot.offset_bytes, slot.size_bytes)) for slot in slots}
    return {name: buffer for name, buffer in found.items() if buffer is not None}


def is_application(folder: Path) -> bool:
    """Whether `folder` has linked networks."""
    return (folder / FILE_NAME).is_file()
