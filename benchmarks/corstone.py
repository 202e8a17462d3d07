"""How long firmware takes: build once, then whole runs on each runner.

    python -m benchmarks.corstone MODEL.tflite... [--checks]

Prints one row a model: seconds to build the Cortex-M55 firmware, and the best of three whole runs
(start of the emulator to the last output) on qemu, unicorn and host, with the register accesses
that QEMU trapped. Runs are without the NPU model's checks unless --checks is given.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from fvp_runner import runner
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from tests.support.inputs import load_inputs


def measure(model: Path, folder: Path, checks: bool) -> str:
    """One row of the table."""
    directory = folder / model.stem
    artifact = compile_model(model, CompileOptions(), directory)
    inputs = load_inputs(artifact, ["random:0"])
    options = runner.RunOptions(checks=checks, pools_after=False)
    cells = [artifact.name, f"{sum(u.used_bytes for u in artifact.plan.usage):,}"]
    for name in ("qemu", "unicorn", "local"):
        started = time.perf_counter()
        chosen = runner.create(name, directory, options)
        if name == "qemu":
            cells.append(f"{time.perf_counter() - started:.1f}")
        walls = []
        for _ in range(3):
            started = time.perf_counter()
            chosen.run(inputs)
            walls.append(time.perf_counter() - started)
        cells += [f"{walls[0]:.2f}", f"{min(walls):.2f}"]
        if name == "qemu":
            cells.append(str(chosen.trace[0]))  # type: ignore[attr-defined]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--checks", action="store_true")
    arguments = parser.parse_args()
    runs = "qemu first | qemu best | accesses | unicorn first | best | host first | best"
    print(f"| model | pool bytes | build s | {runs} |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models:
            print(measure(model, Path(folder), arguments.checks), flush=True)


if __name__ == "__main__":
    main()
