"""A signal ends the command wherever it arrives: what TVM or a handler makes of it is never a candidate's fault."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm

from npu_memplan.errors import RefusalError
from npu_memplan.files.folders import owned_folder, scratch_folder, staged_directory
from npu_memplan.files.paths import write_whole
from npu_memplan.frontend.errors import run_importer
from npu_memplan.process.ending import lacks_memory, raise_outside_cause, requested_end, signals_as_exceptions
from npu_memplan.process.incidents import Attempts, contain_faults, gather_incidents, report_phase

CODES = {signal.SIGTERM: 143, signal.SIGHUP: 129}


def lose_signal(number: int) -> None:
    """The signal arrives in a callback of TVM, which makes a RuntimeError of what it raises."""

    @tvm.ir.transform.module_pass(opt_level=0)
    def arrives(module: Any, context: Any) -> Any:
        os.kill(os.getpid(), number)
        return module

    arrives(tvm.IRModule())


@pytest.mark.parametrize("number", [*CODES, signal.SIGINT])
def test_tvm_makes_a_runtime_error_of_it(number: int) -> None:
    with signals_as_exceptions(), pytest.raises(RuntimeError):
        lose_signal(number)
    assert requested_end() is None  # outside, nothing listens


def contains(number: int) -> None:
    with contain_faults("a candidate"):
        lose_signal(number)


def attempts(number: int) -> None:
    tried = Attempts()
    with tried.attempt_by("one"):
        lose_signal(number)
    with tried.attempt_by("another"):
        pass
    tried.settle_errors(done=True)


def imports(number: int) -> None:
    run_importer("TFLite", "m.tflite", lambda: lose_signal(number))


def goes_on(number: int) -> None:
    try:
        lose_signal(number)
    except RuntimeError:
        report_phase("the next one")


@pytest.mark.parametrize("number", CODES)
@pytest.mark.parametrize("loses", [contains, attempts, imports, goes_on])
def test_it_ends_the_command_all_the_same(loses: Callable[[int], None], number: signal.Signals) -> None:
    with signals_as_exceptions(), gather_incidents() as incidents, pytest.raises(SystemExit) as ended:
        loses(number)
    assert ended.value.code == CODES[number]
    assert incidents.lines == ()


def test_ctrl_c_is_a_keyboard_interrupt() -> None:
    with signals_as_exceptions(), gather_incidents(), pytest.raises(KeyboardInterrupt):
        contains(signal.SIGINT)


def test_a_folder_that_was_just_made_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal arrives between the call that makes it and the next line."""
    make = tempfile.mkdtemp

    def make_and_signal(**options: Any) -> str:
        made = make(**options)
        os.kill(os.getpid(), signal.SIGTERM)
        return made

    monkeypatch.setattr("tempfile.mkdtemp", make_and_signal)
    with signals_as_exceptions(), pytest.raises(SystemExit), scratch_folder("test", tmp_path):
        raise AssertionError("the signal was lost")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_cleared_away_while_it_arrives(tmp_path: Path) -> None:
    def clear(folder: Path) -> None:
        if requested_end() is None:
            os.kill(os.getpid(), signal.SIGTERM)
        shutil.rmtree(folder, ignore_errors=True)

    with signals_as_exceptions():
        with pytest.raises(SystemExit), owned_folder(tmp_path, "x-", "test", clear):
            pass
        assert list(tmp_path.iterdir()) == []


def test_nothing_is_put_in_place_after_it(tmp_path: Path) -> None:
    def write() -> None:
        with staged_directory(tmp_path / "out") as folder:
            (folder / "a").write_text("worse")
            with pytest.raises(RuntimeError):
                lose_signal(signal.SIGTERM)

    with signals_as_exceptions(), pytest.raises(SystemExit):
        write()
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_replaced_after_it(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"sound")
    with signals_as_exceptions():
        with pytest.raises(RuntimeError):
            lose_signal(signal.SIGTERM)
        with pytest.raises(SystemExit):
            write_whole(tmp_path / "a", b"worse")
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("a", b"sound")]


@pytest.mark.parametrize("text", ["std::bad_alloc", "can't start new thread", "Cannot allocate memory"])
def test_a_lack_of_memory_is_no_fault(text: str) -> None:
    with pytest.raises(MemoryError), gather_incidents(), contain_faults("a candidate"):
        raise RuntimeError(text)
    assert not lacks_memory(RefusalError(text))


def test_another_error_has_no_cause_outside() -> None:
    raise_outside_cause(RuntimeError("a fault"))
