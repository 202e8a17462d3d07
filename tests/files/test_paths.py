"""Which files are read; what is in the way inside of a stranger's folder."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import ArtifactError
from npu_memplan.compiler import compile_model
from npu_memplan.files.folders import NOTE, remove, scratch_folder
from npu_memplan.files.paths import (
    FolderError,
    OutputError,
    check_folder,
    copy_folder,
    encode_c,
    read_bytes,
    read_c,
    read_text,
    write_files,
    write_inside,
)
from npu_memplan.options import CompileOptions
from tests.support.entry import invoke

MODEL = Path(__file__).resolve().parents[1] / "models" / "hello_world_int8.tflite"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(path))  # a path of a socket has 108 bytes at most


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nowhere")


def link_inside(path: Path) -> None:
    path.symlink_to("plan.json")


def link_to_a_folder(path: Path) -> None:
    path.symlink_to("..")


STRANGE = [pipe, bound_socket, link, link_to_nothing, link_inside, link_to_a_folder]


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\r\ny\xff")
    (tmp_path / "b").symlink_to("a")  # what the user names may be one
    assert read_bytes(tmp_path / "b") == b"x\r\ny\xff"
    assert encode_c(read_c(tmp_path / "a")) == b"x\ny\xff"
    assert read_text("/proc/self/comm")
    with pytest.raises(UnicodeDecodeError):
        read_text(tmp_path / "a")


def test_no_more_than_the_limit(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(10))
    assert read_bytes(tmp_path / "a", 10) == bytes(10)
    with pytest.raises(OSError, match="it has more than 9 bytes"):
        read_bytes(tmp_path / "a", 9)


@pytest.mark.parametrize(("name", "what"), [("/dev/zero", "a device"), ("/dev/null", "a device"), ("fifo", "a pipe")])
def test_nothing_is_waited_for(tmp_path: Path, name: str, what: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(OSError, match=f"it is {what}, and only files are read"):
        read_bytes(tmp_path / name)
    with pytest.raises(IsADirectoryError):
        read_bytes(tmp_path)


COMMANDS = [
    "compile {} --accelerator none -o out", "compile {} -o out", "plan {}", "verify {} {}", "report {}", "run {}",
    "report {} --plan {}", "simulate {}", "disassemble {}", "check {} --board corstone-300-u55", "boards {}",
    "operators --model {}", "link a={} -o out", "explain {}", "new-firmware out --board corstone-300-u55 --model {}",
    "compile {model} -o out --board {}", "compile {model} -o out --vela-ini {}",
    "compile {model} -o out --host-ops {}",
    "run {art} --input {}", "run {art} --reference {}", "run --elf {} --board corstone-300-u55",
    "evidence --show {}", "diff {} {art}", "sweep {} -o out",
    "explore {} -o out", "fvp FVP_Corstone_SSE-300_Ethos-U55 -a {}", "tvmc compile {} --target ethos-u,c -o out",
]  # fmt: skip


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "hello"
    compile_model(MODEL, CompileOptions("none"), folder)
    return folder


@pytest.mark.parametrize("suffix", ["", ".tflite", ".onnx", ".json", ".csv", ".toml"])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_waits_for_a_pipe(
    command: str, suffix: str, artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo(f"pipe{suffix}")
    words = command.replace("{}", f"pipe{suffix}").format(model=MODEL, art=artifact).split()
    ended = invoke(*words, code=None)
    assert_refused(ended)
    assert [path.name for path in tmp_path.iterdir()] == [f"pipe{suffix}"]


def assert_refused(ended: Result) -> None:
    """Nothing but a user's error, as `npu_memplan.cli` tells it."""
    from npu_memplan.errors import NpuMemplanError

    assert ended.exit_code == 2 or isinstance(ended.exception, NpuMemplanError | OSError), ended.exception


@pytest.mark.parametrize("put", STRANGE)
@pytest.mark.parametrize(
    "place", ["x", "src/x", "src/deep/x", "report.html", "manifest.sha256", "plan.json", "firmware"]
)
def test_a_folder_has_files_alone(
    artifact: Path, put: Callable[[Path], None], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "stranger"
    shutil.copytree(artifact, folder)
    check_folder(folder)
    (folder / place).parent.mkdir(exist_ok=True)
    (folder / place).unlink(missing_ok=True)
    put(folder / place)
    before = sorted(os.listdir(folder))
    with pytest.raises(FolderError, match=f"{place} is a (link|pipe|socket)"):
        check_folder(folder)
    with pytest.raises(FolderError):
        copy_folder(folder, tmp_path / "copy")
    for command in ("report", "report -o out", "run", "explain", "new-firmware out --board corstone-300-u55 --model"):
        words = command.split()
        assert_refused(invoke(words[0], *words[1:], "stranger", code=None))
        assert sorted(os.listdir(folder)) == before
        assert [path.name for path in tmp_path.iterdir()] == ["stranger"]


@pytest.mark.parametrize("name", [b"m\xff.c", b"a\nb", b"\x1b[2K"])
def test_a_name_in_a_folder_is_text(artifact: Path, name: bytes, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "a")
    (tmp_path / "a" / os.fsdecode(name)).write_bytes(b"")
    with pytest.raises(FolderError, match="has a name that is no text"):
        Artifact.load(tmp_path / "a")


def test_a_damaged_stream_is_refused(tmp_path: Path) -> None:
    compile_model(MODEL, CompileOptions(npu_compiler="tvm", effort="quick"), tmp_path / "a")
    (source,) = (tmp_path / "a" / "src").glob("*_npu.c")
    for damage in (b"0x1\xff", b"0x123456789", b"x"):
        source.write_bytes(source.read_bytes().replace(b"0x", damage, 1))
        for command in ("report", "explain"):
            ended = invoke(command, tmp_path / "a", code=None)
            assert isinstance(ended.exception, ArtifactError)
            assert "is no word of 32 bits" in str(ended.exception)


@pytest.mark.parametrize("put", STRANGE)
def test_nothing_is_written_through_it(artifact: Path, put: Callable[[Path], None], tmp_path: Path,
                                       monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text("the user's")
    put(tmp_path / "buffers.csv")
    with pytest.raises(FolderError, match=r"buffers\.csv is a"):
        write_inside(tmp_path, "buffers.csv", b"")
    ended = invoke("report", artifact, "-o", tmp_path, code=None)
    assert isinstance(ended.exception, FolderError)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["buffers.csv", "plan.json"]
    assert (tmp_path / "plan.json").read_text() == "the user's"


def test_a_link_that_comes_meanwhile_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "victim"
    victim.write_text("the user's")
    (tmp_path / "a").symlink_to(victim)
    monkeypatch.setattr("npu_memplan.files.paths._check_kind", lambda *_: None)
    write_inside(tmp_path, "a", b"new")
    assert (victim.read_text(), (tmp_path / "a").is_symlink()) == ("the user's", False)


def test_a_pipe_by_the_name_of_a_part_is_not_waited_for(artifact: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".report.html.01234567.part")
    ended = invoke("report", artifact, "-o", tmp_path, code=None)
    assert (ended.exit_code, (tmp_path / "report.html").is_file()) == (0, True), ended.output


def test_a_pipe_in_a_folder_by_the_name_of_ours_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "npu_memplan-x-0").mkdir()
    os.mkfifo(tmp_path / "npu_memplan-x-0" / NOTE)
    with scratch_folder("x", tmp_path) as folder:
        assert folder.is_dir()
    assert [path.name for path in tmp_path.iterdir()] == ["npu_memplan-x-0"]


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    """A list of a stranger's may name files of the user that it has the digests of."""
    (tmp_path / "users").mkdir()
    (tmp_path / "users" / "a").write_bytes(b"known")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "b").write_bytes(b"ours")
    (tmp_path / "out" / "src").symlink_to("../users")
    digests = {"src/a": hashlib.sha256(b"known"), "b": hashlib.sha256(b"ours")}
    lines = ["# written by npu_memplan: a compiled model", *(f"{d.hexdigest()}  {name}" for name, d in digests.items())]
    (tmp_path / "out" / "manifest.sha256").write_text("\n".join(lines))
    with pytest.raises(NotADirectoryError):
        remove(tmp_path / "out")
    assert (tmp_path / "users" / "a").read_bytes() == b"known"
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["src"]


def test_files_that_cannot_be_written_leave_no_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        write_files(tmp_path / "deep" / "out", {"a": b"", "b/c": b""})
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputError):
        write_files(tmp_path / "there" / "out", {"b/c": b""})
    assert list(tmp_path.iterdir()) == [tmp_path / "there"]


def test_a_copy_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk is told of in one line, not as Python's list of all files."""

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("x")
    monkeypatch.setattr(shutil.copytree, "__defaults__", (False, None, fail, False, False))
    with pytest.raises(OutputError, match=re.escape("cannot write ") + ".*/b: .*No space left on device; choose"):
        copy_folder(tmp_path / "a", tmp_path / "b")


def test_a_report_that_fails_leaves_no_folder(artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> str:
        raise FolderError("the page cannot be made")

    monkeypatch.setattr("npu_memplan.report.files.html_report", fail)
    ended = invoke("report", artifact, "-o", tmp_path / "new", code=None)
    assert isinstance(ended.exception, FolderError)
    assert list(tmp_path.iterdir()) == []


def test_c_with_bytes_that_are_no_text_is_run(artifact: Path, tmp_path: Path) -> None:
    shutil.copytree(artifact, tmp_path / "a")
    for source in (tmp_path / "a" / "src").glob("*.[ch]"):
        source.write_bytes(source.read_bytes() + b"/* \xff\xfe */\n")
    for words in (["run"], ["run", "--layers", "--reference", str(MODEL)], ["run", "--sanitize"], ["report"]):
        ended = invoke(*words, tmp_path / "a", code=None)
        assert (ended.exit_code, ended.exception) == (0, None), ended.output


def test_an_artifact_is_loaded_from_a_link_of_the_users(artifact: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").symlink_to(artifact)
    assert Artifact.load(tmp_path / "mine").name == "hello_world_int8"


def test_a_file_that_has_nothing_to_read_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /proc/kmsg, which says that it is a file."""
    reading, _ = os.pipe2(os.O_NONBLOCK)
    monkeypatch.setattr("npu_memplan.files.paths.open_file", lambda _: os.fdopen(reading, "rb"))
    with pytest.raises(OSError, match="it has nothing to read now"):
        read_bytes(tmp_path / "a")
