"""Whether more memory ever gives more cycles: single compiles of a model in growing pools.

    python -m benchmarks.monotone MODEL.tflite ... [--accelerator NAME] [--effort normal] [--limits 20]

For each model, limits from 0.5 to 1.5 times Vela's arena; each is a compile by itself, whose search has nothing of the
others (the model is read once). A line a model: cycles of each limit over those of Vela's stream, by the timing model
in which that is most (programs are selected by it), and how often, and by how much, a larger limit took more than a
smaller one. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks.time_in_memory import vela
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import lower, read
from npu_memplan.planners import PlanningError
from npu_memplan.request import request
from npu_memplan.tuning.candidate import ProgramCandidate, cycles_by_model
from npu_memplan.tuning.models import ENDLESS, ModelCache
from npu_memplan.tuning.ranking import Ranking
from npu_memplan.tuning.selection import select_fastest


def ratios(model: Path, options: CompileOptions, count: int) -> Iterator[float]:
    """Of each limit at which something fits, the smallest first: the worst ratio to Vela's cycles."""
    memory_map, pool = options.memory_map(), options.planned_pools()[-1].name
    assert memory_map is not None
    arena, _, _ = vela(model, options, "Performance")
    theirs = read(model, request(replace(options, npu_compiler="vela"))).vela_stream_cycles
    models = ModelCache(lambda wanted: lower(read(model, request(wanted))), {pool: ENDLESS})
    for number in range(count):
        limit = int(arena * (0.5 + number / (count - 1)))
        try:
            best = select_fastest(replace(options, pools={pool: limit}), memory_map, models.loaded)
        except PlanningError:
            continue
        rank = Ranking(memory_map)
        cycles = cycles_by_model(ProgramCandidate(best, rank(best)), rank)
        yield max(one / other for one, other in zip(cycles, theirs, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--limits", type=int, default=20)
    given = parser.parse_args()
    total = 0
    for model in given.models:
        options = CompileOptions(given.accelerator, effort=given.effort, pools={"sram": ENDLESS}).resolved()
        started, least, rises, worst = time.process_time(), math.inf, 0, 1.0
        shown = []
        try:
            for ratio in ratios(model, options, given.limits):
                rises, worst = rises + (ratio > least), max(worst, ratio / least)
                least = min(least, ratio)
                shown.append(f"{ratio:.4f}{'!' if ratio > least else ''}")
        except NpuMemplanError as error:
            shown.append(str(error).splitlines()[0])
        total += rises
        spent = time.process_time() - started
        print(f"{model.stem}: {rises} rises, at most {worst:.4f}; {spent:.0f} s; {' '.join(shown)}", flush=True)
    print(f"{total} limits with more cycles than a smaller one")


if __name__ == "__main__":
    main()
