"""Cycles in a given memory: Vela's stream in its own arena, and the fastest program of ours in that and in less.

    python -m benchmarks.time_in_memory MODEL.tflite ... [--accelerator NAME] [--npu-compiler auto] [--effort quick]

A row a model and a limit: Vela Performance's arena, 0.7 of it, Vela Size's arena (beside Vela Size's cycles); the last
one has the fewest bytes of ours at any speed beside Vela Size's arena. Vela's
arena does not count what host operators need beside it: of networks that have them, and others whose figures cannot be
compared, the limit is what our plan of Vela's stream takes, and "planned" is said. Cycles are estimates for both
sides, by one function. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from npu_memplan import compiler, pipeline
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions
from npu_memplan.request import request


def vela(model: Path, options: CompileOptions, optimise: str) -> tuple[int, int, str]:
    """Bytes of Vela's own arena, our estimate of its stream there, and whose figure the bytes are."""
    loaded = pipeline.read(model, request(replace(options, npu_compiler="vela", optimise=optimise)))
    arena, cycles = sum(loaded.vela_arena_bytes.values()), sum(loaded.vela_stream_bounds.values())
    if arena or not cycles:
        return arena, cycles, "arena"
    plan = pipeline.plan(pipeline.extract_problem(pipeline.lower(loaded))).plan
    return sum(usage.used_bytes for usage in plan.usage), cycles, "planned"


def rows(model: Path, options: CompileOptions) -> Iterator[tuple[str, float]]:
    """A line for each limit, and the ratio to Vela's cycles."""
    arena, cycles, whose = vela(model, options, "Performance")
    small, slow, _ = vela(model, options, "Size")
    if not cycles:
        yield "nothing runs on the NPU", math.nan
        return
    for name, limit, theirs in (
        (whose, arena, cycles),
        ("0.7 of it", int(0.7 * arena), cycles),
        ("Size's", small, slow),
    ):
        started = time.process_time()
        try:
            made = compiler.plan_model(model, replace(options, pools={"sram": limit})).artifact
        except NpuMemplanError as error:
            yield f"{name:10} {limit:>9,} Vela {theirs:>9,}: {str(error).splitlines()[0][:90]}", math.nan
            continue
        ours = made.estimated_cycles or 0
        spent = time.process_time() - started
        why = next((note for note in made.notes if note.startswith("taken: ")), "")
        yield (
            f"{name:10} {limit:>9,} Vela {theirs:>9,} ours {ours:>9,} {ours / theirs:.3f} {spent:5.1f} s {why}",
            ours / theirs if ours else math.nan,  # 0: nothing is left on the NPU
        )
    least = compiler.plan_model(model, replace(options, objective="bytes", stripes=True)).artifact
    used = sum(usage.used_bytes for usage in least.plan.usage)
    yield f"{'fewest':10} Vela {small:>9,} bytes, ours {used:>9,} {used / small:.3f}", used / small


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--npu-compiler", default="auto")
    parser.add_argument("--effort", default="normal", choices=("quick", "normal", "max"))
    requested = parser.parse_args()
    options = CompileOptions(
        requested.accelerator, npu_compiler=requested.npu_compiler, memory_mode="Shared_Sram", effort=requested.effort
    )
    ratios: dict[int, list[float]] = {}
    for model in requested.models:
        print(model.name, flush=True)
        try:
            for k, (text, ratio) in enumerate(rows(model, options)):
                print("  ", text, flush=True)
                if not math.isnan(ratio):
                    ratios.setdefault(k, []).append(ratio)
        except NpuMemplanError as error:
            print("  ", str(error).splitlines()[0], flush=True)
    for k, found in ratios.items():
        mean = math.exp(sum(map(math.log, found)) / len(found))
        print(("arena", "0.7 of it", "Size's", "fewest bytes")[k], f"geometric mean {mean:.3f} of {len(found)} models")


if __name__ == "__main__":
    main()
