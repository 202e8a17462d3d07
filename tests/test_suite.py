"""The tests' own machinery: what `make test` leaves out, how that list is renewed, and how many tests may skip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.slow_tests import is_slow, read_list, renewed, sample_sweeps, text_of

CONFTEST = Path(__file__).resolve().with_name("conftest.py")


def run_pytest(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "NPU_MEMPLAN_MOST_SKIPPED"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *options, str(folder)]
    return subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("most, code", [(None, 0), ("2", 0), ("1", 1)])
def test_more_skips_than_expected_fail(most: str | None, code: int, tmp_path: Path) -> None:
    hook = CONFTEST.read_text(encoding="utf-8").split("def pytest_sessionfinish")[1].split("@pytest")[0]
    (tmp_path / "conftest.py").write_text(f"import os\nimport pytest\n\n\ndef pytest_sessionfinish{hook}")
    (tmp_path / "test_it.py").write_text(
        "import pytest\ndef test_a(): pytest.skip('x')\ndef test_b(): pytest.skip('x')\ndef test_c(): pass\n"
    )
    done = run_pytest(tmp_path, **({} if most is None else {"NPU_MEMPLAN_MOST_SKIPPED": most}))
    assert done.returncode == code, done.stdout


TESTS = """
import time
import pytest

@pytest.fixture(scope="module")
def shared():
    burn({shared})

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

def test_slow(): burn({slow})
def test_of_two(shared): pass
def test_of_the_same(shared): pass
@pytest.mark.parametrize("i", range(50))
def test_swept(i): pass
"""
PLUGIN = """
import pathlib
import sys
sys.path.insert(0, {root!r})
from tests.support import slow_tests
slow_tests.LIST = pathlib.Path({list!r})
slow_tests.SLOW_SECONDS = slow_tests.TOLD_SECONDS = 0.2
def pytest_addoption(parser): slow_tests.add_options(parser)
def pytest_configure(config): slow_tests.register(config)
"""


def test_a_slow_test_is_told_then_listed_then_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "slow.txt"
    plugin = PLUGIN.format(root=str(CONFTEST.parents[1]), list=str(listed))
    (tmp_path / "conftest.py").write_text(plugin)
    (tmp_path / "test_it.py").write_text(TESTS.format(slow=0.3, shared=0.3))
    first = run_pytest(tmp_path, "--fast", "--sweep-seed", "3").stdout
    assert "13 passed, 40 deselected" in first
    assert "left out by --fast: 0 slow tests and 40 tests of sweeps (--sweep-seed 3)" in first
    assert "CPU s  test_it.py::test_slow" in first
    assert "test_of_two" not in first  # two tests share what the fixture took
    assert "53 passed" in run_pytest(tmp_path, "--update-slow").stdout
    assert [line.split()[1] for line in listed.read_text().splitlines()[2:]] == ["test_it.py::test_slow"]
    second = run_pytest(tmp_path, "--fast").stdout
    assert "12 passed, 41 deselected" in second
    assert "CPU s  test_it.py" not in second
    (tmp_path / "test_it.py").write_text(TESTS.format(slow=0, shared=0))
    run_pytest(tmp_path, "--update-slow")
    assert read_list(listed) == {}


@pytest.mark.parametrize(
    "listed, measured, stale, expected",
    [
        ({}, {"a::t": 1.9, "a::u": 2.1}, [], {"a::u": 2.1}),
        ({"a::t": 9.0}, {"a::t": 1.0}, [], {}),
        ({"a::t": 9.0, "b::t": 9.0}, {}, ["a::t"], {"b::t": 9.0}),
        ({}, {"a::t[x]": 3.0, "a::t[y]": 4.0}, [], {"a::t": 4.0}),
        ({}, {"a::t[x]": 3.0, "a::t[y]": 0.0}, [], {"a::t[x]": 3.0}),
        ({"a::t": 4.0}, {"a::t[x]": 3.0, "a::t[y]": 0.0}, [], {"a::t[x]": 3.0}),
        ({"a::t": 4.0}, {"a::t[x]": 3.0}, [], {"a::t": 4.0}),  # one of many says nothing of the rest
        ({"a::t[x]": 4.0}, {"a::t[y]": 3.0}, [], {"a::t[x]": 4.0, "a::t[y]": 3.0}),
    ],
)
def test_the_list_takes_what_was_measured(
    listed: dict[str, float], measured: dict[str, float], stale: Sequence[str], expected: dict[str, float]
) -> None:
    assert renewed(listed, measured, stale) == expected


def test_the_list_is_read_as_it_is_written(tmp_path: Path) -> None:
    listed = {"a.py::t[x y-1 2]": 2.5, "a.py::u": 30.0}
    (tmp_path / "list").write_text(text_of(listed))
    assert read_list(tmp_path / "list") == listed
    assert read_list(tmp_path / "none") == {}
    assert is_slow("a.py::u[1]", listed)
    assert not is_slow("a.py::t[x]", listed)


def test_a_seed_chooses_the_same_fifth_and_another_another() -> None:
    tests = [f"a.py::swept[{i}]" for i in range(103)] + [f"a.py::few[{i}]" for i in range(39)]
    out = sample_sweeps(tests, 5)
    assert len(out) == 103 - 21
    assert not any("few" in test for test in out)
    assert sample_sweeps(reversed(tests), 5) != sample_sweeps(tests, 6)
    assert sample_sweeps(list(tests), 5) == out
    covered = {test for seed in range(40) for test in set(tests) - sample_sweeps(tests, seed)}
    assert covered == set(tests)
