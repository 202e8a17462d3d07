"""A compile that was done before: the same files without TVM, and never from what somebody else wrote."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan import cache
from npu_memplan.artifact.model import CheckResult, CheckVerdict
from npu_memplan.cache import CacheError, ProgramCache, program_cache
from npu_memplan.compiler import plan_model
from npu_memplan.files.folders import ContentStore
from npu_memplan.options import FORMS, CompileOptions
from npu_memplan.planners import registry

# `npu-memplan` with its arguments; then whether TVM was imported, and Vela
COMPILE = """
import sys
from npu_memplan import cli
try:
    cli.main()
finally:
    print("imported:", sorted({"tvm", "ethosu"} & set(sys.modules)))
"""
SETTINGS = "--accelerator", "ethos-u55-128", "--effort", "quick"


def compiled(
    cache: Path, model: Path, output: Path, *more: str, check: str = "never", size: str = ""
) -> tuple[str, dict[str, bytes]]:
    """What a process prints, but for the place it writes to, and the files that it writes."""
    environment = {"NPU_MEMPLAN_CACHE": str(cache), "NPU_MEMPLAN_PROGRAM_CACHE": size, "NPU_MEMPLAN_CHECK": check}
    words = [sys.executable, "-c", COMPILE, "compile", str(model), "-o", str(output), *SETTINGS, *more]
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    files = {str(path.relative_to(output)): path.read_bytes() for path in output.rglob("*") if path.is_file()}
    return done.stdout.replace(str(output), "OUTPUT"), files


def entries(cache: Path) -> list[Path]:
    return sorted((cache / "programs").glob("*"))


def test_a_second_process_writes_the_same_files_without_tvm(
    shared_model: Callable[[str], Path], tmp_path: Path
) -> None:
    model, cache = shared_model("kws_ref_model"), tmp_path / "cache"
    without = compiled(cache, model, tmp_path / "0", size="off", check="auto")
    assert not (cache / "programs").exists()
    first = compiled(cache, model, tmp_path / "1", check="auto")
    kept = entries(cache)
    again = compiled(cache, model, tmp_path / "2", check="auto")
    assert first == without
    assert "checked on 2 inputs" in first[0]
    assert "imported: ['ethosu', 'tvm']" in first[0]
    assert "imported: []" in again[0]
    assert again == (first[0].replace("['ethosu', 'tvm']", "[]"), first[1])
    assert compiled(cache, model, tmp_path / "3", "--no-cache", check="auto") == first
    assert entries(cache) == kept
    assert len(kept) == 2, "the program and its check"
    assert all(path.stat().st_mode & 0o77 == 0 for path in (*kept, cache / "programs"))


@pytest.fixture(scope="module")
def compiled_once(
    shared_model: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, dict[str, bytes]]:
    """A cache with one program and another one of other options, what the compile of the first printed and wrote."""
    folder, model = tmp_path_factory.mktemp("once"), shared_model("hello_world_int8")
    printed, files = compiled(folder / "cache", model, folder / "1")
    (entry,) = entries(folder / "cache")
    compiled(folder / "cache", model, folder / "2", "--objective", "bytes", "--effort", "quick")
    entry.rename(folder / "cache" / "programs" / f"first{entry.name}")
    return folder / "cache", printed, files


@pytest.mark.parametrize("damage", ["a byte", "half", "another entry", "writable", "link", "folder"])
def test_what_is_not_whole_or_not_ours_is_compiled_again(
    compiled_once: tuple[Path, str, dict[str, bytes]], shared_model: Callable[[str], Path], tmp_path: Path, damage: str
) -> None:
    cache = Path(shutil.copytree(compiled_once[0], tmp_path / "cache"))
    (first,) = (path for path in entries(cache) if path.name.startswith("first"))
    entry = first.rename(first.with_name(first.name.removeprefix("first")))
    content = entry.read_bytes()
    if damage == "writable":
        entry.chmod(0o666)
    elif damage == "another entry":
        (other,) = set(entries(cache)) - {entry}
        entry.write_bytes(other.read_bytes())
    elif damage == "link":
        entry.rename(tmp_path / "elsewhere")
        entry.symlink_to(tmp_path / "elsewhere")
    elif damage == "folder":
        entry.parent.chmod(0o777)
    else:
        entry.write_bytes(content[: len(content) // 2] if damage == "half" else content[:-1] + bytes([content[-1] ^ 1]))
    printed = compiled(cache, shared_model("hello_world_int8"), tmp_path / "2")
    assert printed == compiled_once[1:], "compiled, and TVM imported for it"
    assert entry.read_bytes() == content
    assert not entry.is_symlink()
    assert entry.stat().st_mode & 0o77 == 0


def test_it_is_off_where_the_environment_says_so(shared_model: Callable[[str], Path], tmp_path: Path) -> None:
    compiled(tmp_path / "cache", shared_model("hello_world_int8"), tmp_path / "1", size="off")
    assert not (tmp_path / "cache" / "programs").exists()


def keys(model: Path, every: Iterable[CompileOptions]) -> list[str | None]:
    return [cache._program_key(model, options, "") for options in every]


def test_all_that_a_program_depends_on_is_in_its_key(
    shared_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model.tflite"
    model.write_bytes(shared_model("hello_world_int8").read_bytes())
    (tmp_path / "mine.ini").write_text("[a]")
    usual = CompileOptions(vela_ini=str(tmp_path / "mine.ini"))
    known = {cache._program_key(model, usual, ""), cache._program_key(model, usual, "sram")}
    known |= set(keys(model, [replace(usual, effort="quick"), replace(usual, pools={"sram": 4096})]))
    (tmp_path / "mine.ini").write_text("[b]")
    known |= set(keys(model, [usual]))
    model.write_bytes(model.read_bytes() + b"\0")
    known |= set(keys(model, [usual]))
    known |= set(keys(model.rename(tmp_path / "other.tflite"), [usual]))
    model = tmp_path / "other.tflite"
    monkeypatch.setattr(cache, "versions", lambda run: (("npu_memplan", "9"),))
    known |= set(keys(model, [usual]))
    assert len(known) == 8
    assert None not in known


@pytest.mark.parametrize("name", ["mine.ini", "mine.cfg", "mine", "mine.ini.2"])
def test_a_file_counts_by_its_content_whatever_it_is_called(
    shared_model: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    model, file = shared_model("hello_world_int8"), tmp_path / name
    file.write_text("[a]")
    before = keys(model, [CompileOptions(vela_ini=str(file))])
    file.write_text("[b]")
    assert keys(model, [CompileOptions(vela_ini=str(file))]) != before
    assert keys(model, [CompileOptions(vela_ini=str(tmp_path))]) == [None], "what cannot be read is not kept"


def test_every_option_that_names_a_file_is_known(shared_model: Callable[[str], Path], tmp_path: Path) -> None:
    """An option of `compile` with a file or a folder changes the key with the content, or nothing is kept."""
    board = (Path(__file__).parents[2] / "targets" / "boards" / "alif-e3-hp.toml").read_text()
    (tmp_path / "mine.toml").write_text(board)
    (tmp_path / "file").write_text("[a]")
    named = {"vela_ini": str(tmp_path / "file"), "board": str(tmp_path / "mine.toml"), "operators": ("file",),
             "host_kernels": f"cmsis-nn={tmp_path}"}  # fmt: skip
    with_files = {
        name for name, form in FORMS.items() if any(word in form.metavar for word in ("FILE", "DIR", ".toml"))
    }
    assert with_files == named.keys()
    model = shared_model("hello_world_int8")
    for field, value in named.items():
        options = replace(CompileOptions("ethos-u55-256"), **{field: value})
        before = keys(model, [options])
        for file in tmp_path.iterdir():
            file.write_text(file.read_text() + "\n")
        assert before == [None] or keys(model, [options]) != before, field


def test_what_depends_on_more_is_not_kept(
    shared_model: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._PLANNERS, "of a test", lambda *_: [])
    model, usual = shared_model("hello_world_int8"), CompileOptions()
    more = [replace(usual, time_limit_s=9.0), replace(usual, operators=("a.py",)), replace(usual, planner="of a test")]
    assert keys(model, more) == [None, None, None]
    assert keys(tmp_path / "absent.tflite", [usual]) == [None]
    (tmp_path / "model.onnx").write_bytes(b"... location weights.bin")
    assert keys(tmp_path / "model.onnx", [usual]) == [None]


def test_trials_and_compiles_share_what_they_made(shared_model: Callable[[str], Path], tmp_path: Path) -> None:
    cache, model = ProgramCache(ContentStore(tmp_path, 1 << 20)), shared_model("hello_world_int8")
    options = CompileOptions("ethos-u55-128", effort="quick")
    made = plan_model(model, options, cache=cache)
    known = plan_model(model, options, cache=cache)
    assert made.module is not None
    assert known.module is None
    assert (known.artifact, known.script) == (made.artifact, made.script)
    assert (known.sources.texts, known.sources.files) == (made.sources.texts, made.sources.files)
    other = replace(options, pools={"sram": 1 << 20})
    assert plan_model(model, other, cache=cache).module is not None, "another question"


def test_only_checks_that_found_nothing_wrong_are_kept(shared_model: Callable[[str], Path], tmp_path: Path) -> None:
    cache = ProgramCache(ContentStore(tmp_path, 1 << 20))
    options = CompileOptions("ethos-u55-128", objective="bytes", effort="quick")
    artifact = plan_model(shared_model("hello_world_int8"), options).artifact
    wrong, right = CheckResult(CheckVerdict.DIFFERS), CheckResult(CheckVerdict.EQUAL, runner="local", elements=3)
    assert cache.get_check(artifact, ("auto", 1), lambda: wrong) is wrong
    assert cache.get_check(artifact, ("auto", 1), lambda: right) is right
    assert cache.get_check(artifact, ("auto", 1), lambda: wrong) == right
    assert cache.get_check(artifact, ("always", 1), lambda: wrong) is wrong
    assert cache.get_check(replace(artifact, notes=("x",)), ("auto", 1), lambda: wrong) is wrong


def test_the_store_keeps_to_its_size(tmp_path: Path) -> None:
    store = ContentStore(tmp_path / "store", 1000)
    for number in range(8):
        store.write(f"k{number}", bytes(200))
        os.utime(tmp_path / "store" / f"k{number}.entry", (number, number))
        assert store.read("k0") == bytes(200), "used, so it stays"
        os.utime(tmp_path / "store" / "k0.entry", (100, 100))
    kept = {path.stem for path in (tmp_path / "store").iterdir()}
    assert kept == {"k0", "k5", "k6", "k7"}
    store.write("large", bytes(2000))
    assert store.read("large") is None
    assert store.read("k0") is not None


def test_sizes_of_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NPU_MEMPLAN_CACHE", str(tmp_path))
    monkeypatch.setenv(cache.VARIABLE, "64KiB")
    assert program_cache() == ProgramCache(ContentStore(tmp_path / "programs", 65536))
    monkeypatch.setenv(cache.VARIABLE, "off")
    assert program_cache() is None
    monkeypatch.delenv(cache.VARIABLE)
    found = program_cache()
    assert found is not None
    assert found.store.max_bytes == 512 << 20
    monkeypatch.setenv(cache.VARIABLE, "plenty")
    with pytest.raises(CacheError, match="NPU_MEMPLAN_PROGRAM_CACHE"):
        program_cache()
