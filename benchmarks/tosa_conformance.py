"""Compiles and simulates conformance tests of TOSA against its reference model; writes docs/tosa_coverage.md.

Usage: python -m benchmarks.tosa_conformance FOLDER [--each N] [--accelerator NAME] [--output FILE.md] [--only TEXT]

FOLDER is what `tosa_verif_conformance_generator` (package tosa-tools) wrote; docs/tosa.md has the command.

Invariant: every figure of the page comes from one run of this script, with all checks of the NPU model on. Which N of
the tests of an operator and a type are taken follows from their names alone. Exit code 1 when one is not equal, of
those that Vela compiles and no line of `KNOWN` explains.
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

# Operators that the NPU model does not run, and why.
KNOWN = {
    "COND_IF": "its streams jump (BRANCH), which nobody here follows",
    "WHILE_LOOP": "its streams jump (BRANCH), which nobody here follows",
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


def page(trials: Sequence[TosaTrial], accelerator: str) -> list[str]:
    """The page's lines."""
    equal = [t for t in trials if t.outcome == EQUAL]
    alive = [t for t in equal if not t.types.startswith("constants")]
    lines = [
        "# Which TOSA operators are tried",
        "",
        "Written by `python -m benchmarks.tosa_conformance`; do not edit. [tosa.md](tosa.md) says what a test is.",
        "",
        f"{accelerator}: {len(trials)} tests of {len({t.operator for t in trials})} operators, of which "
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
    return [*lines, "", *_reasons(trials)]


def _reasons(trials: Iterable[TosaTrial]) -> list[str]:
    """Why tests were refused or not run, each reason once."""
    found: Counter[tuple[str, str, str]] = Counter()
    for trial in trials:
        if trial.outcome in (REFUSED, FAILED):
            why = KNOWN.get(trial.operator) if trial.outcome == FAILED else None
            found[trial.operator, trial.outcome, why or trial.why.split(" / ")[-1]] += 1
    return [f"* {operator}, {count} {outcome}: {why}." for (operator, outcome, why), count in sorted(found.items())]


def main() -> int:
    """Run the script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--each", type=int, default=0, help="tests of each operator and type; 0: all")
    parser.add_argument("--accelerator", default="ethos-u85-256")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "tosa_coverage.md")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    arguments = parser.parse_args()
    trials = []
    unexpected = 0
    for folder in chosen(arguments.folder, arguments.each, arguments.only):
        trial = try_case(folder, arguments.accelerator, LARGEST)
        trials.append(trial)
        if trial.outcome in (DIFFERS, FAILED):
            known = trial.operator in KNOWN
            unexpected += not known
            print(f"{trial.name}: {trial.outcome}, {trial.why}{' (known)' if known else ''}", flush=True)
    used = frozenset().union(*(t.features for t in trials if t.outcome == EQUAL))
    print(f"parts of the language that equal tests use: {', '.join(sorted(used))}")
    for operator in sorted({t.operator for t in trials}):
        types = frozenset().union(*(t.kinds for t in trials if t.operator == operator and t.outcome == EQUAL))
        print(f"{operator}: {','.join(sorted(types))}")
    arguments.output.write_text("\n".join(page(trials, arguments.accelerator)) + "\n", encoding="utf-8")
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
