"""Run the micro-streams: each as an artifact on the runner requested, its output compared with numpy's.

Invariant: a stream that fails is a row with its error, and the others go on; the record has the very words that ran.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ...errors import NpuMemplanError
from ...ethosu.arch import Architecture, Language
from ...ethosu.stream.encode import encode
from ...files.owned_folder import scratch_folder
from ...report.facts.bricks import command_streams
from ..record import Counters, EvidenceError, MicroRun
from .artifact import micro_artifact, micro_options
from .catalogue import MICRO_STREAMS, build_micro
from .models import predict

if TYPE_CHECKING:
    from fvp_runner.base import RunOptions


def run_micro(
    runner: str,
    accelerator: Architecture,
    options: RunOptions,
    only: Sequence[str] = (),
    report: Callable[[str, int, int], None] = lambda *_: None,
) -> tuple[tuple[MicroRun, ...], str, str, bool]:
    """A row for each stream of `only` (default: all), the runner's version, the board, whether adapters are set."""
    if accelerator.language is not Language.U55_U65:
        raise EvidenceError(f"micro-streams are written for Ethos-U55 and Ethos-U65, not for {accelerator.name}")
    unknown = [name for name in only if name not in MICRO_STREAMS]
    if unknown:
        raise EvidenceError(f"no micro-stream is called {unknown[0]!r}; there are: {', '.join(MICRO_STREAMS)}")
    names = [name for name in MICRO_STREAMS if name in (only or MICRO_STREAMS)]
    rows = []
    for number, name in enumerate(names):
        report(name, number, len(names))
        with scratch_folder("micro") as folder:
            rows.append(_run(name, accelerator, runner, options, folder))
    runs, versions, boards, adapters = zip(*rows, strict=True)
    return runs, " / ".join(sorted({*versions} - {""})), next(filter(None, reversed(boards)), ""), all(adapters)


def _run(
    name: str, accelerator: Architecture, runner: str, options: RunOptions, folder: Path
) -> tuple[MicroRun, str, str, bool]:
    from fvp_runner.runner import create

    row, version, board, adapters_set = MicroRun(name, MICRO_STREAMS[name].decides), "", "", False
    memory_map = micro_options(accelerator).memory_map()
    assert memory_map is not None
    try:
        stream = build_micro(name, accelerator, memory_map)
        artifact = micro_artifact(stream, folder)
        ((_, commands),) = command_streams(artifact, folder)
        words = np.array(encode(commands), "<u4").tobytes()
        row = replace(
            row,
            words=b64encode(words).decode(),
            memories={str(region): memory.name for region, memory in memory_map.regions.items()},
            predicted=predict(commands, accelerator, memory_map),
        )
        started = create(runner, folder, replace(options, npu_cycles=True, pools_after=False))
        firmware = getattr(started, "firmware", None)
        board = firmware.board.name if firmware is not None else ""
        ran = started.run([stream.given[None]])
        made = np.ascontiguousarray(ran.outputs[0]).reshape(stream.expected.shape)
        row = replace(
            row,
            output_sha256=hashlib.sha256(made.tobytes()).hexdigest(),
            mismatches=int(np.count_nonzero(made != stream.expected)),
            counted=Counters(ran.npu_cycles, *(ran.npu_beats or ())),
        )
        version, adapters_set = ran.version, ran.adapters_set
    except NpuMemplanError as error:
        row = replace(row, error=str(error).splitlines()[0])
    return row, version, board, adapters_set
