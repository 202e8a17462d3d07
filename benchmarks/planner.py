"""The planner measured on every set of instances; prints Markdown tables, asserts no time.

    python -m benchmarks.planner                     all sets but `heights` and `million`
    python -m benchmarks.planner fit anytime         some of them
    MINIMALLOC=path/to/minimalloc python -m benchmarks.planner fit

Invariant: the compiled searches are loaded before anything is timed; every plan was verified by `plan()`; times and
time limits are CPU seconds of this process (wall seconds beside them), so that a busy machine distorts them little.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from npu_memplan import clock
from npu_memplan.artifact.files import read_problem
from npu_memplan.planners import plan
from npu_memplan.problem import Buffer, Plan, PlanStatus, Pool, Problem
from tests.support.planner_generate import inference_like, training_like

SHARED = Path(os.environ.get("NPU_MEMPLAN_SHARED", Path(__file__).resolve().parents[2] / "shared")) / "instances"
MIB = 1 << 20
BEST_KNOWN = {"C": 1039360, "D": 1028096, "J": 1035264}  # before this planner; elsewhere the bound is reached


def timed(run: Callable[[], Plan]) -> tuple[Plan, float, float]:
    """(plan, CPU seconds, wall seconds)."""
    wall, cpu = time.monotonic(), time.process_time()
    answer = run()
    return answer, time.process_time() - cpu, time.monotonic() - wall


def challenging() -> Iterator[tuple[str, Path]]:
    for path in sorted((SHARED / "minimalloc_challenging").glob("*.csv")):
        yield path.name[0], path


def ratio(answer: Plan) -> float:
    usage = answer.usage[0]
    return usage.used_bytes / max(1, usage.lower_bound_bytes)


def warm_up() -> None:
    """Build, or load, the compiled searches, and import what is used below; from here on limits are CPU seconds."""
    clock.seconds = time.process_time
    plan(inference_like(700), node_budget=20_000)
    plan(training_like(700), node_budget=20_000)
    plan(read_problem(dict(challenging())["D"]), node_budget=20_000)


def minimalloc(path: Path, capacity: int) -> float | None:
    """CPU seconds of MiniMalloc on `path`, None where there is none or it timed out."""
    program = os.environ.get("MINIMALLOC")
    if not program:
        return None
    with tempfile.TemporaryDirectory() as folder:
        command = [program, f"--capacity={capacity}", f"--input={path}", f"--output={folder}/out.csv", "--timeout=60s"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(command, capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        ok = done.returncode == 0 and (Path(folder) / "out.csv").is_file()
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime if ok else None


def fit(seeds: int = 3) -> None:
    """Time to the first plan inside 1 MiB."""
    print("\n### A..K at 1 MiB: CPU seconds to a plan\n")
    columns = ("buffers", f"median of {seeds} seeds, s", "worst, s", "first fit: height / bound", "hill climb")
    print(f"| | {' | '.join(columns)} | MiniMalloc, s |")
    print("|---|---|---|---|---|---|---|")
    total, worst_total, other_total = 0.0, 0.0, 0.0
    for name, path in challenging():
        problem = read_problem(path, MIB)
        times = []
        for seed in range(seeds):
            _, cpu, _ = timed(lambda problem=problem, seed=seed: plan(problem, "fit", 60.0, seed))
            times.append(cpu)
        times.sort()
        free = read_problem(path)
        first, climb = plan(free, "first-fit"), plan(free, "hill-climb", 2.0)
        other = minimalloc(path, MIB)
        total, worst_total, other_total = total + times[seeds // 2], worst_total + times[-1], other_total + (other or 0)
        shown = "-" if other is None else f"{other:.2f}"
        print(
            f"| {name} | {len(problem.buffers)} | {times[seeds // 2]:.3f} | {times[-1]:.3f} | {ratio(first):.3f} "
            f"| {ratio(climb):.3f} | {shown} |",
            flush=True,
        )
    shown = f"{other_total:.2f}" if other_total else "-"
    print(f"| sum | | {total:.2f} | {worst_total:.2f} | | | {shown} |")


def anytime(seeds: int = 5) -> None:
    """Height over bound of `plan(problem, time_limit_s=...)`, and the CPU seconds of the whole call to the bound."""
    limits = (0.1, 1.0)
    print("\n### A..K without a capacity: height / bound, median and worst\n")
    print(f"| | {' | '.join(f'in {limit:g} s, median | worst' for limit in limits)} | bound met after, s |")
    print("|---|---|---|---|---|---|")
    for name, path in challenging():
        problem = read_problem(path)
        cells = []
        for limit in limits:
            ratios = sorted(ratio(plan(problem, time_limit_s=limit, seed=seed)) for seed in range(seeds))
            cells += [f"{ratios[seeds // 2]:.4f}", f"{ratios[-1]:.4f}"]
        answer, cpu, _ = timed(lambda problem=problem: plan(problem, time_limit_s=30.0))
        met = f"{cpu:.2f}" if answer.status is PlanStatus.OPTIMAL else "-"
        print(f"| {name} | {' | '.join(cells)} | {met} |", flush=True)


def heights(seconds: float = 120.0) -> None:
    """The least heights found for the instances whose bound is not 1 MiB."""
    print(f"\n### Heights within {seconds:g} s\n")
    print("| | bound | best known before | reached | status | CPU s |")
    print("|---|---|---|---|---|---|")
    for name, path in challenging():
        if name in BEST_KNOWN:
            problem = read_problem(path)
            answer, cpu, _ = timed(lambda problem=problem: plan(problem, "auto", seconds))
            usage = answer.usage[0]
            print(
                f"| {name} | {usage.lower_bound_bytes} | {BEST_KNOWN[name]} | {usage.used_bytes} "
                f"| {answer.status.value} | {cpu:.1f} |",
                flush=True,
            )


def processes() -> None:
    """CPU seconds of the command line as whole processes: the first, which builds the searches, and later ones."""
    print("\n### `npu-memplan plan --capacity 1MiB --time-limit 2` as whole processes, CPU seconds\n")
    print("| | first on a machine | later, least of three |")
    print("|---|---|---|")
    for name, path in challenging():
        line = [sys.executable, "-m", "npu_memplan", "plan", str(path), "--capacity", "1MiB", "--time-limit", "2"]
        with tempfile.TemporaryDirectory() as cache:
            cpu = []
            for _ in range(4):
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(line, env={**os.environ, "NPU_MEMPLAN_CACHE": cache}, capture_output=True, check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        print(f"| {name} | {cpu[0]:.2f} | {min(cpu[1:]):.2f} |", flush=True)


def small() -> None:
    """Instances of real models: milliseconds to a proven optimum."""
    print("\n### Real and legacy instances\n")
    print("| | buffers | height | bound | status | ms | legacy hill climb |")
    print("|---|---|---|---|---|---|---|")
    entries: list[tuple[str, Problem, int | None]] = []
    for path in sorted((SHARED / "tflite").glob("*.csv")):
        entries.append((f"tflite/{path.stem}", read_problem(path), None))
    for case in json.loads((SHARED / "usmp" / "cases.json").read_text()):
        entries.append((f"usmp/{case['name']}", graph(case["sizes"], case["edges"], 1), case["legacy"]["hill_climb"]))
    for path in sorted((SHARED / "legacy_models").glob("*.json")):
        document = json.loads(path.read_text())
        sizes = [b["size"] for b in document["buffers"]]
        edges = sorted({(min(i, j), max(i, j)) for i, b in enumerate(document["buffers"]) for j in b["conflicts"]})
        legacy = sum(document["plans"]["hill_climb"]["pool"].values())
        entries.append((f"legacy/{path.stem}", graph(sizes, edges, 16), legacy))
    for name, problem, legacy in entries:
        answer, cpu, _ = timed(lambda problem=problem: plan(problem))
        usage = answer.usage[0]
        print(
            f"| {name} | {len(problem.buffers)} | {usage.used_bytes} | {usage.lower_bound_bytes} "
            f"| {answer.status.value} | {1e3 * cpu:.1f} | {legacy or '-'} |"
        )


def graph(sizes: list[int], edges: list[tuple[int, int]], alignment: int) -> Problem:
    buffers = tuple(Buffer(f"n{k}", size, (), alignment) for k, size in enumerate(sizes))
    return Problem(buffers, (Pool("memory"),), tuple((f"n{a}", f"n{b}") for a, b in edges))


def scale(entries: list[tuple[str, Callable[[], Problem], float | None]]) -> None:
    print("\n### Traces and generated sets\n")
    print("| | buffers | limit, s | height / bound | status | CPU s | wall s | peak RSS, GB |")
    print("|---|---|---|---|---|---|---|---|")
    for name, make, limit in entries:
        problem = make()
        answer, cpu, wall = timed(lambda problem=problem, limit=limit: plan(problem, "auto", limit))
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"| {name} | {len(problem.buffers)} | {limit or '-'} | {ratio(answer):.5f} | {answer.status.value} "
            f"| {cpu:.2f} | {wall:.2f} | {rss:.2f} |",
            flush=True,
        )


def traces() -> None:
    scale(
        [
            (path.stem, lambda path=path: read_problem(path), limit)
            for path, limit in ((SHARED / "traces" / f"{n}.csv", t) for n, t in TRACES)
        ]
    )


TRACES = (("G_1", 2.0), ("resnet50", 2.0), ("pangu_2.6B", 5.0))


def generated() -> None:
    entries: list[tuple[str, Callable[[], Problem], float | None]] = []
    for count, limit in ((1_000, 0.5), (10_000, 0.5), (10_000, None), (100_000, 5.0), (100_000, None)):
        entries.append((f"inference-like {count}", lambda count=count: inference_like(count), limit))
        entries.append((f"training-like {count}", lambda count=count: training_like(count), limit))
    scale(entries)


def million() -> None:
    scale([("inference-like 1000000", lambda: inference_like(1_000_000), 60.0)])


SETS = {
    "processes": processes,
    "fit": fit,
    "anytime": anytime,
    "small": small,
    "traces": traces,
    "generated": generated,
    "heights": heights,
    "million": million,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the planners.")
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    chosen = parser.parse_args().sets or [name for name in SETS if name not in ("heights", "million")]
    unknown = [name for name in chosen if name not in SETS]
    if unknown:
        parser.error(f"no set is called {', '.join(unknown)}; there are: {', '.join(SETS)}")
    if not SHARED.is_dir():
        parser.error(f"no instances in {SHARED}; set NPU_MEMPLAN_SHARED")
    started = time.process_time()
    warm_up()
    print(f"warm-up (import, and build or load the compiled searches): {time.process_time() - started:.1f} s")
    for name in chosen:
        SETS[name]()


if __name__ == "__main__":
    main()
