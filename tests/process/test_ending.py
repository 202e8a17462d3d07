"""A signal ends the command wherever it arrives: what TVM or a handler makes of it is never a candidate's fault."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
import tvm

from fvp_runner.checked_run import worker
from fvp_runner.checked_run.facts import FACTS, RunRequest
from npu_memplan.errors import RefusalError
from npu_memplan.files import paths
from npu_memplan.files.folders import owned_folder, scratch_folder, staged_directory
from npu_memplan.files.paths import write_whole
from npu_memplan.process.ending import HeldSignals, end_on_signals, lacks_memory, raise_lack_of_memory
from npu_memplan.process.incidents import contain_faults, gather_incidents
from npu_memplan.process.programs import ending_signal, open_program
from tests.support.fork import ForkResult, run_in_fork

CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129, signal.SIGINT: 130}


def end_command(work: Callable[[], object], folder: Path) -> ForkResult:
    """How a process ends in which `work` is done, as a command does it."""

    def command() -> int:
        with end_on_signals():
            work()
        return 0

    return run_in_fork(command, folder.with_name(f"{folder.name}.printed"), 60)


def call_from_tvm(function: Callable[[], object]) -> None:
    """Call `function` from C++."""

    @tvm.ir.transform.module_pass(opt_level=0)
    def arrives(module: Any, context: Any) -> Any:
        function()
        return module

    arrives(tvm.IRModule())


def send(number: int) -> None:
    """The signal arrives in a callback of TVM, which would make a RuntimeError of what it raises."""
    call_from_tvm(lambda: os.kill(os.getpid(), number))


def send_in_noexcept() -> None:
    """The signal arrives where what is raised would end the process by C++'s `abort`, or would be lost."""

    class Raises:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    call_from_tvm(lambda: Raises() and None)


@pytest.mark.parametrize("number", CODES)
def test_it_ends_the_command_in_a_callback(number: signal.Signals, tmp_path: Path) -> None:
    def work() -> None:
        with gather_incidents(), contain_faults("a candidate"):
            send(number)

    ended = end_command(work, tmp_path)
    assert (ended.code, ended.text) == (CODES[number], "interrupted\n" if number == signal.SIGINT else "terminated\n")


def test_it_ends_the_command_where_nothing_can_be_raised(tmp_path: Path) -> None:
    assert end_command(send_in_noexcept, tmp_path).code == 143


def test_a_folder_that_was_just_made_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives between the call that makes it and the next line."""
    make = tempfile.mkdtemp

    def make_and_signal(**options: Any) -> str:
        made = make(**options)
        os.kill(os.getpid(), signal.SIGTERM)
        return made

    def work() -> None:
        with scratch_folder("test", tmp_path):
            pass

    monkeypatch.setattr("tempfile.mkdtemp", make_and_signal)
    assert end_command(work, tmp_path).code == 143
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_cleared_away_while_it_arrives(tmp_path: Path) -> None:
    def clear(folder: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)

    def work() -> None:
        with owned_folder(tmp_path, "x-", "test", clear):
            pass

    assert end_command(work, tmp_path).code == 143
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_put_in_place_after_it(tmp_path: Path) -> None:
    def work() -> None:
        with staged_directory(tmp_path / "out") as folder:
            (folder / "a").write_text("worse")
            send(signal.SIGTERM)

    assert end_command(work, tmp_path).code == 143
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_replaced_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives when the new bytes are written, beside the old ones."""

    def work() -> None:
        monkeypatch.setattr(os, "fdopen", lambda *_: send(signal.SIGTERM))
        write_whole(tmp_path / "a", b"worse")

    (tmp_path / "a").write_bytes(b"sound")
    assert end_command(work, tmp_path).code == 143
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"sound")]


def test_files_of_a_new_folder_go_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives when the first of them is in its place."""
    write = paths.write_inside

    def write_and_signal(folder: Path, name: str, content: bytes) -> None:
        write(folder, name, content)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(paths, "write_inside", write_and_signal)
    assert end_command(lambda: paths.write_files(tmp_path / "new" / "out", {"a": b"", "b": b""}), tmp_path).code == 143
    assert list(tmp_path.iterdir()) == []


def test_a_program_of_another_thread_is_killed_with_its_files(tmp_path: Path) -> None:
    """And the thread does nothing with its end."""

    def wait_for_program() -> None:
        with scratch_folder("test", tmp_path) as folder, open_program(["sleep", "600"], folder) as process:
            (tmp_path / "pid").write_text(str(process.pid))
            process.wait()
        (tmp_path / "went on").touch()

    def work() -> None:
        threading.Thread(target=wait_for_program).start()
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    assert end_command(work, tmp_path).code == 143
    assert not Path("/proc", (tmp_path / "pid").read_text()).exists()
    assert [p.name for p in tmp_path.iterdir()] == ["pid"]


def test_it_waits_for_a_thread_that_puts_something_in_its_place(tmp_path: Path) -> None:
    begun = threading.Event()

    def hold() -> None:
        with HeldSignals():
            begun.set()
            while not (tmp_path / "sent").exists():
                time.sleep(0.01)
            (tmp_path / "whole").touch()

    def work() -> None:
        threading.Thread(target=hold).start()
        begun.wait()
        os.kill(os.getpid(), signal.SIGTERM)
        (tmp_path / "sent").touch()
        time.sleep(60)

    assert end_command(work, tmp_path).code == 143
    assert (tmp_path / "whole").exists()


def test_a_fork_undoes_nothing_of_its_parent(tmp_path: Path) -> None:
    def work() -> None:
        with scratch_folder("test", tmp_path) as folder:
            assert ending_signal(lambda: os.kill(os.getpid(), signal.SIGTERM)) == 0
            assert folder.is_dir()

    assert end_command(work, tmp_path).code == 0


@pytest.mark.parametrize("text", ["std::bad_alloc", "can't start new thread", "Cannot allocate memory"])
def test_a_lack_of_memory_is_no_fault(text: str) -> None:
    with pytest.raises(MemoryError), gather_incidents(), contain_faults("a candidate"):
        raise RuntimeError(text)
    assert not lacks_memory(RefusalError(text))


def test_another_error_has_no_cause_outside() -> None:
    raise_lack_of_memory(RuntimeError("a fault"))


def test_a_full_disk_is_no_fault_of_a_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    request = msgspec.json.encode(RunRequest(str(tmp_path), "m.tflite", ("random:0",))) + b"\n"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(request)))
    monkeypatch.setattr("fvp_runner.checked_run.compare.compare_runs", fail)
    answers = tmp_path / "answers"
    run_in_fork(lambda: worker.main(os.open(answers, os.O_WRONLY | os.O_CREAT)) or 0, tmp_path / "printed", 60)
    (line,) = answers.read_text().splitlines()
    assert "not enough room here for a run: [Errno 28] No space left on device" in json.loads(line)[FACTS]["refused"]
