"""TVM's own tests of Relax with `PlanMemory` in place of TVM's planner: which pass without it, and which with it.

git clone --depth 1 --branch v0.27.0 https://github.com/apache/tvm
python -m benchmarks.tvm_tests tvm                       # all files that make a virtual machine, both positions
python -m benchmarks.tvm_tests tvm test_vm_build.py -p pass
python -m benchmarks.tvm_tests tvm --modules             # bytes of each module that TVM's tests of its planner plan

`pipeline`: `npu_memplan.relax_pipeline()` is TVM's default pipeline. `pass`: `PlanMemory` is StaticPlanBlockMemory,
wherever that is called, with the instruments of TVM's tests on. Pools are filled with 0xA5 first. Only tests count that
pass without it and make a virtual machine. The tests stay where they are; each file is a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

POSITIONS = ("pipeline", "pass")
MODULES = "modules"
"""The position that plans what StaticPlanBlockMemory is given beside it, and notes the bytes of both."""

PLANNER = "test_transform_static_plan_block_memory.py"
ANY = 64
"""The value of symbols without a bound, in bytes of modules."""

_POSITION, _RESULTS = "NPU_MEMPLAN_POSITION", "NPU_MEMPLAN_RESULTS"
POISON = 0xA5

# -- within pytest: a plugin --------------------------------------------------------------------


def pytest_configure(config: Any) -> None:
    """Puts `PlanMemory` where the environment says, and notes which tests make a virtual machine."""
    config._tvm_tests = _Notes(Path(os.environ[_RESULTS]))
    config.pluginmanager.register(config._tvm_tests)
    if position := os.environ[_POSITION]:
        _place(position, config._tvm_tests)


def _place(position: str, notes: _Notes) -> None:
    from tvm import relax

    import npu_memplan as nm

    if position == MODULES:
        original = relax.transform.StaticPlanBlockMemory
        relax.transform.StaticPlanBlockMemory = lambda: _beside(original(), notes)
    elif position == "pipeline":
        for name in ("default", "default_build"):
            relax.pipeline.PIPELINE_MAP[name] = lambda: nm.relax_pipeline(poison=POISON)
    else:
        for module in (relax.transform, relax.transform.transform):
            module.StaticPlanBlockMemory = lambda: nm.transform.PlanMemory(poison=POISON)


def _beside(original: Any, notes: _Notes) -> Any:
    """TVM's planner, with a note of the bytes of its plan and of ours, and of the faults of ours."""
    from tvm import relax

    import npu_memplan as nm
    from benchmarks.relax import number, storages_of
    from npu_memplan.extract.program import entry_symbols

    def plan(module: Any) -> Any:
        result = original(module)
        ours = nm.transform.PlanMemory()(module)
        used = theirs = 0
        for gv, function in result.functions.items():
            if isinstance(function, relax.Function):
                bounds = {str(k): int(v) for k, v in (function.attrs or {}).get("tir_var_upper_bound", {}).items()}
                values = {v.name: bounds.get(v.name, ANY) for v in entry_symbols(function)}
                theirs += sum(number(size, values) for size in storages_of(function))
                used += sum(nm.transform.pool_sizes(ours, values, gv.name_hint).values())
        faults, _ = nm.transform.memory_plan_faults(ours)
        notes.note(test=notes.now, outcome="bytes", theirs=theirs, ours=used, faults=[str(f) for f in faults])
        return result

    return plan


class _Notes:
    """Writes one line for each test that begins and one for its outcome, so that a crash shows, too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.machines = 0
        self.now = ""

    def note(self, **line: Any) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def pytest_sessionstart(self) -> None:
        from tvm import relax

        original = relax.VirtualMachine.__init__

        def init(machine: Any, *arguments: Any, **options: Any) -> None:
            self.machines += 1
            original(machine, *arguments, **options)

        relax.VirtualMachine.__init__ = init

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.machines, self.now = 0, nodeid
        self.note(test=nodeid, outcome="began")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or not report.passed:
            text = "" if report.passed else str(report.longrepr)[-2000:]
            self.note(test=report.nodeid, outcome=report.outcome, machines=self.machines, text=text)


# -- outside: files, processes, sums ------------------------------------------------------------


def files_of(folder: Path, names: list[str]) -> list[Path]:
    """The test files: those called so, or all that make a virtual machine."""
    found = sorted(folder.glob("test_*.py"))
    if names:
        return [path for path in found if path.name in names]
    return [path for path in found if "VirtualMachine" in path.read_text(encoding="utf-8")]


def run(path: Path, position: str, results: Path, seconds: int, only: list[str] | None = None) -> dict[str, Any]:
    """Test -> its last note; what ends the process is deselected, and the others are run."""
    found: dict[str, Any] = {}
    skipped: list[str] = []
    environment = {**os.environ, _POSITION: position, _RESULTS: str(results), "TVM_BACKTRACE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).resolve().parents[1]), str(path.parent)])
    while True:
        results.write_text("")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "benchmarks.tvm_tests", "-p", "no:cacheprovider"]
        command += ["-o", "addopts=", f"--rootdir={path.parent}", "-c", os.devnull, "-o", f"timeout={seconds}"]
        command += [f"--deselect={test}" for test in [*found, *skipped]]
        command += [f"{path.parent}/{test}" for test in only] if only else [str(path)]
        try:
            code = subprocess.run(
                command, env=environment, capture_output=True, cwd=path.parent, timeout=1800
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        for line in map(json.loads, results.read_text().splitlines()):
            if found.get(line["test"], {}).get("outcome") != "failed":
                found[line["test"]] = line
        began = [test for test, line in found.items() if line["outcome"] == "began"]
        for test in began:
            found[test] = {"test": test, "outcome": "crashed", "machines": 0, "text": f"exit code {code}"}
        if not began:
            return found


def modules(folder: Path, out: Path) -> Iterator[str]:
    """Bytes of the modules that TVM's tests of its planner plan: lines of a table."""
    out.mkdir(parents=True, exist_ok=True)
    run(folder / PLANNER, MODULES, out / "notes", 600)
    yield "| module | TVM | ours | faults of our plan |\n|---|--:|--:|---|"
    for line in map(json.loads, (out / "notes").read_text().splitlines()):
        if line["outcome"] == "bytes":
            name = line["test"].partition("::test_")[2]
            yield f"| {name} | {line['theirs']:,} | {line['ours']:,} | {'; '.join(line['faults']) or 'none'} |"


def compare(folder: Path, names: list[str], positions: list[str], out: Path, seconds: int) -> Iterator[str]:
    """Runs everything; lines of the report."""
    out.mkdir(parents=True, exist_ok=True)
    sums = {position: [0, 0] for position in positions}
    failures: dict[str, dict[str, Any]] = {position: {} for position in positions}
    for path in files_of(folder, names):
        without = run(path, "", out / "notes", seconds)
        wanted = [test for test, line in without.items() if line["outcome"] == "passed" and line["machines"]]
        if not wanted:
            continue
        text = f"{path.name}: {len(wanted)} without"
        for position in positions:
            with_it = run(path, position, out / "notes", seconds, wanted)
            failed = {t: with_it.get(t, {}) for t in wanted if with_it.get(t, {}).get("outcome") != "passed"}
            failures[position].update(failed)
            sums[position][0] += len(wanted)
            sums[position][1] += len(wanted) - len(failed)
            text += f", {len(wanted) - len(failed)} {position}"
        yield text
        (out / "failures.json").write_text(json.dumps(failures, indent=1))
    for position, (all_of_them, passed) in sums.items():
        yield f"{position}: {passed} of {all_of_them}"
        yield from (f"  {test}" for test in failures[position])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path, help="a clone of apache/tvm")
    parser.add_argument("files", nargs="*", help="names of files of tests/python/relax; all when left out")
    parser.add_argument("-p", "--position", choices=POSITIONS, action="append", help="one position only")
    parser.add_argument("--modules", action="store_true", help="bytes of what TVM's tests of its planner plan")
    parser.add_argument("-o", "--out", type=Path, default=Path("build/tvm_tests"), help="folder for failures.json")
    parser.add_argument("--seconds", type=int, default=120, help="most seconds of one test")
    given = parser.parse_args()
    folder = given.checkout.resolve() / "tests" / "python" / "relax"
    if given.modules:
        print(*modules(folder, given.out.resolve()), sep="\n")
        return
    for line in compare(folder, given.files, given.position or list(POSITIONS), given.out.resolve(), given.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
