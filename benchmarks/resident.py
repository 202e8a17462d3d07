"""Resident constants: cycles with Vela's arena and 25, 50 and 100 % of the constants, and whether results are exact.

    python -m benchmarks.resident MODEL.tflite ... [--accelerator NAME] [--effort normal] [--on local,qemu] [--steps 20]
    python -m benchmarks.resident MODEL.tflite ... --pool 2MiB 4MiB   # no more than that, none and auto

A row a model and amount: bytes of the pool, resident bytes, estimated cycles of an inference and of `init`; against
the cycles with every constant in SRAM (`Sram_Only`, last row); and for each runner whether `--steps` inferences after
one `init`, on pools that were filled with 0xA5, equal TFLite Micro's reference kernels. The runners simulate.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import npu_memplan

_PARTS = (25, 50)  # of what `all` places


def exact(folder: Path, model: Path, runner: str, steps: int) -> str:
    """What `run` says of so many inferences."""
    command = [sys.executable, "-m", "npu_memplan", "run", str(folder), "--on", runner, "--reference", str(model)]
    ran = subprocess.run([*command, "--steps", str(steps), "--json"], check=False, capture_output=True, text=True)
    if ran.returncode:
        return f"{runner}: {(ran.stderr.strip().splitlines() or ['failed'])[-1]}"
    return f"{runner} {'bit-exact' if json.loads(ran.stdout)['bit_exact'] else 'NOT EXACT'}"


def rows(model: Path, options: Mapping[str, Any], pools: list[str], runners: list[str], steps: int) -> Iterator[str]:
    """A line for each amount of resident constants; fewest first, everything in SRAM last."""
    with tempfile.TemporaryDirectory() as place:

        def made(name: str, **more: Any) -> npu_memplan.Artifact:
            return npu_memplan.compile(model, Path(place, name), **{**options, **more}, check=False, force=True)

        def row(text: str, name: str, **more: Any) -> str:
            one = made(name, **more)
            ran = [exact(Path(place, name), model, runner, steps) for runner in runners]
            used = sum(usage.used_bytes for usage in one.plan.usage)
            return (
                f"{model.stem:34} {text:14} {used:>9,} bytes, {one.resident_bytes:>9,} resident; "
                f"{one.estimated_cycles:>9,} cycles, init {one.init_cycles:>9,}; {', '.join(ran)}"
            )

        if pools:
            for size in pools:
                for resident in ("none", "auto"):
                    yield row(f"{size} {resident}", "one", pools={"sram": size}, resident=resident)
            return
        most = made("all", resident="all").resident_bytes
        yield row("none", "one")
        for part in _PARTS:
            yield row(f"{part} %", "one", resident=str(most * part // 100))
        yield row("all", "all", resident="all")
        near = made("near", memory_mode="Sram_Only")
        yield f"{model.stem:34} Sram_Only: {near.estimated_cycles:,} cycles"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--pool", nargs="*", default=[], metavar="SIZE")
    parser.add_argument("--on", default="local", metavar="RUNNER,RUNNER")
    parser.add_argument("--steps", type=int, default=20)
    given = parser.parse_args()
    options = {"accelerator": given.accelerator, "effort": given.effort}
    for model in given.models:
        for line in rows(model, options, given.pool, given.on.split(","), given.steps):
            print(line, flush=True)


if __name__ == "__main__":
    main()
