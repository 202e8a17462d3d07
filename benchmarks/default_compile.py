"""The default compile beside Vela: bytes, estimated cycles and CPU seconds.

    python -m benchmarks.default_compile MODEL.tflite ... [--accelerator ethos-u55-256] [--effort normal]

A row a model: Vela's bytes (its arena; "planned": the best plan of its stream, where its arena counts other things),
Vela's cycles, ours, and their ratio, by one function for both sides; CPU seconds of a whole compile in this process.
The last line has the geometric mean and the rows in which bytes or cycles are above Vela's. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from benchmarks.time_in_memory import vela
from npu_memplan import compiler
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions


def row(model: Path, options: CompileOptions) -> tuple[str, float, bool]:
    """A line, the ratio of cycles (nan: there is none), and whether bytes or cycles are above Vela's."""
    arena, cycles, whose = vela(model, options, "Performance")
    started = time.process_time()
    made = compiler.plan_model(model, options).artifact
    spent = time.process_time() - started
    used = sum(usage.used_bytes for usage in made.plan.usage)
    ours = made.estimated_cycles or 0
    ratio = ours / cycles if ours and cycles else math.nan
    worse = bool(cycles) and (used > arena or ours > cycles)
    text = f"{whose:8} {arena:>9,} ours {used:>9,}  Vela {cycles:>10,} ours {ours:>10,} {ratio:.3f} {spent:5.1f} s"
    return f"{text}{'  ABOVE' if worse else ''}", ratio, worse


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--effort", default="normal")
    given = parser.parse_args()
    options = CompileOptions(given.accelerator, effort=given.effort).resolved()
    ratios, above = [], []
    for model in given.models:
        try:
            text, ratio, worse = row(model, options)
        except NpuMemplanError as error:
            text, ratio, worse = str(error).splitlines()[0][:100], math.nan, False
        print(f"{model.stem[:36]:36} {text}", flush=True)
        if not math.isnan(ratio):
            ratios.append(ratio)
        if worse:
            above.append(model.stem)
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else math.nan
    print(f"{len(ratios)} networks, geometric mean {mean:.3f}; above Vela: {', '.join(above) or 'none'}")


if __name__ == "__main__":
    main()
