"""Time compile and simulated run per model, beside Vela alone, and compare arena bytes.

    python -m benchmarks.pipeline [MODEL.tflite ...] [--accelerator ethos-u55-256] [--repeat 3]

Every figure is the median of several runs in one process on one machine; read the ratios.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as the command line does

import numpy as np

from fvp_runner.base import RunOptions
from fvp_runner.host import runner as host
from npu_memplan.artifact import Artifact
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.vela.compiler import VelaOptions, compile_tflite

HERE = Path(__file__).resolve().parent
MODELS = (HERE.parent / "examples" / "digits" / "digits.tflite", *sorted((HERE.parents[1] / "shared/models").glob("*")))


def median_s(call: Callable[[], object], repeat: int) -> float:
    """Median wall time of `call` in seconds."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def row(model: Path, accelerator: str, repeat: int) -> str:
    """One line of the table."""
    data = model.read_bytes()
    options = CompileOptions(accelerator=accelerator)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        compile_model(model, options, out)  # imports and caches
        ours = median_s(lambda: compile_model(model, options, out, force=True), repeat)
        vela = median_s(lambda: compile_tflite(data, VelaOptions(accelerator=accelerator)), repeat)
        artifact = Artifact.load(out)
        runner = host.create(out, RunOptions())
        rng = np.random.default_rng(7)
        inputs = [rng.integers(-128, 128, slot.shape).astype(slot.dtype) for slot in artifact.inputs]
        first = median_s(lambda: runner.run(inputs), 1)
        steady = median_s(lambda: runner.run(inputs), repeat)
    arena = ", ".join(f"{u.pool} {u.used_bytes}" for u in artifact.plan.usage)
    theirs = ", ".join(f"{pool} {size}" for pool, size in artifact.vela_arena_bytes.items())
    return (
        f"| {model.stem} | {ours:.2f} | {vela:.2f} | {ours / vela:.2f} | {first:.3f} | {steady:.3f} "
        f"| {arena} | {theirs} | {artifact.plan.status.value} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    gc.set_threshold(200_000, 20, 100)  # as the command line does
    print("| model | compile s | Vela alone s | ratio | first run s | run s | arena bytes | Vela's bytes | plan |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model in given.models or [m for m in MODELS if m.suffix == ".tflite"]:
        print(row(model, given.accelerator, given.repeat), flush=True)


if __name__ == "__main__":
    main()
