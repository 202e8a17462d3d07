"""What a shell may do to a process: closed streams, odd encodings, odd compilers, Ctrl-C at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
START = [sys.executable, "-m", "npu_memplan"]
CHAIN = "id,lower,upper,size\na,0,2,64\nb,1,3,32\n"


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = tmp_path / "chain.csv"
    path.write_text(CHAIN, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    folder = tmp_path_factory.mktemp("digits") / "out"
    compile_model(MODEL, CompileOptions(accelerator="none"), folder)
    return folder


def shell(line: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """`line` in a shell, where "$@" is the program and its arguments."""
    return subprocess.run(
        ["sh", "-c", line, "sh", *START, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize("as_json", [(), ("--json",)], ids=["table", "json"])
def test_a_closed_stream_is_nobodys_fault(chain: Path, tmp_path: Path, closed: str, as_json: tuple[str, ...]) -> None:
    done = shell(f'"$@" {closed}', "plan", chain, "-o", tmp_path / "plan.csv", *as_json)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "plan.csv").read_text() == "id,lower,upper,size,offset\na,0,2,64,0\nb,1,3,32,64\n"
    assert shell(f'"$@" {closed}', "plan", tmp_path / "none.csv").returncode == 2


def test_a_full_command_with_its_output_closed(tmp_path: Path) -> None:
    done = shell('"$@" >&- 2>&-', "compile", MODEL, "-o", tmp_path / "out")
    assert done.returncode == 0
    assert shell('"$@" >&-', "run", tmp_path / "out", "--on", "local").returncode == 0


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_paths_that_the_outputs_encoding_lacks(tmp_path: Path, encoding: str) -> None:
    folder = tmp_path / "größe 测试"
    folder.mkdir()
    (folder / "é.csv").write_text(CHAIN)
    done = shell('"$@"', "plan", folder / "é.csv", "-o", folder / "plan.csv", PYTHONIOENCODING=encoding)
    assert (done.returncode, done.stderr) == (0, "")
    assert "written to" in done.stdout
    refused = shell('"$@"', "plan", folder / "nö.csv", PYTHONIOENCODING=encoding)
    assert refused.returncode == 2
    assert "Traceback" not in refused.stderr


def test_a_file_name_that_is_no_text(tmp_path: Path) -> None:
    name = os.path.join(os.fsencode(tmp_path), b"caf\xe9.csv")
    with open(name, "wb") as file:
        file.write(CHAIN.encode())
    done = subprocess.run([*map(os.fsencode, START), b"plan", name], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"caf\\udce9" in done.stdout


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("'x", 'no C compiler found (CC names "\'x", which is no command line); set CC, or install one'),
        ("no-such-cc -O3", "no C compiler found (CC names 'no-such-cc -O3', which is not on PATH); set CC"),
        (" ", ""),  # as if it were not set
    ],
    ids=["quotation", "absent", "blank"],
)
def test_any_cc_is_answered(artifact: Path, tmp_path: Path, value: str, words: str) -> None:
    ran = shell('"$@"', "run", artifact, "--on", "local", CC=value)
    assert ran.returncode == (2 if words else 0), ran.stderr
    assert words in ran.stderr
    assert "Traceback" not in ran.stderr
    compiled = shell('"$@"', "compile", MODEL, "-o", tmp_path / "out", "--accelerator", "none", CC=value)
    assert compiled.returncode == 0
    assert words in compiled.stderr  # the searches are Python then, which is told


ANNOUNCED = "import npu_memplan.__main__ as program; print('up', flush=True); program.main()"


@pytest.mark.parametrize("after_s", [0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.8])
def test_ctrl_c_is_one_line_from_the_first_import_on(tmp_path: Path, after_s: float) -> None:
    command = [sys.executable, "-c", ANNOUNCED, "compile", str(MODEL), "-o", str(tmp_path / "out")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as ours:
        assert ours.stdout is not None
        assert ours.stdout.readline() == "up\n"
        time.sleep(0.01 + after_s)  # 0.01: it is in main()
        ours.send_signal(signal.SIGINT)
        said = ours.communicate(timeout=240)[1]
    # Python ends itself by the signal where an interrupted import had said so; a shell shows 130 for both.
    assert (said.strip(), ours.returncode in (130, -signal.SIGINT)) == ("interrupted", True)
    assert list(tmp_path.iterdir()) == []
