"""Which tests `make test` leaves out, by measured CPU seconds, and how that list is renewed.

Each run measures the CPU seconds of each test: of this process and of the processes that ended in it, so that a busy
machine counts for little. What a fixture of a wider scope than one test took is shared out among the tests that use it.
`--fast` leaves out what tests/slow.txt names, what has the mark `slow`, and of each function that sweeps over many
parameters all but a seeded fifth. build/test-seconds.tsv has the last measurement of each test in this checkout, from
which `--update-slow` renews the list; tests that were not measured keep their lines. A test that the list does not name
runs, whatever it takes; the end of the run says which are slow.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

LIST = Path(__file__).resolve().parents[1] / "slow.txt"
RECORD = LIST.parents[1] / "build" / "test-seconds.tsv"
SLOW_SECONDS = 0.6  # a test that takes more is left out of `make test`
TOLD_SECONDS = 1.5  # a test that takes more, and that the list does not name, is told so
SWEEP_TESTS = 40  # a function of so many tests is a sweep
SWEEP_SHARE = 5  # one in so many of its tests runs with --fast
HEAD = """\
# CPU seconds of the slow tests: `make test` leaves them out, `make test-all` runs them. Do not edit:
# pytest --update-slow renews the lines of the tests that ran here. A name without parameters stands for all of them.
"""


def function_of(test: str) -> str:
    """`a.py::test_b[c]` -> `a.py::test_b`."""
    return test.split("[", 1)[0]


def read_list(path: Path | None = None) -> dict[str, float]:
    """The CPU seconds of each name in the list (LIST, or a file like it at `path`); empty where there is none."""
    path = path or LIST
    if not path.is_file():
        return {}
    lines = (line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#"))
    return {test: float(seconds) for seconds, test in (line.split(" ", 1) for line in lines)}


def keep_record(measured: Mapping[str, float]) -> dict[str, float]:
    """What was measured in this checkout, with `measured`, which is kept there."""
    record = read_list(RECORD) | measured
    RECORD.parent.mkdir(exist_ok=True)
    part = RECORD.with_suffix(f".{os.getpid()}")  # other runs read and write here, too
    part.write_text("".join(f"{seconds:.2f} {test}\n" for test, seconds in sorted(record.items())), encoding="utf-8")
    part.replace(RECORD)
    return record


def is_slow(test: str, listed: Mapping[str, float]) -> bool:
    """Whether the list names this test, or its function."""
    return test in listed or function_of(test) in listed


def renewed(listed: Mapping[str, float], measured: Mapping[str, float], stale: Iterable[str] = ()) -> dict[str, float]:
    """The list after a run: `measured` CPU seconds by test replace what it said; names in `stale` are dropped.

    Where more than one test of a function ran, and all of them are slow, the function's name stands for them.
    """
    tests = defaultdict(list)
    for test in measured:
        tests[function_of(test)].append(test)
    dropped = set(stale)
    new = {
        name: seconds
        for name, seconds in listed.items()
        if name not in measured and name not in dropped and function_of(name) not in dropped
    }
    for function, names in tests.items():
        slow = {name: measured[name] for name in names if measured[name] > SLOW_SECONDS}
        if len(names) > 1 and len(slow) == len(names):
            new = {name: s for name, s in new.items() if function_of(name) != function}
            new[function] = max(slow.values())
        elif function not in new or slow.keys() != set(names):
            new.pop(function, None)
            new |= slow
    return new


def text_of(listed: Mapping[str, float]) -> str:
    """The file's text: one line a name, by name."""
    return HEAD + "".join(f"{seconds:.1f} {name}\n" for name, seconds in sorted(listed.items()))


def sample_sweeps(tests: Iterable[str], seed: int) -> set[str]:
    """The tests of sweeps that a fast run leaves out: all but a fifth of each, chosen by `seed`."""
    by_function = defaultdict(list)
    for test in tests:
        by_function[function_of(test)].append(test)
    left_out: set[str] = set()
    for function, names in by_function.items():
        if len(names) >= SWEEP_TESTS:
            kept = random.Random(f"{seed} {function}").sample(names, -(-len(names) // SWEEP_SHARE))
            left_out |= set(names) - set(kept)
    return left_out


def cpu_seconds() -> float:
    """CPU seconds of this process and of its children that have ended."""
    now = os.times()
    return now.user + now.system + now.children_user + now.children_system


@dataclass(eq=False)
class Measurement:
    """CPU seconds of tests, in the process that runs them; attached to each test's last report."""

    users: Counter[tuple[str, str]] = field(default_factory=Counter)  # tests of each shared fixture
    fixtures: dict[str, list[tuple[str, str]]] = field(default_factory=dict)  # shared fixtures of each test
    seconds: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))  # of each shared fixture
    started: float = 0.0
    shared: float = 0.0  # what shared fixtures took since the test started

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            info = getattr(item, "_fixtureinfo", None)
            definitions = [] if info is None else [d[-1] for d in info.name2fixturedefs.values()]
            names = [(d.baseid, d.argname) for d in definitions if d.scope != "function"]
            self.fixtures[item.nodeid] = names
            self.users.update(names)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, object, object]:
        self.started, self.shared = cpu_seconds(), 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        start, nested = cpu_seconds(), self.shared
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                took = cpu_seconds() - start - (self.shared - nested)
                self.seconds[fixturedef.baseid, fixturedef.argname] += took
                self.shared += took

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.when == "teardown":
            own = cpu_seconds() - self.started - self.shared
            part = sum(self.seconds[n] / max(1, self.users[n]) for n in self.fixtures.get(item.nodeid, ()))
            report.user_properties.append(("cpu_seconds", own + part))
        return report


@dataclass(eq=False)
class Tier:
    """What a run leaves out, and what it says at its end."""

    config: pytest.Config
    listed: dict[str, float] = field(default_factory=read_list)
    collected: set[str] = field(default_factory=set)
    measured: dict[str, float] = field(default_factory=dict)
    passed: set[str] = field(default_factory=set)
    left_out: dict[str, int] = field(default_factory=dict)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.collected = {item.nodeid for item in items}
        if not self.config.option.fast:
            return
        slow = {i.nodeid for i in items if is_slow(i.nodeid, self.listed) or i.get_closest_marker("slow")}
        swept = sample_sweeps([i.nodeid for i in items if i.nodeid not in slow], self.config.option.sweep_seed)
        self.left_out = {"slow tests": len(slow), "tests of sweeps": len(swept)}
        self.config.hook.pytest_deselected(items=[i for i in items if i.nodeid in slow | swept])
        items[:] = [i for i in items if i.nodeid not in slow | swept]

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self.collected = set() if self.config.option.fast else set(ids)

    def pytest_sessionfinish(self) -> None:
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["left_out"] = self.left_out

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self.left_out = getattr(node, "workeroutput", {}).get("left_out", self.left_out)

    def pytest_report_header(self) -> str | None:
        if not self.config.option.fast:
            return None
        return (
            f"fast: without {LIST.name}; a fifth of each sweep, chosen by --sweep-seed {self.config.option.sweep_seed}"
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        for name, seconds in report.user_properties:
            if name == "cpu_seconds" and report.nodeid in self.passed:  # what fails or skips has not been measured
                self.measured[report.nodeid] = float(str(seconds))

    def stale(self, names: Iterable[str]) -> set[str]:
        """The names that stand for no test: of files that are gone, or that this run collected without them."""
        files = {test.split("::", 1)[0] for test in self.collected}
        if any("::" in argument for argument in self.config.args):
            files = set()
        known = self.collected | {function_of(test) for test in self.collected}
        return {
            name
            for name in names
            if not (self.config.rootpath / name.split("::", 1)[0]).is_file()
            or (name.split("::", 1)[0] in files and name not in known)
        }

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        write: Callable[..., None] = terminalreporter.write_line
        record = keep_record(self.measured)
        if self.config.option.update_slow:
            stale = self.stale({**self.listed, **record})
            known = {test: seconds for test, seconds in record.items() if test not in stale}
            new = renewed(self.listed, known, stale)
            LIST.write_text(text_of(new), encoding="utf-8")
            write(f"{LIST.name}: {len(self.listed)} lines, now {len(new)}")
        elif told := {t: s for t, s in self.measured.items() if s > TOLD_SECONDS and not is_slow(t, self.listed)}:
            write(f"slow, and not in {LIST.name}: make them faster, or list them (pytest FILE --update-slow)")
            for test, seconds in sorted(told.items(), key=lambda entry: -entry[1]):
                write(f"  {seconds:.1f} CPU s  {test}")
        if self.left_out:
            what = " and ".join(f"{count} {kind}" for kind, count in self.left_out.items())
            write(f"left out by --fast: {what} (--sweep-seed {self.config.option.sweep_seed}); make test-all runs them")
        if len(self.measured) > 100:
            write(f"{sum(self.measured.values()):.0f} CPU seconds in {len(self.measured)} tests that passed")


def add_options(parser: pytest.Parser) -> None:
    """The options of both tiers."""
    parser.addoption("--fast", action="store_true", help="leave out slow tests and most of each sweep")
    parser.addoption("--update-slow", action="store_true", help="renew tests/slow.txt by what runs here measured")
    day = time.time() // 86400
    parser.addoption("--sweep-seed", type=int, default=int(day), help="what --fast chooses from sweeps by; today's day")


def register(config: pytest.Config) -> None:
    """Measure this run's tests, and leave out what its options say."""
    config.pluginmanager.register(Measurement(), "cpu-seconds")
    config.pluginmanager.register(Tier(config), "tier")
