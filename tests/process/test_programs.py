"""Programs of others end with their limits, and with us; their temporary files are ours to remove."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from npu_memplan.process.programs import ending_signal, open_program, run_program, start_program
from npu_memplan.vela import worker
from npu_memplan.vela.worker import VelaError, VelaOptions, run_regor
from tests.support.tflite_builder import TensorSpec, single_operator


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def test_what_it_prints_and_its_code(tmp_path: Path) -> None:
    done = run_program(python("import os, sys; print(os.environ['TMPDIR']); sys.exit(3)"), tmp_path, 30)
    assert (done.returncode, done.stdout, done.stderr) == (3, f"{tmp_path}\n", "")


def test_cpu_time_ends_it(tmp_path: Path) -> None:
    assert run_program(python("while True: pass"), tmp_path, 60, cpu_s=1).returncode == -signal.SIGXCPU


def test_memory_ends_it(tmp_path: Path) -> None:
    done = run_program(python("print(len(bytearray(1 << 30)))"), tmp_path, 60, memory_bytes=1 << 29)
    assert done.returncode == 1
    assert done.stderr.endswith("MemoryError\n")


def test_the_clock_ends_it_with_what_it_started(tmp_path: Path) -> None:
    code = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); import time; time.sleep(600)"
    with open_program(python(code), tmp_path) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0.01)
    assert_ends(child)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="others do not tell a process's children")
@pytest.mark.parametrize("ended_by", ["end_program", "a signal"])
def test_what_its_programs_started_ends_with_it(ended_by: str, tmp_path: Path) -> None:
    """A worker whose C compiler started another process: that has neither the worker's group nor its parent's end."""
    worker = (
        "from pathlib import Path; from npu_memplan.process.programs import run_program\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "run_program(['sh', '-c', 'sleep 600 & echo $! > $0/made; mv $0/made $0/child; wait', folder], folder, 600)"
    )
    ours = (
        "import os, signal, sys, time; from pathlib import Path\n"
        "from npu_memplan.process.ending import end_on_signals\n"
        "from npu_memplan.process.programs import end_program, start_program\n"
        f"folder = Path({str(tmp_path)!r})\n"
        "with end_on_signals():\n"
        f"    process = start_program([sys.executable, '-c', {worker!r}], folder)\n"
        "    while not (folder / 'child').exists(): time.sleep(0.01)\n"
        f"    end_program(process) if {ended_by == 'end_program'} else os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run(python(ours), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == (0 if ended_by == "end_program" else 128 + signal.SIGTERM), done.stderr
    child = int((tmp_path / "child").read_text())
    try:
        assert_ends(child)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def test_the_signal_that_work_ends_with(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert ending_signal(os.abort) == signal.SIGABRT
    assert ending_signal(lambda: (tmp_path / "done").touch()) == 0
    assert (tmp_path / "done").exists()
    assert ending_signal(lambda: 1 // 0) == 0  # an exception is raised again where the work is done
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="PR_SET_PDEATHSIG is Linux's")
def test_it_does_not_outlive_us(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from npu_memplan.process.programs import start_program; import time\n"
        f"print(start_program(['sleep', '600'], Path({str(tmp_path)!r})).pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen(python(code), stdout=subprocess.PIPE) as ours:
        assert ours.stdout is not None
        child = int(ours.stdout.readline())
        ours.kill()
    assert_ends(child)


def test_vela_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_LEAST_S", 2.0)
    source, result = (TensorSpec((1, 5, 6, 10), kind, 0.0004) for kind in ("int16", "uint8"))
    model = single_operator("TANH", [source], [result]).finish()
    with pytest.raises(VelaError, match=r"did not compile the model within 2 s of CPU time"):
        run_regor(model, VelaOptions(accelerator="ethos-u85-256"))


def test_a_refusal_of_velas_has_no_trace() -> None:
    printed = ["Warning: x", "Traceback (most recent call last)", '  File "a.py", line 3', "KeyError: 'OFM'"]
    assert worker.reason_in(printed) == "Warning: x / KeyError: 'OFM'"
    assert worker.reason_in(["a", "\tb  c\x1b[2J"]) == r"a / b c\x1b[2J"
    assert worker.reason_in([]) == ""


@pytest.mark.parametrize("mebibytes", [1, 2, 3, 4, 5, 6])
def test_a_lack_of_memory_in_vela_is_no_refusal(mebibytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native lowering took such models, so that a compile made another program and ended with 0."""
    limited = partial(start_program, memory_bytes=mebibytes << 20)
    monkeypatch.setattr(worker, "start_program", limited)
    model = Path(__file__).resolve().parents[1] / "models" / "kws_ref_model.tflite"
    with pytest.raises(MemoryError):
        run_regor(model.read_bytes(), VelaOptions())


def assert_ends(pid: int) -> None:
    for _ in range(200):
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z":
                return
        except (ProcessLookupError, FileNotFoundError):
            return
        time.sleep(0.02)
    raise AssertionError(f"{pid} lives")
