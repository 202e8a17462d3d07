"""The stage `write`: a compiled model as the files of an artifact directory.

Invariant: every file is listed in plan.json, which is written last.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..artifact.board_fit import fit_of
from ..artifact.model import Artifact
from ..artifact.timing import layers_csv
from ..errors import RefusalError
from ..ethosu.arch import accelerator
from ..options import NO_NPU
from ..sizes import both
from ..stages import Compiled
from .text.memory_txt import memory_text


class BoardFitError(RefusalError):
    """A compiled model does not fit the memories of its board."""


def write(compiled: Compiled, folder: Path) -> Artifact:
    """Write the files of the artifact into an empty directory; `BoardFitError` when its board has no room for it."""
    _check_fit(compiled.artifact)
    sources = folder / "src"
    sources.mkdir()
    files = {f"source {path.name}": f"src/{path.name}" for path in compiled.sources.write(sources)}
    files |= {"memory": "memory.txt", "module": "planned.tvmscript"}
    if compiled.artifact.layers or compiled.artifact.host_layers:
        files["layers"] = "layers.csv"
        (folder / "layers.csv").write_text(_layers(compiled.artifact), encoding="utf-8")
    (folder / "planned.tvmscript").write_text(compiled.script, encoding="utf-8")
    return record(replace(compiled.artifact, files=files), folder)


def record(artifact: Artifact, folder: Path) -> Artifact:
    """Write the description of the program in `folder`: memory.txt and plan.json."""
    (folder / "memory.txt").write_text(memory_text(artifact), encoding="utf-8")
    artifact.save(folder)
    return artifact


def _layers(artifact: Artifact) -> str:
    """The text of layers.csv; the host counts in its sums where requested."""
    npu, timing, host_hz = artifact.target.accelerator, artifact.timing, artifact.host_clock_hz
    clocks = timing.clock_hz / host_hz if timing and host_hz else 1.0
    peak = 1 if npu == NO_NPU else accelerator(npu).macs
    return layers_csv(artifact.layers, peak, artifact.host_layers, clocks if artifact.target.host_time else None)


def _check_fit(artifact: Artifact) -> None:
    """Its pools are as large as the board's memories, so what is left to lack is room for constants."""
    fit = fit_of(artifact)
    if fit is None or fit.short is None:
        return
    short, board = fit.short, fit.board
    raise BoardFitError(
        f"{artifact.name} does not fit {short.memory.name} of board {board.name}: {', '.join(short.holds)} need "
        f"{both(short.used_bytes)}, it has {both(short.memory.size_bytes)}, {both(-short.headroom_bytes)} "
        "too few; choose another --memory-mode, or name another memory with --constant-pool; "
        "npu-memplan compile --all-boards says where it fits"
    )
