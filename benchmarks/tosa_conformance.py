"""Compiles and simulates conformance tests of TOSA against its reference model; writes build/tosa_coverage.md.

Usage: python -m benchmarks.tosa_conformance FOLDER [--on NAME=N]... [--output FILE.md] [--only TEXT]

FOLDER is what `tosa_verif_conformance_generator` (package tosa-tools) wrote; docs/tosa.md has the command.

Invariant: every figure of the page comes from one run of this script, with all checks of the NPU model on. On NAME, N
tests of each operator and type are tried (0: all); which ones follows from their names alone. Exit code 1 when one of
those that Vela compiles is not equal, and no line of `KNOWN_OLD` says why.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import hashlib
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.support.tosa_case import DIFFERS, EQUAL, FAILED, LARGE, REFUSED, TosaTrial, try_case

ROOT = Path(__file__).resolve().parent.parent
LARGEST = 100_000  # elements of a tensor; an axis has a twentieth of it at most: more make tens of thousands of kernels

# What is not equal, or not run, and why: of Ethos-U55 and U65.
KNOWN_OLD = {
    "ARITHMETIC_RIGHT_SHIFT": "Vela compiles shifts that are not to be rounded, against its own list of constraints "
    "(`Round: true only`), and the NPU rounds",
    "CONV3D": "planes that only padding reaches are copied from 8-bit constants, so they lack the bias: Vela's",
    "LOGICAL_LEFT_SHIFT": "bits shifted out of 32 are to be lost; the NPU model takes it that the NPU saturates, which "
    "no description decides",
    "RESCALE": "Vela's POOL asks for scales of channels, of which a POOL has no table: the stream lacks the "
    "multipliers",
    "REVERSE": "its maps have strides below zero, modulo 2^40, which the NPU model takes for what they say; int32 is "
    "against Vela's own list",
}


def chosen(folder: Path, each: int, only: str) -> list[Path]:
    """The folders of `each` tests (0: all) of every operator and type."""
    groups: defaultdict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("desc.json")):
        name = path.parent.name
        if only in name:
            found = re.findall(r"_(i\d+(?:xi\d+)?|b)(?=_|$)", name)
            groups[path.parent.parent.name, found[0] if found else ""].append(path.parent)
    picked = []
    for key in sorted(groups):
        tests = sorted(groups[key], key=lambda p: hashlib.sha256(p.name.encode()).digest())
        picked += tests[:each] if each else tests
    return picked


INTRODUCTION = [
    "# Which TOSA operators are tried",
    "",
    "Written by `python -m benchmarks.tosa_conformance`; do not edit. [tosa.md](tosa.md) says what a test is.",
    "",
    f"*Too large*: a tensor of more than {LARGEST:,} elements, or an axis of more than a twentieth of that.",
    "",
]


def section(trials: Sequence[TosaTrial], accelerator: str) -> list[str]:
    """What the page says of one accelerator."""
    equal = [t for t in trials if t.outcome == EQUAL]
    alive = [t for t in equal if not t.types.startswith("constants")]
    lines = [
        f"## {accelerator}",
        "",
        f"{len(trials)} tests of {len({t.operator for t in trials})} operators, of which "
        f"**{len(equal)} of {len({t.operator for t in equal})} operators equal the reference model** "
        f"({len(alive)} of {len({t.operator for t in alive})} have inputs; the others' operands are all constants, "
        "much of which Vela computes itself); "
        + ", ".join(
            f"{n} {outcome}" for outcome, n in Counter(t.outcome for t in trials).most_common() if outcome != EQUAL
        )
        + ".",
        "",
        "| operator | types of operands and results | tests | equal | differ | refused by Vela | not run | too large |",
        "|---|---|--:|--:|--:|--:|--:|--:|",
    ]
    rows: defaultdict[str, list[TosaTrial]] = defaultdict(list)
    for trial in trials:
        rows[trial.operator].append(trial)
    for operator, found in sorted(rows.items()):
        counts = Counter(t.outcome for t in found)
        cells = " | ".join(str(counts[outcome] or "") for outcome in (EQUAL, DIFFERS, REFUSED, FAILED, LARGE))
        types = ", ".join(sorted(frozenset().union(*(t.kinds for t in found if t.outcome == EQUAL))))
        lines.append(f"| {operator} | {types} | {len(found)} | {cells} |")
    return [*lines, "", *_reasons(trials, _known(accelerator)), ""]


def _known(accelerator: str) -> dict[str, str]:
    return {} if "u85" in accelerator else KNOWN_OLD


def _reasons(trials: Iterable[TosaTrial], known: dict[str, str]) -> list[str]:
    """Why tests are not equal, each reason once."""
    found: Counter[tuple[str, str, str]] = Counter()
    for trial in trials:
        if trial.outcome in (REFUSED, FAILED, DIFFERS):
            why = None if trial.outcome == REFUSED else known.get(trial.operator)
            found[trial.operator, trial.outcome, why or trial.why.split(" / ")[-1]] += 1
    return [f"* {operator}, {count} {outcome}: {why}." for (operator, outcome, why), count in sorted(found.items())]


def main() -> int:
    """TimedRun the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--on", action="append", metavar="NAME=N", help="default: ethos-u85-256=0")
    parser.add_argument("--output", type=Path, default=ROOT / "build" / "tosa_coverage.md")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    arguments = parser.parse_args()
    lines, unexpected = INTRODUCTION, 0
    for name, each in (text.split("=") for text in arguments.on or ["ethos-u85-256=0"]):
        trials = []
        for folder in chosen(arguments.folder, int(each), arguments.only):
            trials.append(try_case(folder, name, LARGEST))
            unexpected += _report_unexpected(trials[-1], name)
        used = frozenset().union(*(t.features for t in trials if t.outcome == EQUAL))
        print(f"{name}: parts of the language that equal tests use: {', '.join(sorted(used))}", flush=True)
        lines = [*lines, *section(trials, name)]
    arguments.output.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
    return 1 if unexpected else 0


def _report_unexpected(trial: TosaTrial, accelerator: str) -> bool:
    """Print what is not as it should be; whether nothing explains it."""
    if trial.outcome not in (DIFFERS, FAILED):
        return False
    known = trial.operator in _known(accelerator)
    print(f"{accelerator} {trial.name}: {trial.outcome}, {trial.why}{' (known)' if known else ''}", flush=True)
    return not known


if __name__ == "__main__":
    sys.exit(main())
