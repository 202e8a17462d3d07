"""Commands under limits of open files and memory, and numbers without an end."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import click
import pytest

from npu_memplan.artifact.files import ApplicationError
from npu_memplan.cli import cli
from npu_memplan.command_line import NumberRange
from npu_memplan.link.networks import link
from npu_memplan.options import CompileOptions, OptionError

FEW, ENOUGH = 63, 64
SMALL, LARGE = (1 << 30) - 4096, 1 << 30


def run_limited(kind: int, soft: int, hard: int, command: str) -> subprocess.CompletedProcess[str]:
    """A command under one limit."""
    return subprocess.run(
        [sys.executable, "-m", "npu_memplan", *command.split()],
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(kind, (soft, hard)),
        timeout=600,
    )


@pytest.mark.parametrize("files", [6, 12, FEW])
def test_few_open_files_are_refused(files: int) -> None:
    ended = run_limited(resource.RLIMIT_NOFILE, files, files, "accelerators")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"npu-memplan: this process may have {files} open files, and needs {ENOUGH}; give more (`ulimit -n`)\n"
    )


def test_a_limit_of_open_files_that_can_be_raised_is(tmp_path: Path) -> None:
    model = Path(__file__).resolve().parents[1] / "models" / "hello_world_int8.tflite"
    command = f"compile {model} -o {tmp_path / 'out'} --effort quick -q"
    ended = run_limited(resource.RLIMIT_NOFILE, 8, ENOUGH, command)
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("kind", [resource.RLIMIT_AS, resource.RLIMIT_DATA])
def test_little_memory_is_refused(kind: int) -> None:
    """OpenBLAS would wait for threads that it has not got, or end the process with 1."""
    ended = run_limited(kind, SMALL, SMALL, "accelerators")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "there is not enough memory here" in ended.stderr
    assert run_limited(kind, LARGE, LARGE, "accelerators").returncode == 0


def number_options(command: click.Command, name: str = "") -> list[tuple[str, click.Parameter]]:
    """Every option that is a number."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        found = [(each, command.get_command(context, each)) for each in command.list_commands(context)]
        return [row for each, one in found if one is not None for row in number_options(one, f"{name} {each}")]
    kinds = (click.IntRange, click.FloatRange)
    return [(name, one) for one in command.params if isinstance(one.type, kinds)]


def test_numbers_have_an_end() -> None:
    """Counts of what is repeated have a greatest value; what is no number is refused."""
    for name, option in number_options(cli):
        assert not isinstance(option.type, click.FloatRange) or isinstance(option.type, NumberRange), (name, option)
        unbounded = isinstance(option.type, click.IntRange) and option.type.max is None
        assert not unbounded or option.opts == ["--call"], (name, option)  # that is the number of a thing


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "x", "-1"])
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NumberRange(min=0).convert(text, None, None)
    assert NumberRange(min=0).convert("1.5", None, None) == 1.5


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e300, 0.0, -1.0])
def test_numbers_that_no_clock_has_are_refused(number: float) -> None:
    """They ended as internal faults, of an integer that is infinite, and of a choice of nothing."""
    with pytest.raises(OptionError, match="is no time; give milliseconds"):
        CompileOptions(max_ms=number).resolve_defaults()
    with pytest.raises(OptionError, match="is no time; give seconds"):
        CompileOptions(time_limit_s=number).resolve_defaults()
    model = Path(__file__).resolve().parents[1] / "models" / "hello_world_int8.tflite"
    with pytest.raises(ApplicationError, match="is not above 0, or above"):
        link([model], CompileOptions(), "app", lambda *_: pytest.fail("it began"), rates={"hello_world_int8": number})
