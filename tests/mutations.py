"""Ten faults that `make test` finds: a check of the tests, not of the code.

`python -m tests.mutations` puts each fault into a copy of the repository and runs there the tests that are near it, as
`make test` does (`--fast`, so without slow tests and with a fifth of each sweep), up to the first failure. A fault that
no test finds is printed, and the exit code is 1. `--only 3` tries one of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
COPIED = ("npu_memplan", "fvp_runner", "tests", "targets", "examples", "benchmarks", "pyproject.toml")


@dataclass(frozen=True)
class Fault:
    """`old`, which stands once in `file`, becomes `new`; `tests`, files or folders, are near it."""

    what: str
    file: str
    old: str
    new: str
    tests: str

    def mutated(self, text: str) -> str:
        """The source with the fault; an error where the source no longer has `old`."""
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.file} has {self.old!r} {text.count(self.old)} times; renew tests/mutations.py")
        return text.replace(self.old, self.new)


FAULTS = (
    Fault(
        "planner: a buffer may begin one byte inside its lower neighbour",
        "npu_memplan/planners/first_fit.py",
        "        if at < high:\n            at = item.align(high)",
        "        if at < high:\n            at = item.align(high - 1)",
        "tests/planners",
    ),
    Fault(
        "planner: a bound that counts no padding",
        "npu_memplan/planners/bounds.py",
        "        load += sign * (size + pad)",
        "        load += sign * size",
        "tests/planners/test_bounds.py",
    ),
    Fault(
        "extraction: what a branch needs does not live before it",
        "npu_memplan/extract/liveness.py",
        "                _open(state, storage, live, begin)",
        "                _open(state, storage, (), begin)",
        "tests/extract",
    ),
    Fault(
        "extraction: a write that may not happen ends what was there",
        "npu_memplan/extract/liveness.py",
        "            elif access.exact:",
        "            else:",
        "tests/extract/test_conflicts.py",
    ),
    Fault(
        "hazards: a wait leaves one more unfinished than it may",
        "npu_memplan/ethosu/program/hazards.py",
        "            younger = len(unfinished) - 1 - index",
        "            younger = len(unfinished) - index",
        "tests/ethosu/test_waits.py",
    ),
    Fault(
        "hazards: a kernel runs ahead by one block too many",
        "npu_memplan/ethosu/program/hazards.py",
        "                safe = job + age - 1",
        "                safe = job + age",
        "tests/ethosu/test_waits.py",
    ),
    Fault(
        "host operators: a negative mean is rounded upwards",
        "npu_memplan/frontend/host_ops/reduction.py",
        "select(total > 0, half, -half)",
        "half",
        "tests/exactness/test_drawn_operators.py",
    ),
    Fault(
        "host operators: a mean at the upper border counts what is outside",
        "npu_memplan/frontend/host_ops/reduction.py",
        "int_constant(0), int_constant(0) - origin",
        "int_constant(0), int_constant(0)",
        "tests/exactness/test_drawn_operators.py",
    ),
    Fault(
        "encoder: an address loses its upper bits",
        "npu_memplan/ethosu/stream/encode.py",
        "(value >> 32) << 16",
        "(value >> 33) << 16",
        "tests/ethosu/test_stream_coding.py",
    ),
    Fault(
        "encoder: weights in the order of the other traversal",
        "npu_memplan/ethosu/weight_order.py",
        "reversed(slices) if number % 2 else slices",
        "slices if number % 2 else reversed(slices)",
        "tests/npu_model/test_u85_weights.py",
    ),
)


def first_failure(folder: Path, tests: Sequence[str]) -> str | None:
    """The first of `tests`, files or folders or names, that fails in `folder`, None where all pass."""
    shared = os.environ.get("NPU_MEMPLAN_SHARED") or str(REPOSITORY.parent / "shared")
    environment = os.environ | {"PYTHONPATH": str(folder), "NPU_MEMPLAN_SHARED": shared}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--fast", "-p", "no:xdist", "--tb=no", "-rfE", *tests]
    command += ["--hypothesis-profile=unshrunk"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stdout + done.stderr)
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    return failed[0].split(" ", 1)[1].split(" - ")[0] if failed else None


def find(fault: Fault, folder: Path) -> str | None:
    """The first test that fails with this fault, None where none does; `folder` is a copy of the repository."""
    path = folder / fault.file
    right = path.read_text(encoding="utf-8")
    path.write_text(fault.mutated(right), encoding="utf-8")
    try:
        found = first_failure(folder, fault.tests.split())
    finally:
        path.write_text(right, encoding="utf-8")
    if found is not None and first_failure(folder, [found.split("[")[0]]):
        raise SystemExit(f"{found} fails without a fault, too")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", type=int, help="the number of one fault, from 1")
    only = parser.parse_args().only
    missed = 0
    with tempfile.TemporaryDirectory(prefix="npu-memplan-mutations-") as name:
        folder = Path(name)
        for part in COPIED:
            source = REPOSITORY / part
            if source.is_dir():
                shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.is_file():
                shutil.copy(source, folder / part)
        for number, fault in enumerate(FAULTS, start=1):
            if only in (None, number):
                found = find(fault, folder)
                missed += found is None
                print(f"{number:2} {fault.what}: {found or 'NOT FOUND'}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
