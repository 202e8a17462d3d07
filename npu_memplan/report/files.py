"""The stage `write`: a compiled model as the files of an artifact directory, and the reports of one.

Invariant: every file is listed in plan.json, which is written last, and is complete or absent (written to a temporary
sibling, then renamed). Every number is one of `plan.json` or follows from it; the same plan gives the same bytes.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..artifact.board_fit import fit_of
from ..artifact.model import Artifact
from ..artifact.timing import layers_csv
from ..errors import NpuMemplanError, RefusalError
from ..ethosu.arch import accelerator
from ..files.csv_text import csv_text
from ..files.paths import write_files, write_text
from ..options import NO_NPU
from ..sizes import bytes_and_kib
from ..stages import Compiled
from .colours import agents_of
from .page.html import html_report
from .text.memory_txt import memory_text


class ReportError(NpuMemplanError):
    """A report cannot be written, or names something that is not there."""


def write_reports(artifact: Artifact, directory: Path, streams: Path | None = None) -> dict[str, Path]:
    """Write all report files into `directory`; role -> path.

    `streams` is the artifact's directory, when its command streams are to be read for labels.
    """
    texts = {
        "html": ("report.html", html_report(artifact, streams)),
        "table": ("memory.txt", memory_text(artifact)),
        "buffers": ("buffers.csv", buffers_csv(artifact)),
    }
    files = {role: (name, text.encode()) for role, (name, text) in texts.items()}
    written = write_files(directory, dict(files.values()))
    return {role: written[name] for role, (name, _) in files.items()}


def buffers_csv(artifact: Artifact) -> str:
    """One row a buffer, in the problem's order; lifetimes as `first-last` (half-open), joined by spaces."""
    placed = {p.buffer: p for p in artifact.plan.placements}
    header = (
        "name", "kind", "pool", "offset_bytes", "size_bytes", "alignment", "lifetimes",
        "agents", "read_bytes", "write_bytes", "producer", "consumers",
    )  # fmt: skip
    body = (
        (
            b.name, b.kind.value, placed[b.name].pool, placed[b.name].offset_bytes, b.size_bytes, b.alignment,
            " ".join(f"{t.first}-{t.last}" for t in b.lifetimes), agents_of(b),
            b.read_bytes, b.write_bytes, b.producer, " ".join(b.consumers),
        )
        for b in artifact.problem.buffers
    )  # fmt: skip
    return csv_text(header, body, for_spreadsheets=True)


class BoardFitError(RefusalError):
    """A compiled model does not fit the memories of its board."""


def write_artifact(compiled: Compiled, folder: Path) -> Artifact:
    """Write the files of the artifact into an empty directory; `BoardFitError` when its board has no room for it."""
    _check_fit(compiled.artifact)
    sources = folder / "src"
    sources.mkdir()
    files = {f"source {path.name}": f"src/{path.name}" for path in compiled.sources.write(sources)}
    files |= {"memory": "memory.txt", "module": "planned.tvmscript"}
    if compiled.artifact.layers or compiled.artifact.host_layers:
        files["layers"] = "layers.csv"
        (folder / "layers.csv").write_text(_layers_csv(compiled.artifact), encoding="utf-8")
    write_text(folder / "planned.tvmscript", compiled.script)
    return record_artifact(replace(compiled.artifact, files=files), folder)


def record_artifact(artifact: Artifact, folder: Path) -> Artifact:
    """Write the description of the program in `folder`: memory.txt and plan.json."""
    (folder / "memory.txt").write_text(memory_text(artifact), encoding="utf-8")
    artifact.save(folder)
    return artifact


def _layers_csv(artifact: Artifact) -> str:
    """The text of layers.csv."""
    npu, timing, host_hz = artifact.target.accelerator, artifact.timing, artifact.host_clock_hz
    clocks = timing.clock_hz / host_hz if timing and host_hz else 1.0
    peak = 1 if npu == NO_NPU else accelerator(npu).macs
    return layers_csv(artifact.layers, peak, artifact.host_layers, clocks)


def _check_fit(artifact: Artifact) -> None:
    """Refuse an artifact whose constants do not fit its board; its pools do."""
    fit = fit_of(artifact)
    if fit is None or fit.shortest_memory is None:
        return
    short, board = fit.shortest_memory, fit.board
    raise BoardFitError(
        f"{artifact.name} does not fit {short.memory.name} of board {board.name}: {', '.join(short.holds)} need "
        f"{bytes_and_kib(short.used_bytes)}, it has {bytes_and_kib(short.memory.size_bytes)}, "
        f"{bytes_and_kib(-short.headroom_bytes)} "
        "too few; choose another --memory-mode, or name another memory with --constant-pool; "
        "npu-memplan compile --board all says where it fits"
    )
