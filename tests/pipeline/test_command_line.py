"""What a shell sees of the command line: wrong names, wrong paths, readers that leave, disks that are full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from npu_memplan.sizes import SizeError, format_size, parse_named_size, parse_size
from tests.support.saving import save

MODEL = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
CHAIN = "id,lower,upper,size\na,0,2,64\nb,1,3,32\n"


@pytest.fixture
def chain(tmp_path: Path) -> Path:
    path = save(tmp_path / "chain.csv", CHAIN)
    return path


def shell(*arguments: object, stdout: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own."""
    command = [sys.executable, "-m", "npu_memplan.cli", *map(str, arguments)]
    return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False)


def test_a_mistyped_command_is_answered_with_the_nearest(cli) -> None:
    assert cli("comple").err.endswith("Error: No such command 'comple'. Did you mean 'compile'?\n")
    assert "No such command 'xyz'. There are: compile, link, explore, run," in cli("xyz").err
    assert cli("comple").code == 2


@pytest.mark.parametrize("command", ["run", "report", "explain", "diff"])
def test_a_model_in_place_of_a_directory(cli, tmp_path: Path, command: str) -> None:
    model = save(tmp_path / "m.tflite", b"")
    outcome = cli(command, model, *([model] if command == "diff" else []))
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith(f"npu-memplan: {model} is a file")
    assert "compiled model" in outcome.err


def test_the_plan_of_a_compiled_model_is_a_problem_and_a_plan(cli, tmp_path: Path) -> None:
    plan = tmp_path / "out" / "plan.json"
    cli.ok("compile", MODEL, "-o", tmp_path / "out", "--accelerator", "none", "--json")
    assert cli("verify", plan, plan).out.startswith("valid: ")
    again = cli("plan", plan, "-o", tmp_path / "again.json", "--planner", "linear")
    assert again.out.endswith(f"written to {tmp_path / 'again.json'}\n")
    assert cli("verify", plan, tmp_path / "again.json").out.startswith("valid: ")
    plan.write_text(plan.read_text().replace('"offset_bytes": ', '"offset_bytes": 1'))
    assert cli("verify", plan, plan).code != 0


def test_options_that_need_another_are_reported_before_anything_is_written(cli, tmp_path: Path) -> None:
    outcome = cli("explain", tmp_path, "--model", tmp_path / "x.tflite")
    assert "--model is for --advise" in outcome.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [("plan", "CHAIN", "--json"), ("boards",), ("accelerators", "--help")])
def test_a_pipe_without_a_reader_is_sigpipe_to_the_shell(chain: Path, words: tuple[str, ...]) -> None:
    """Not 1, which is a wrong result; written by click, by rich and by click's help."""
    read, write = os.pipe()
    os.close(read)
    done = shell(*(chain if word == "CHAIN" else word for word in words), stdout=write)
    os.close(write)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_line(chain: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = shell("plan", chain, "--json", stdout=full.fileno())
    assert done.returncode == 2
    assert done.stderr.startswith("npu-memplan: No space left on device; free some where the output goes, and in /")


# -- Sizes on the command line


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("98304", 98304),
        ("96KiB", 98304),
        ("96 kib", 98304),
        ("1.5MiB", 1572864),
        ("2kB", 2000),
        ("1GiB", 2**30),
    ],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", "12 parsecs", "1e3", "0x10"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SizeError) as error:
        parse_size(text)
    assert str(error.value) == f"cannot read the size {text!r}; write bytes or a unit, e.g. 98304, 96KiB or 1.5MiB"


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(SizeError) as error:
        parse_size("0.3KiB")
    assert str(error.value) == "the size '0.3KiB' is 307.2 bytes: not a whole number"


@pytest.mark.parametrize("text", ["9007199254740992", "9" * 400, "9000000GiB"])
def test_what_no_memory_has_is_refused(text: str) -> None:
    with pytest.raises(SizeError, match=r"is 9,007,199,254,740,992 bytes or more: no memory has as many"):
        parse_size(text)


def test_pools_are_named() -> None:
    assert parse_named_size("sram=96KiB") == ("sram", 98304)
    with pytest.raises(SizeError) as error:
        parse_named_size("96KiB")
    assert str(error.value) == "cannot read the pool '96KiB'; write NAME=SIZE, e.g. sram=96KiB"


@pytest.mark.parametrize(
    ("size", "text"), [(16, "16 bytes"), (16000, "15.62 KiB (16000 bytes)"), (2 * 1024**2, "2.00 MiB (2097152 bytes)")]
)
def test_bytes_stand_beside_kib(size: int, text: str) -> None:
    assert format_size(size) == text
