"""The C of the searches: built once, for everybody at the same time, and where it cannot be built the plan says so."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
import zipfile
from array import array
from pathlib import Path

import pytest

from npu_memplan.c_compiler import compiler_command
from npu_memplan.compiled import library
from npu_memplan.compiled.arrays import array_address, header_structure

REPOSITORY = Path(__file__).parents[2]

# a problem that first fit leaves above its bound
HARD = """
import json, sys
from random import Random
from npu_memplan.planners import plan
from npu_memplan.compiled import c_library
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
random = Random(3)
lives = [(at := random.randint(0, 30), at + random.randint(1, 15)) for _ in range(60)]
buffers = [Buffer(f"b{k}", 16 * random.randint(1, 900), (Lifetime(*life),)) for k, life in enumerate(lives)]
answer = plan(Problem(tuple(buffers), (Pool("m"),)), time_limit_s=float(sys.argv[1]), seed=1)
heavy = [m for m in ("numpy", "tvm", "ethosu") if m in sys.modules]
usage = answer.usage[0]
print(json.dumps([answer.status.value, usage.used_bytes / usage.lower_bound_bytes, answer.note, heavy]))
"""


def started(cache: Path, limit_s: float = 5.0, cwd: Path | None = None, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HARD, str(limit_s)],
        cwd=cwd,  # the first place of its imports
        env={**os.environ, "NPU_MEMPLAN_CACHE": str(cache), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def read_answer(process: subprocess.Popen[str]) -> list[object]:
    out, err = process.communicate()
    assert process.returncode == 0, err
    answer: list[object] = json.loads(out)
    return answer


def test_processes_build_at_the_same_time_and_leave_one_library(tmp_path: Path) -> None:
    cache = tmp_path / "new" / "cache"
    answers = [read_answer(process) for process in [started(cache) for _ in range(3)]]
    assert answers == [["optimal", 1.0, "", []]] * 3
    _, left = sorted(cache.iterdir())
    before = left.stat().st_mtime_ns
    assert read_answer(started(cache)) == answers[0]
    assert left.stat().st_mtime_ns == before


@pytest.mark.slow
@pytest.mark.parametrize("changed", [False, True])
def test_a_wheel_has_the_library_of_its_sources(tmp_path: Path, changed: bool) -> None:
    """It is loaded where there is no compiler; one of other sources is not."""
    wheel = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(wheel, cwd=REPOSITORY, check=True, timeout=240, capture_output=True)
    (built,) = tmp_path.glob("*-py3-none-linux_*.whl")
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "site")
    if changed:
        with (tmp_path / "site" / "npu_memplan" / "compiled" / "common.h").open("a") as header:
            header.write("/* another release */\n")
    status, _, note, _ = read_answer(started(tmp_path / "cache", cwd=tmp_path / "site", PATH=str(tmp_path), CC=""))
    assert ("no C compiler found" in str(note)) is changed
    assert (status == "optimal") is not changed
    assert not (tmp_path / "cache").exists()


def test_building_takes_nothing_off_a_time_limit(tmp_path: Path) -> None:
    """A limit that is over before a compiler has started: the search runs nevertheless."""
    status, ratio, note, _ = read_answer(started(tmp_path, 0.3))
    assert (status, ratio, note) == ("optimal", 1.0, "")


@pytest.mark.parametrize("state", ["read-only", "damaged"])
def test_a_cache_that_is_no_use_is_done_without(tmp_path: Path, state: str) -> None:
    cache = tmp_path / "cache"
    if state == "read-only":
        cache = Path("/proc/none")  # cannot be made, whoever asks
    else:
        cache.mkdir()
        (cache / f"searches-{library._library_key(compiler_command() or [])}.so").write_bytes(b"no library")
    assert read_answer(started(cache)) == ["optimal", 1.0, "", []]


@pytest.mark.parametrize("wrong", ["content", "link", "mode", "folder", "truncated"])
def test_a_library_that_others_may_have_written_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    """It is built anew: loading what lies there would run it."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("NPU_MEMPLAN_CACHE", str(cache))
    library._open_library()
    digest, kept = sorted(cache.iterdir())
    assert library._is_whole(kept)
    if wrong == "content":
        kept.write_bytes(kept.read_bytes() + b"more")
    elif wrong == "truncated":
        kept.write_bytes(kept.read_bytes()[:5000])
    elif wrong == "link":
        kept.rename(tmp_path / "elsewhere.so")
        kept.symlink_to(tmp_path / "elsewhere.so")
    elif wrong == "mode":
        kept.chmod(0o777)
    else:
        cache.chmod(0o777)
    built: list[Path] = []
    build = library._build_library
    monkeypatch.setattr(
        library, "_build_library", lambda command, target: (built.append(target), build(command, target))
    )
    library._open_library()
    assert len(built) == 1
    assert (built[0].parent.parent == cache) == (wrong != "folder")
    assert digest.is_file()


# Builds slowly, of `sys.argv[1]`, a library like it with other bytes; ends itself before the step `sys.argv[2]` of
# putting it into the cache, if there are so many.
BUILDER = """
import os, signal, sys, time
from pathlib import Path
from npu_memplan.compiled import library
whole, last = Path(sys.argv[1]).read_bytes(), int(sys.argv[2])

def build(command, target):
    content = whole + os.urandom(64)
    with open(target, "wb", buffering=0) as file:
        for at in range(0, len(content), len(content) // 8):
            file.write(content[at : at + len(content) // 8])
            time.sleep(0.01)

def counted(step):
    def method(*values, **named):
        global last
        last -= 1
        if last == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return step(*values, **named)
    return method

library._build_library = build
for name in ("write_text", "chmod", "replace"):
    setattr(Path, name, counted(getattr(Path, name)))
loaded = library._open_library()
assert loaded.npu_memplan_stack and loaded.npu_memplan_prefetch
print("loaded")
"""


@pytest.fixture(scope="module")
def whole_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("whole") / "searches.so"
    library._build_library(compiler_command() or [], target)
    return target


def builder(cache: Path, whole: Path, last_step: int = 0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(whole), str(last_step)],
        env={**os.environ, "NPU_MEMPLAN_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("before", [False, True], ids=["empty", "damaged"])
def test_a_writer_that_is_killed_at_any_step_leaves_nothing_that_is_loaded(
    tmp_path: Path, whole_library: Path, before: bool
) -> None:
    """Between the library and its digest, too."""
    cache = tmp_path / "cache"
    for last in range(1, 7):
        if before and cache.is_dir():
            for kept in cache.glob("*.so"):
                kept.write_bytes(whole_library.read_bytes()[: 1000 * last])
        killed = builder(cache, whole_library, last)
        killed.communicate()
        assert killed.returncode == (-9 if last < 6 else 0), "five steps put a library into the cache"
        if last < 5:
            assert not any(library._is_whole(kept) for kept in cache.glob("*.so"))
    out, err = builder(cache, whole_library).communicate()
    assert out == "loaded\n", err
    assert {path.suffix for path in cache.iterdir()} == {".so", ".sha256"}, "of killed writers nothing is left"


def test_processes_that_build_and_are_killed_at_once_load_whole_libraries(tmp_path: Path, whole_library: Path) -> None:
    cache, chance = tmp_path / "cache", random.Random(5)
    running = [builder(cache, whole_library, chance.choice((0, 0, 1, 2, 3, 4, 5))) for _ in range(12)]
    for process in running[::4]:
        time.sleep(chance.uniform(0.0, 0.1))
        process.kill()
    for process in running:
        out, err = process.communicate()
        assert (process.returncode, out) == (0, "loaded\n") or process.returncode == -9, err
    out, err = builder(cache, whole_library).communicate()
    assert out == "loaded\n", err
    (kept,) = cache.glob("*.so")
    assert library._is_whole(kept)


def test_without_a_compiler_the_plan_says_what_is_missing(tmp_path: Path) -> None:
    status, ratio, note, _ = read_answer(started(tmp_path, 0.5, CC="no-such-compiler"))
    assert status == "feasible"
    assert 1.0 < float(str(ratio)) < 1.3
    assert note == (
        "the compiled searches are not available: no C compiler found (CC names 'no-such-compiler', which is not"
        " on PATH); set CC, or install one (e.g. apt install gcc, or pip install ziglang)"
    )
    assert not list(tmp_path.iterdir())


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\necho 'cc: error: no headers' >&2\nexit 1\n")
    script.chmod(0o755)
    _, _, note, _ = read_answer(started(tmp_path / "cache", 0.5, CC=str(script)))
    assert note == f"the compiled searches are not available: {script} could not compile the searches: " + (
        "cc: error: no headers"
    )


def test_every_source_is_c_that_compilers_have_nothing_to_say_about(tmp_path: Path) -> None:
    command = compiler_command()
    if command is None:
        pytest.skip("needs a C compiler")
    sources = library.sources()
    assert len([path for path in sources if path.suffix == ".c"]) >= 10
    folders = {f"-I{path.parent}" for path in sources}
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-fsyntax-only"]
    files = [str(path) for path in sources if path.suffix == ".c"]
    done = subprocess.run([*command, *flags, *folders, *files], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_another_compiler_or_source_is_another_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable]
    key = library._library_key(command)
    assert library._library_key(command) == key
    assert library._library_key([*command, "-g"]) != key
    changed = tmp_path / "fill.c"
    shutil.copy(next(path for path in library.sources() if path.name == "fill.c"), changed)
    changed.write_text(changed.read_text() + "\n")
    others = [path for path in library.sources() if path.name != "fill.c"]
    monkeypatch.setattr(library, "sources", lambda: sorted([*others, changed]))
    assert library._library_key(command) != key


def test_c_gets_what_it_expects_or_nothing() -> None:
    with pytest.raises(TypeError, match="C expects elements of type 'q', not 'i'"):
        array_address(array("i", [1]), "q")
    assert array_address(array("q"), "q") is None


def test_a_structure_is_what_its_header_says() -> None:
    assert header_structure("planners/general/distances.h", "Task").members == {
        "ceiling": "q",
        "nodes": "q",
        "trust": "d",
        "free": "b*",
        "chance": "Q*",
        "origin": "q*",
        "spent": "q",
    }
    assert list(header_structure("planners/exact/fill.h", "Graph").members)[:4] == [
        "items",
        "sections",
        "size",
        "align",
    ]


def test_each_step_of_a_search_fits_a_screen() -> None:
    for path in library.sources():
        start = 0
        for number, line in enumerate(path.read_text().splitlines(), 1):
            start = number if re.match(r"\w.*\) \{$", line) else start
            assert line != "}" or number - start < 60, f"{path.name}:{start}"
