"""Training steps in pools that are too small without recomputation: bytes, extra cost, planning time.

    python -m benchmarks.relax_training                        # all networks, as one Markdown table
    python -m benchmarks.relax_training gpt2 --limits 50 25    # of the bytes of the plan without recomputation, percent
    python -m benchmarks.relax_training tiny --run             # also run on poisoned pools and compare bit for bit

One row of tokens, float32, legalised, not fused; gradients of every weight by `relax.transform.Gradient`. The caller's
inputs, the loss and the gradients are not counted. Extra cost: arithmetic operations, and bytes loaded and stored, of
what runs again, in percent of the step's.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from benchmarks.relax import REQUEST, hungriest, number, storages
from npu_memplan.analysis import pressure_of
from npu_memplan.errors import NpuMemplanError
from npu_memplan.extract.build import build
from npu_memplan.extract.walk import walk
from npu_memplan.problem import Pool
from npu_memplan.transform import PlanMemory
from npu_memplan.transform.legalize import legalize
from tests.support.relax_results import build_for_host, results, used_bytes
from tests.support.training_programs import GPT2, LLAMA_1B, TINY, TINY_GATED, Network, step_arguments, training_step

NETWORKS: dict[str, tuple[Network, int]] = {
    "tiny": (TINY, 16),
    "tiny gated": (TINY_GATED, 16),
    "gpt2": (GPT2, 1024),
    "llama 1b": (LLAMA_1B, 512),
}
LIMITS = (75, 50, 35)


def rows(name: str, limits: list[int], run: bool) -> None:
    """Prints the rows of one network."""
    network, tokens = NETWORKS[name]
    source = training_step(network, tokens)
    module = legalize(source)
    problem, _ = build(walk(module, "main"), REQUEST)
    live = pressure_of(problem).peak_bytes
    theirs = sum(number(s, {}) for s in storages(source)) + hungriest(module)
    start = time.process_time()
    whole = used_bytes(PlanMemory()(module))
    seconds = time.process_time() - start
    head = f"| {name}, {tokens} tokens"
    print(f"{head} | none | {theirs:,} | {live:,} | {whole:,} | 0 | 0.0 | {seconds:.1f} | |", flush=True)
    for percent in limits:
        limit = whole * percent // 100
        start = time.process_time()
        try:
            planned = PlanMemory([Pool("memory", limit)], recompute=True, poison=0xA5 if run else None)(module)
        except (NpuMemplanError, RuntimeError) as error:
            print(f"{head} | {limit:,} | | | {str(error).splitlines()[-1]} | | | | |", flush=True)
            continue
        seconds = time.process_time() - start
        calls, cost = planned["main"].attrs["npu.recomputed"]
        equal = str(_equal(network, module, planned)) if run else ""
        print(
            f"{head} | {limit:,} | | | {used_bytes(planned):,} | {calls} | {cost} | {seconds:.1f} | {equal} |",
            flush=True,
        )


def _equal(network: Network, module: Any, planned: Any) -> bool:
    arguments = step_arguments(network, module)
    return results(build_for_host(module), arguments) == results(build_for_host(planned), arguments)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help=f"of {', '.join(NETWORKS)}; all by default")
    parser.add_argument("--limits", type=int, nargs="+", default=LIMITS, help="percent of the bytes without")
    parser.add_argument("--run", action="store_true", help="compare with the unplanned module on poisoned pools")
    arguments = parser.parse_args()
    sys.setrecursionlimit(10_000)
    print("| step | limit | TVM | live | ours | calls again | extra cost, % | planning, CPU s | equal |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for name in arguments.networks or NETWORKS:
        rows(name, list(arguments.limits), arguments.run)


if __name__ == "__main__":
    main()
