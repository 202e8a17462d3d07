"""The tests' own machinery: what `make test` leaves out, how that list is renewed, and how many tests may skip."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.mutations import FAULTS, Fault
from tests.support.needs import cause_of
from tests.support.slow_tests import is_slow, read_list, renewed, sample_sweeps, text_of

ROOT = Path(__file__).resolve().parents[1]
SKIPS = """
import sys
sys.path.insert(0, {root!r})
from tests.support.needs import Skips
def pytest_configure(config): config.pluginmanager.register(Skips())
"""


def run_pytest(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The tests of `folder`, or those that `options` name."""
    environment = {name: value for name, value in os.environ.items() if name != "NPU_MEMPLAN_MOST_SKIPPED"}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:xdist", *options]
    return subprocess.run(command, cwd=folder, env=environment | variables, capture_output=True, text=True, check=False)


SKIPPED = """
import pytest
def test_a(): pytest.skip('needs onnx (pip)')
def test_b(): pytest.skip('onnx is missing')
def test_c(): pass
"""


@pytest.mark.parametrize("most, code", [(None, 0), ("2", 0), ("1", 1)])
def test_more_skips_than_expected_fail(most: str | None, code: int, tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(SKIPS.format(root=str(ROOT)))
    (tmp_path / "test_it.py").write_text(SKIPPED)
    done = run_pytest(tmp_path, **({} if most is None else {"NPU_MEMPLAN_MOST_SKIPPED": most}))
    assert done.returncode == code, done.stdout
    assert "skipped for want of: 2 onnx" in done.stdout


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
slow_tests.RECORD = slow_tests.LIST.with_name("seconds.tsv")
slow_tests.SLOW_SECONDS = slow_tests.TOLD_SECONDS = 0.2
def pytest_addoption(parser): slow_tests.add_options(parser)
def pytest_configure(config): slow_tests.register(config)
"""


def test_a_slow_test_is_told_then_listed_then_left_out(tmp_path: Path) -> None:
    listed = tmp_path / "slow.txt"
    plugin = PLUGIN.format(root=str(ROOT), list=str(listed))
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
    (tmp_path / "test_it.py").write_text("def test_other(): pass")
    run_pytest(tmp_path, "--update-slow")
    assert read_list(listed) == {}


@pytest.mark.parametrize(
    "listed, measured, stale, expected",
    [
        ({}, {"a::t": 0.5, "a::u": 0.7}, [], {"a::u": 0.7}),
        ({"a::t": 9.0}, {"a::t": 0.5}, [], {}),
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


@pytest.mark.parametrize(
    "reason, cause",
    [
        ("needs cmake (apt-get install cmake)", "cmake"),
        ("the compiler arm-none-eabi-gcc is not on PATH; install it with: x", "arm-none-eabi-gcc"),
        ("could not import 'executorch.runtime': No module named 'executorch'", "executorch"),
        ("needs /a/onnx.tflite (set NPU_MEMPLAN_SHARED)", "data outside of the repository"),
        ("Skipped: this machine's pointers have 64 bits", "this machine's pointers have 64 bits"),
    ],
)
def test_a_skip_is_counted_by_what_is_missing(reason: str, cause: str) -> None:
    assert cause_of(reason) == cause


def fake_programs(folder: Path, **programs: str) -> Path:
    folder.mkdir()
    for name, script in programs.items():
        (folder / name.replace("_", "-")).write_text(f"#!/bin/bash\n{script}\n")
        (folder / name.replace("_", "-")).chmod(0o755)
    return folder


INSTALLED = 'for p; do case $p in -*|clang) ;; *) echo "$p installed";; esac; done'  # all but clang


@pytest.mark.parametrize(
    "user, sudo, setup, code, said",
    [
        ("0", "exit 1", "", 0, "apt-get install -y -qq --no-install-recommends clang"),
        ("7", '[ "$1" = -n ] && shift && exec "$@"', "", 0, "apt-get install -y -qq --no-install-recommends clang"),
        ("7", "exit 1", "", 0, "not installed: clang; tests that need them skip"),
        ("0", "exit 1", "no", 0, "not installed: clang; tests that need them skip"),
        ("0", "exit 1", "must", 1, "apt-get install -y -qq --no-install-recommends clang"),
        ("7", "exit 1", "must", 1, "not installed: clang; tests that need them skip"),
    ],
)
def test_missing_packages_are_installed_where_that_is_allowed(
    user: str, sudo: str, setup: str, code: int, said: str, tmp_path: Path
) -> None:
    programs = fake_programs(
        tmp_path / "bin", dpkg_query=INSTALLED, id=f"echo {user}", sudo=sudo, apt_get='echo apt-get "$@"'
    )
    environment = os.environ | {"PATH": f"{programs}:/usr/bin:/bin", "SETUP": setup}
    done = subprocess.run([str(ROOT / ".ci" / "setup")], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert said in done.stdout


# each runs a program of firmware where it can
STRANGER = [f"tests/pipeline/test_{name}.py" for name in ("constant_pools", "resident")]


def test_nothing_fails_without_cross_compiler_and_data(tmp_path: Path) -> None:
    """As on a machine that has Python, a C compiler and make; a job of hosted CI runs all of `make test` so."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in ("/usr/local/bin", "/usr/bin", "/bin"):
        for path in Path(folder).iterdir():
            if not path.name.startswith(("arm-none-eabi", "qemu", "chrom")) and not (programs / path.name).exists():
                (programs / path.name).symlink_to(path)
    done = run_pytest(ROOT, *STRANGER, "-k", "firmware", PATH=str(programs), NPU_MEMPLAN_SHARED=str(tmp_path / "none"))
    assert done.returncode == 0, done.stdout
    assert "skipped for want of: 2 arm-none-eabi-gcc" in done.stdout
    assert "not here, so that tests skip: arm-none-eabi-gcc, qemu-system-arm, chromium" in done.stdout


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_the_faults_of_make_mutations_can_be_put_in(fault: Fault) -> None:
    source = (ROOT / fault.file).read_text(encoding="utf-8")
    assert fault.mutated(source) != source
