"""Compiles random networks in several ways, runs them, and compares them with their reference.

Usage: python -m benchmarks.random_networks [--first N] [--count M] [--how default,vela,tvm,none,stripes,pool,u85,...]
       [--jobs N] [--output RESULTS.jsonl] [--keep FOLDER] [--reduce]

Invariant: exit code 0 means that every network was exact, announced as inexact, or refused by name. Each case is a
fork of a process that has imported everything, so that a crash is a result; the same seed is the same network.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import collections
import json
import re
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.fork import ForkResult, run_in_fork
from tests.support.random_networks import draw
from tests.support.random_networks.reduction import reduced
from tests.support.random_networks.verdict import Trial, Verdict, ways

WAYS = tuple(ways(0))
LIMIT_S = 180  # of CPU time for one way of a network
STARVED = 8  # times as much wall time is a process given that others keep from running


def in_fork(work: Callable[[Callable[..., None]], None], limit_s: float = LIMIT_S) -> tuple[list[dict[str, Any]], str]:
    """What `work` reported (each call of its argument is a record), and how its process ended if not well."""
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records"

        def reported() -> int:
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 5))
            with records.open("a", encoding="utf-8") as file:

                def report(**record: Any) -> None:
                    file.write(json.dumps(record) + "\n")
                    file.flush()

                work(report)
            return 0

        result = run_in_fork(reported, Path(folder) / "words", STARVED * limit_s)
        lines = records.read_text(encoding="utf-8").splitlines() if records.exists() else []
    ended = _named(result, limit_s)
    return [json.loads(line) for line in lines], f"{ended}: {result.text.strip()[-600:]}" if ended else ""


def _named(result: ForkResult, limit_s: float) -> str:
    """How the process ended; empty: well."""
    if result.timed_out:
        return f"took more than {STARVED * limit_s:g} s"
    if result.code == -signal.SIGXCPU:
        return f"took more than {limit_s:g} s of CPU time"
    code = result.code
    return "" if code == 0 else f"signal {-code}" if code < 0 else f"exit code {code}"


def _entering(report: Callable[..., None], stage: str) -> None:
    report(stage=stage)


def try_seed(seed: int, model: bytes, hows: Sequence[str]) -> list[dict[str, Any]]:
    """A record for each way of one network."""
    records: list[dict[str, Any]] = []
    hows = list(hows)
    while hows:

        def work(report: Callable[..., None], hows: Sequence[str] = tuple(hows)) -> None:
            report(stage="reference")
            trial = Trial(model, seed)
            for how in hows:
                began = time.monotonic()
                outcome = trial.compile_and_run(ways(seed)[how], partial(_entering, report))
                seconds = round(time.monotonic() - began, 2)
                report(how=how, verdict=outcome.verdict.value, message=outcome.message, seconds=seconds)

        found, ended = in_fork(work, LIMIT_S * len(hows))
        done = [record for record in found if "how" in record]
        records += done
        hows = hows[len(done) :]
        if ended and hows:
            stage = found[-1].get("stage", "") if found else "start"
            if stage == "reference":  # the reference ends the process: nothing to compare with
                return [{"how": how, "verdict": Verdict.NO_REFERENCE.value, "message": ended} for how in hows]
            message = f"{stage}: {ended}"
            records.append({"how": hows.pop(0), "verdict": Verdict.FAULT.value, "message": message})
    return records


def class_of(message: str) -> str:
    """A message without what differs between networks."""
    first = next((line for line in message.splitlines() if line.strip()), "")
    return re.sub(r"0x[0-9a-f]+|[0-9][0-9,.e+-]*|\bt\d+", "N", first)[:110]


def summary(records: Iterable[dict[str, Any]]) -> str:
    """A table of ways and verdicts, and the classes of faults and refusals with seeds of each."""
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    classes: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
    for record in records:
        table[record["how"]][record["verdict"]] += 1
        if record["verdict"] in (Verdict.FAULT.value, Verdict.REFUSED.value):
            classes[record["verdict"], class_of(record["message"])].append(f"{record['seed']}/{record['how']}")
    verdicts = [verdict.value for verdict in Verdict]
    lines = ["| how | " + " | ".join(verdicts) + " |", "|---" * (len(verdicts) + 1) + "|"]
    lines += [f"| {how} | " + " | ".join(str(row[v]) for v in verdicts) + " |" for how, row in table.items()]
    for (verdict, text), seeds in sorted(classes.items(), key=lambda item: (item[0][0] != "FAULT", -len(item[1]))):
        lines.append(f"{verdict} {len(seeds):4} {text}  [{' '.join(seeds[:6])}]")
    return "\n".join(lines)


def _work_through(seeds: Sequence[int], hows: Sequence[str], output: Path, keep: Path | None) -> None:
    with output.open("a", encoding="utf-8") as file:
        for seed in seeds:
            builder = draw(seed)
            model, kinds = builder.finish(), [operator[0] for operator in builder.operators]
            for record in try_seed(seed, model, hows):
                file.write(json.dumps({"seed": seed, **record, "operators": kinds}) + "\n")
                if record["verdict"] == Verdict.FAULT.value and keep is not None:
                    keep.mkdir(parents=True, exist_ok=True)
                    (keep / f"{seed}.tflite").write_bytes(model)
            file.flush()


def _reduce(seed: int, how: str, keep: Path) -> None:
    """Print and keep the smallest network of a seed with the same class of fault."""

    def fault(model: bytes) -> str:
        (record,) = try_seed(seed, model, [how])
        return class_of(record["message"]).partition(":")[0] if record["verdict"] == Verdict.FAULT.value else ""

    builder = reduced(draw(seed), lambda b: fault(b.finish()))
    keep.mkdir(parents=True, exist_ok=True)
    (keep / f"{seed}-{how}.tflite").write_bytes(builder.finish())
    print(f"{seed}/{how}:", ", ".join(operator[0] for operator in builder.operators))
    print("  ", try_seed(seed, builder.finish(), [how])[0]["message"][:400])


def main() -> int:
    """TimedRun a campaign; 1 when there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_networks", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seeds", default="", help="these, by commas, in place of --first and --count")
    parser.add_argument("--how", default=",".join(WAYS))
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("random_networks.jsonl"))
    parser.add_argument("--keep", type=Path, help="where files with faults go")
    parser.add_argument("--reduce", action="store_true", help="make each network as small as shows the same fault")
    requested = parser.parse_args()
    seeds = [int(s) for s in requested.seeds.split(",") if s] or list(
        range(requested.first, requested.first + requested.count)
    )
    hows = requested.how.split(",")
    if requested.reduce:
        for seed in seeds:
            for how in hows:
                _reduce(seed, how, requested.keep or Path("reduced"))
        return 0
    Trial(draw(0).finish()).compile_and_run(ways(0)["tvm"])  # imports everything once
    children = []
    for job in range(requested.jobs):
        child = os.fork()
        if child == 0:
            _work_through(seeds[job :: requested.jobs], hows, requested.output, requested.keep)
            os._exit(0)
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    records = [json.loads(line) for line in requested.output.read_text(encoding="utf-8").splitlines()]
    print(summary(records))
    return 1 if any(r["verdict"] == Verdict.FAULT.value for r in records) else 0


if __name__ == "__main__":
    sys.exit(main())
