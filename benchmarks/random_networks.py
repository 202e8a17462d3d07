"""Compiles random networks in several ways, runs them, and compares them with their reference.

Usage: python -m benchmarks.random_networks [--first N] [--count M] [--how default,vela,tvm,none,stripes,pool,u85,...]
       [--ways N] [--files NETWORK.tflite ...] [--output RESULTS.jsonl] [--keep FOLDER] [--reduce]

Invariant: exit code 0 means that every network was exact, announced as inexact, or refused by name. Networks are tried
in forks of a process that has imported everything, so that a crash is a result; the same seed is the same network, the
same options and the same inputs; from seed 20,000,000 on it has the structures of real networks, from 30,000,000 on
many branches. A line of RESULTS.jsonl is one way of one network; what it has is not done again.

To be cheap (0.3 s of CPU for a run, 2 s as users compile), networks are searched with --effort quick and without the
process of `compile`'s check, but for one in 32; the C of every second network has the sanitizers; Vela compiles a
network once for all ways with the same options. With --ways N, each network has N of the ways of --how, drawn by its
seed, so that many networks are drawn for the same time; several --first, by commas, take turns.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import collections
import gc
import json
import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.base import RunOptions
from npu_memplan.frontend.tflite import lifted
from npu_memplan.vela import compiler
from tests.support.fork import ForkResult, run_in_fork
from tests.support.random_networks import draw
from tests.support.random_networks.reduction import reduced
from tests.support.random_networks.verdict import Trial, Verdict, ways

WAYS = ("default", "vela", "tvm", "none", "stripes", "pool", "u85")
LIMIT_S = 180  # of CPU time for one way of a network
STARVED = 8  # times as much wall time is a process given that others keep from running
FORK = 40  # networks that one process tries, if nothing ends it
_AS_USERS = 32  # one network in so many is compiled with `compile`'s own check and the default effort
_SANITIZED = 2  # one in so many has the sanitizers in its C; all have guards and the shadow of every byte
Record = dict[str, Any]


def try_network(seed: int, model: bytes, hows: Sequence[str], report: Callable[[Record], None]) -> None:
    """Reports a record for each way of one network, and before each stage of it one with the stage alone."""
    report({"stage": "reference"})
    trial = Trial(model, seed)
    for how in hows:
        report({"stage": f"{how} start"})
        limit_cpu(LIMIT_S)
        began = time.process_time()
        options, built = ways(seed)[how], RunOptions(sanitize=seed % _SANITIZED == 0)

        def stage(name: str, how: str = how) -> None:
            report({"stage": f"{how} {name}"})

        if seed % _AS_USERS == 0:
            outcome = trial.compile_and_run(options, stage, True, built)
        else:
            outcome = trial.try_unchecked(replace(options, effort="quick"), stage, built)
        seconds = round(time.process_time() - began, 2)
        report({"how": how, "verdict": outcome.verdict.value, "message": outcome.message, "seconds": seconds})


def limit_cpu(seconds: float) -> None:
    """From here on, so much CPU time ends this process; the last call counts."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def in_fork(work: Callable[[Callable[[Record], None]], None], limit_s: float) -> tuple[list[Record], str]:
    """What `work` reported, and how its process ended if not well."""
    with tempfile.TemporaryDirectory() as folder:
        records = Path(folder) / "records"
        records.touch()

        def reported() -> int:
            with records.open("a", encoding="utf-8") as file:

                def report(record: Record) -> None:
                    file.write(json.dumps(record) + "\n")
                    file.flush()

                work(report)
            return 0

        result = run_in_fork(reported, Path(folder) / "words", limit_s)
        lines = [json.loads(line) for line in records.read_text(encoding="utf-8").splitlines()]
    ended = _named(result, limit_s)
    return lines, f"{ended}: {result.text.strip()[-600:]}" if ended else ""


def _named(result: ForkResult, limit_s: float) -> str:
    """How the process ended; empty: well."""
    if result.timed_out:
        return f"took more than {limit_s:g} s"
    if result.code == -signal.SIGPROF:
        return f"took more than {LIMIT_S} s of CPU time"
    code = result.code
    return "" if code == 0 else f"signal {-code}" if code < 0 else f"exit code {code}"


def try_seed(seed: int, model: bytes, hows: Sequence[str]) -> list[Record]:
    """A record for each way of one network; what ends its process ends one way."""
    records: list[Record] = []
    while len(records) < len(hows):
        left = hows[len(records) :]
        work = partial(try_network, seed, model, left)
        found, ended = in_fork(work, STARVED * LIMIT_S * len(left))
        records += [record for record in found if "how" in record]
        if len(records) < len(hows):
            stage = found[-1].get("stage", "end") if found else "start"
            # where the reference ends the process, there is nothing to compare with
            verdict = Verdict.NO_REFERENCE if stage == "reference" else Verdict.FAULT
            records.append({"how": hows[len(records)], "verdict": verdict.value, "message": f"{stage}: {ended}"})
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


def draw_ways(seed: int, hows: Sequence[str], number: int) -> list[str]:
    """So many of the ways `hows`, drawn by the seed, in their order; 0: all."""
    chosen = np.random.default_rng([seed, 9]).permutation(len(hows))[: number or len(hows)]
    return [hows[i] for i in sorted(chosen)]


def work_through(
    seeds: Sequence[int], hows: Sequence[str], output: Path, keep: Path | None = None, number: int = 0
) -> None:
    """Append a line for each way of each network to `output`; those that are there are not tried again."""
    known = {(record["seed"], record["how"]) for record in _records(output)}

    def ways_left(seed: int) -> list[str]:
        return [how for how in draw_ways(seed, hows, number) if (seed, how) not in known]

    waiting = [seed for seed in seeds if ways_left(seed)]
    while waiting:
        batch = waiting[:FORK]

        def work(report: Callable[[Record], None], batch: Sequence[int] = tuple(batch)) -> None:
            for seed in batch:
                found: list[Record] = []
                left = ways_left(seed)
                try_network(seed, draw(seed).finish(), left, lambda r, f=found: f.append(r) if "how" in r else None)
                _write(output, seed, found, keep)
                report({"seed": seed})

        found, _ = in_fork(work, STARVED * LIMIT_S * len(batch))
        done = len(found)
        waiting = waiting[done:]
        if done < len(batch):  # something ended the process: its network by itself
            seed = waiting.pop(0)
            _write(output, seed, try_seed(seed, draw(seed).finish(), ways_left(seed)), keep)


def _write(output: Path, seed: int | str, records: Sequence[Record], keep: Path | None = None) -> None:
    """`seed`: of a file its path."""
    with output.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps({"seed": seed, **record}) + "\n" for record in records)
    if (
        keep is not None
        and isinstance(seed, int)
        and any(record["verdict"] == Verdict.FAULT.value for record in records)
    ):
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{seed}.tflite").write_bytes(draw(seed).finish())


def _records(output: Path) -> list[Record]:
    return [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()] if output.exists() else []


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


def _share_vela() -> None:
    """Vela compiles a file once for equal options, when its result is asked for."""
    compiler.run_regor = lru_cache(8)(compiler.run_regor)
    lifted.start_compile = lambda model, options: None


def main() -> int:
    """TimedRun a campaign; 1 when there was a fault."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.random_networks", description=__doc__)
    parser.add_argument("--first", default="0", help="the first seed, or several by commas, which take turns")
    parser.add_argument("--count", type=int, default=100, help="networks from each first seed on")
    parser.add_argument("--seeds", default="", help="these, by commas, in place of --first and --count")
    parser.add_argument("--files", type=Path, nargs="*", help="these .tflite files in place of random networks")
    parser.add_argument("--how", default=",".join(WAYS))
    parser.add_argument("--ways", type=int, default=0, help="so many of --how for each network; default: all")
    parser.add_argument("--output", type=Path, default=Path("random_networks.jsonl"))
    parser.add_argument("--keep", type=Path, help="where files with faults go")
    parser.add_argument("--reduce", action="store_true", help="make each network as small as shows the same fault")
    requested = parser.parse_args()
    firsts = [int(s) for s in requested.first.split(",")]
    seeds = [int(s) for s in requested.seeds.split(",") if s] or [
        first + number for number in range(requested.count) for first in firsts
    ]
    hows = requested.how.split(",")
    if requested.reduce:
        for seed in seeds:
            for how in hows:
                _reduce(seed, how, requested.keep or Path("reduced"))
        return 0
    for how in hows:  # imports everything, and compiles what is the same for all, once
        Trial(draw(0).finish()).try_unchecked(ways(0)[how])
    _share_vela()
    gc.freeze()  # so that forks do not copy what they only look at
    if requested.files:
        for path in requested.files:
            _write(requested.output, str(path), try_seed(1, path.read_bytes(), hows))
    else:
        work_through(seeds, hows, requested.output, requested.keep, requested.ways)
    records = _records(requested.output)
    print(summary(records))
    return 1 if any(r["verdict"] == Verdict.FAULT.value for r in records) else 0


if __name__ == "__main__":
    sys.exit(main())
