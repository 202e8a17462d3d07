"""Output directories are complete or absent, and nothing that we did not write is ever removed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_memplan.files import folders
from npu_memplan.files.folders import OutputError, TakenError, scratch_folder, staged_directory
from npu_memplan.files.paths import lock_file, write_whole


def make(target: Path, text: str = "a", force: bool = False) -> None:
    """A small output: one file in a folder of its own."""
    with staged_directory(target, force) as staging:
        (staging / "src").mkdir()
        (staging / "src" / "a.c").write_text(text)


def tree(folder: Path) -> dict[str, bytes | None]:
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def test_success_moves_everything_at_once(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "out"
    with staged_directory(target) as staging:
        (staging / "a.txt").write_text("a")
        assert not target.exists()
    assert sorted(p.name for p in target.iterdir()) == ["a.txt", folders.NAME]
    assert [p.name for p in target.parent.iterdir()] == ["out"]


def test_the_list_is_what_sha256sum_reads(tmp_path: Path) -> None:
    make(tmp_path / "out")
    done = subprocess.run(["sha256sum", "-c", folders.NAME], cwd=tmp_path / "out", capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "src/a.c: OK\n")


def test_failure_leaves_nothing(tmp_path: Path) -> None:
    def fail_halfway() -> None:
        with staged_directory(tmp_path / "out") as staging:
            (staging / "half.txt").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_halfway()
    assert list(tmp_path.iterdir()) == []


def test_an_output_needs_force_and_survives_failure(tmp_path: Path) -> None:
    target = tmp_path / "out"
    make(target, "old")
    before = tree(target)
    with pytest.raises(OutputError) as error:
        make(target)
    assert str(error.value) == f"{target} has a compiled model; give --force to replace it, or choose another directory"
    with pytest.raises(ZeroDivisionError), staged_directory(target, force=True):
        raise ZeroDivisionError
    assert tree(target) == before
    make(target, "new", force=True)
    assert (target / "src" / "a.c").read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


ADDED: dict[str, Callable[[Path], object]] = {
    "src/mine.c": lambda out: (out / "src" / "mine.c").write_text("int x;"),
    "src/a.c": lambda out: (out / "src" / "a.c").write_text("edited"),
    ".git/": lambda out: (out / ".git").mkdir(),
    "link": lambda out: (out / "link").symlink_to("/etc"),
    "src": lambda out: ((out / "src").rename(out.parent / "moved"), (out / "src").symlink_to(out.parent / "moved")),
}


@pytest.mark.parametrize("name", ADDED)
@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_what_somebody_added_or_changed_is_never_removed(tmp_path: Path, name: str, when: str) -> None:
    target = tmp_path / "out"
    make(target)

    def replace() -> None:
        if when == "before":
            ADDED[name](target)
        with staged_directory(target, force=True) as staging:
            if when == "meanwhile":
                ADDED[name](target)
            (staging / "b.c").write_text("new")

    with pytest.raises(OutputError) as error:
        replace()
    assert str(error.value) == (
        f"{target} is not replaced: it has files that were added or changed since it was written: {name}; "
        "move them, or choose another directory"
    )
    assert not (target / "b.c").exists()
    assert (target / name).exists()
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("there", ["nothing of ours", "plan.json", "a list of something else", "a list that lies"])
def test_force_replaces_only_what_we_wrote(tmp_path: Path, there: str) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "thesis.txt").write_text("five years")
    if there == "plan.json":
        (target / "plan.json").write_text('{"schema": "npu_memplan.plan/1"}')
    elif there == "a list of something else":
        (target / folders.NAME).write_text("# written by npu_memplan: built firmware\n")
    elif there == "a list that lies":
        (target / folders.NAME).write_text(
            f"# written by npu_memplan: a compiled model\n{'0' * 64}  ../../thesis.txt\n"
        )
    before = tree(tmp_path)
    for force in (False, True):
        with pytest.raises(OutputError) as error:
            make(target, force=force)
        assert str(error.value) == (
            f"{target} is not empty and is not a compiled model of npu_memplan's (its manifest.sha256 does not say so)"
            ": it is never replaced; choose another directory"
        )
    assert tree(tmp_path) == before


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.write_text("mine")
    with pytest.raises(OutputError) as error:
        make(target, force=True)
    assert str(error.value) == f"{target} exists and is a file; choose another output directory"
    assert target.read_text() == "mine"


def test_links_are_followed_or_refused_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "src" / "a.c").is_file()
    make(tmp_path / "link", "new", force=True)
    assert (tmp_path / "real" / "src" / "a.c").read_text() == "new"
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError, match=r"loop is a link that leads nowhere; choose another output directory"):
        make(tmp_path / "loop")


def test_the_current_directory_is_not_pulled_from_under_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=r"\. is the current directory, one above it, or a mounted one"):
        make(Path())


@pytest.mark.parametrize("appears", ["full folder", "file", "link", "another output"])
@pytest.mark.parametrize("force", [False, True])
def test_what_appears_meanwhile_wins(tmp_path: Path, appears: str, force: bool) -> None:
    target = tmp_path / "out"

    def disturbed() -> None:
        with staged_directory(target, force) as staging:
            (staging / "a.c").write_text("a")
            if appears == "full folder":
                target.mkdir()
                (target / "thesis.txt").write_text("five years")
            elif appears == "file":
                target.write_text("mine")
            elif appears == "link":
                target.symlink_to("/nowhere")
            else:
                make(target, "theirs")

    with pytest.raises(TakenError, match=r"was made or changed by something else meanwhile and was left as it is"):
        disturbed()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    assert not (target / "a.c").exists()


WRITER = """
import sys, time
from pathlib import Path
from npu_memplan.files.folders import OutputError, staged_directory
target, gate, me, force = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4] == "force"
try:
    with staged_directory(target, force) as staging:
        (staging / "who").write_text(me)
        print("ready", flush=True)
        while not gate.exists():
            time.sleep(0.001)
    print("written")
except OutputError as error:
    print(error)
"""


def writer(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("there", ["nothing", "an empty folder", "an output"])
def test_of_writers_in_a_race_one_says_written_and_is_there(tmp_path: Path, there: str) -> None:
    target, gate = tmp_path / "out", tmp_path / "gate"
    if there == "an empty folder":
        target.mkdir()
    elif there == "an output":
        make(target)
    writers = [writer(target, gate, number, "force" if there == "an output" else "") for number in range(4)]
    for each in writers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    gate.touch()
    said = [each.communicate(timeout=240)[0] for each in writers]
    assert said.count("written\n") == 1, said
    assert (target / "who").read_text() == str(said.index("written\n"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gate", "out"]


def left_behind(tmp_path: Path) -> list[str]:
    return sorted(p.name for p in tmp_path.iterdir() if p.name.startswith(".out."))


def test_a_killed_writers_folder_is_swept_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
    target, gate = tmp_path / "out", tmp_path / "gate"
    (tmp_path / ".out.npu_memplan-mine").mkdir()  # the name alone does not make it ours
    (tmp_path / ".out.npu_memplan-mine" / "thesis.txt").write_text("five years")
    killed, living = writer(target, gate, "killed", ""), writer(target, gate, "living", "")
    for each in (killed, living):
        assert each.stdout is not None
        each.stdout.readline()
    killed.kill()
    killed.communicate()
    assert len(left_behind(tmp_path)) == 3
    make(tmp_path / "another")  # another place sweeps nothing here
    assert len(left_behind(tmp_path)) == 3
    make(target)
    assert len(left_behind(tmp_path)) == 2
    gate.touch()
    assert "was made or changed by something else meanwhile" in living.communicate(timeout=240)[0]
    assert left_behind(tmp_path) == [".out.npu_memplan-mine"]


def test_killed_between_two_renames_the_old_output_comes_back(tmp_path: Path) -> None:
    target, gate = tmp_path / "out", tmp_path / "gate"
    killed = writer(target, gate, "killed", "")
    assert killed.stdout is not None
    killed.stdout.readline()
    killed.kill()
    killed.communicate()
    make(tmp_path / "made", "old")
    (stale,) = left_behind(tmp_path)
    (tmp_path / "made").rename(tmp_path / stale / "old")  # as if it had been replacing this
    with pytest.raises(OutputError, match=r"out has a compiled model; give --force"):
        make(target, "new")
    assert (target / "src" / "a.c").read_text() == "old"
    assert left_behind(tmp_path) == []


def test_sigterm_cleans_up(tmp_path: Path) -> None:
    model = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
    command = [sys.executable, "-m", "npu_memplan.cli", "compile", str(model), "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as ours:
        deadline = time.monotonic() + 60
        while not left_behind(tmp_path) and time.monotonic() < deadline and ours.poll() is None:
            time.sleep(0.01)
        assert left_behind(tmp_path), "it never began to write"
        ours.send_signal(signal.SIGTERM)
        assert ours.stderr is not None
        said = ours.stderr.read()
    assert (ours.returncode, said) == (128 + signal.SIGTERM, "terminated\n")
    assert list(tmp_path.iterdir()) == []


def test_files_are_whole_and_keep_what_they_were(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_whole(path, b"one")
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    path.chmod(0o640)
    (tmp_path / "link").symlink_to("a.txt")
    write_whole(tmp_path / "link", b"two")
    assert (tmp_path / "link").is_symlink()
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.txt", "link"]
    with pytest.raises(OutputError) as error:
        write_whole(tmp_path / "none" / "a", b"")
    assert str(error.value) == (
        f"cannot write {tmp_path / 'none' / 'a'}: No such file or directory; choose another place for it"
    )


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_is_no_regular_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with subprocess.Popen(["cat", str(fifo)], stdout=subprocess.PIPE) as reader:
        write_whole(fifo, b"through")
        assert reader.communicate()[0] == b"through"
    assert fifo.is_fifo()


SCRATCH = """
import sys, time
from pathlib import Path
from npu_memplan.files.folders import scratch_folder
with scratch_folder("test", Path(sys.argv[1])) as folder:
    (folder / "memory").write_bytes(bytes(1000))
    print(folder.name, flush=True)
    time.sleep(600)
"""


def test_scratch_folders_of_the_dead_are_cleared_away_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "npu_memplan-test-mine").mkdir()
    (tmp_path / "npu_memplan-test-mine" / "thesis.txt").write_text("five years")
    command = [sys.executable, "-c", SCRATCH, str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as living,
    ):
        assert killed.stdout is not None
        assert living.stdout is not None
        dead, alive = killed.stdout.readline().strip(), living.stdout.readline().strip()
        killed.kill()
        killed.wait()
        with scratch_folder("other", tmp_path):
            assert (tmp_path / dead).exists()
        with scratch_folder("test", tmp_path) as folder:
            assert {p.name for p in tmp_path.iterdir()} == {"npu_memplan-test-mine", alive, folder.name}
        assert not folder.exists()
        living.kill()


def test_what_a_killed_writer_left_of_a_file_goes_with_the_next_write(tmp_path: Path) -> None:
    old, young, living = (tmp_path / f".a.json.{i}2345678.part" for i in (1, 2, 3))
    others = tmp_path / ".b.json.12345678.part"
    for path in (old, young, living, others):
        path.write_bytes(b"half")
    for path in (old, living, others):
        os.utime(path, (1e9, 1e9))
    with living.open("rb") as file:
        assert lock_file(file.fileno())
        write_whole(tmp_path / "a.json", b"{}")
    assert not old.exists()
    assert young.exists()
    assert living.exists()
    assert others.exists()
