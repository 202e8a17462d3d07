"""Every path that a command is given, as what cannot be read or written: each ends in an error that says so.

`READ` and `WRITTEN` have a command for each argument and option that is a path; a new one needs a row.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import click
import pytest

from npu_memplan.cli import cli
from npu_memplan.compiler import compile_model
from npu_memplan.errors import NpuMemplanError
from npu_memplan.files import paths
from npu_memplan.files.paths import OutputError, write_whole
from npu_memplan.options import CompileOptions
from tests.support.entry import invoke

MODELS = Path(__file__).resolve().parents[1] / "models"
LIMIT_S = 240
COMPILE = "compile {model} --accelerator none -o out"
FIRMWARE = "corstone-300-u55"
FVP = "fvp FVP_Corstone_SSE-300_Ethos-U55"
RUN = "run {art} --on local"
READ = {
    "compile model": "compile {} --accelerator none -o out",
    "compile data_files": "compile {pte} {} -o out.pte",
    "compile --vela-ini": "compile {model} --vela-ini {} -o out",
    "compile --board": "compile {model} --board {} -o out",
    "compile --host-ops": f"{COMPILE} --host-ops {{}}",
    "link models": "link a={} b={art} -o out",
    "explore model": "explore {} -o out",
    "explore --board": "explore {model} --board {} -o out",
    "run directory": "run {}",
    "run --data": "run {pte} --data {}",
    "run --board": "run {art} --on qemu --board {}",
    "run --external-source": f"{RUN} --external-source {{}}",
    "run --operators": f"{RUN} --operators {{}}",
    "run --input": f"{RUN} --input {{}}",
    "run --reference": f"{RUN} --reference {{}}",
    "run --fvp-path": "run {art} --on fvp --fvp-path {}",
    "run --elf": f"run --elf {{}} --board {FIRMWARE}",
    "new-firmware --board": "new-firmware out --board {} --model {art}",
    "new-firmware --model": f"new-firmware out --board {FIRMWARE} --model {{}}",
    "sweep models": "sweep {} -o out",
    "sweep --boards": "sweep {model} --boards {} -o out",
    "sweep --import": "sweep {model} --accelerator none --import {} -o out",
    "simulate network": "simulate {}",
    "simulate --data": "simulate {pte} --data {}",
    "simulate --input": "simulate {pte} --input {}",
    "simulate --reference": "simulate {pte} --reference {}",
    "simulate --vela-ini": "simulate {pte} --vela-ini {}",
    "check network": f"check {{}} --board {FIRMWARE}",
    "check --board": "check {pte} --board {}",
    "check --data": f"check {{pte}} --board {FIRMWARE} --data {{}}",
    "check --reference": f"check {{pte}} --board {FIRMWARE} --reference {{}}",
    "check --input": f"check {{pte}} --board {FIRMWARE} --input {{}}",
    "disassemble network": "disassemble {}",
    "disassemble --data": "disassemble {pte} --data {}",
    "plan problem": "plan {}",
    "plan --incumbent": "plan {csv} --incumbent {}",
    "verify problem": "verify {} {csv}",
    "verify plan": "verify {csv} {}",
    "report directory": "report {}",
    "report --data": "report {pte} -o out --data {}",
    "report --plan": "report {csv} -o out --plan {}",
    "report --against": "report {art} -o out --against {}",
    "explain directory": "explain {}",
    "explain --model": "explain {art} --advise --model {}",
    "diff before": "diff {} {art}",
    "diff after": "diff {art} {}",
    "operators model": "operators {}",
    "boards name": "boards ./{}",
    "evidence --board": "evidence --on qemu --board {} -o out",
    "evidence --fvp-path": "evidence --on fvp --fvp-path {} -o out",
    "tvmc compile file": "tvmc compile {} -o out.tar",
    "tvmc compile --config": "tvmc compile {model} --config {} -o out.tar",
    "fvp --config-file": f"{FVP} -f {{}} -a {{pte}}",
    "fvp --application": f"{FVP} -a {{}}",
}
WRITTEN = {
    "compile --output": "compile {model} --accelerator none -o {}",
    "link --output": "link a={art} b={art} -o {}",
    "explore --output": "explore {model} -o {}",
    "run --output": f"{RUN} --output {{}}",
    "run --dump": f"{RUN} --layers --reference {{model}} --dump {{}}",
    "new-firmware directory": f"new-firmware {{}} --board {FIRMWARE} --model {{art}}",
    "sweep --output": "sweep {model} --accelerator none -o {}",
    "sweep --store": "sweep {model} --accelerator none --store {} -o out",
    "simulate --output": "simulate {pte} --output {}",
    "simulate --trace": "simulate {pte} --trace {}",
    "plan --output": "plan {csv} -o {}",
    "report --output": "report {art} -o {}",
    "evidence --output": "evidence --on local --only hello_world_int8 -o {}",
    "tvmc compile --output": "tvmc compile {model} -o {}",
}
ELSEWHERE = {"run --trace"}  # written by `write_whole` when an emulator has run


UNREADABLE: list[Callable[[Path], None]] = [
    os.mkfifo,
    lambda path: path.symlink_to("/dev/zero"),
    lambda path: path.symlink_to("nowhere"),
    lambda path: path.symlink_to(path.name),
    os.mkdir,
]
UNWRITABLE: list[Callable[[Path], None]] = [
    os.mkfifo,
    lambda path: path.symlink_to("/dev/full"),
    lambda path: path.symlink_to("/proc/none/x"),
    lambda path: path.symlink_to(path.name),
]


def path_options(command: click.Command, name: str = "") -> Iterator[str]:
    """The arguments and options of all commands that are paths."""
    if isinstance(command, click.Group):
        for each in command.list_commands(click.Context(command)):
            found = command.get_command(click.Context(command), each)
            assert found is not None
            yield from path_options(found, f"{name} {each}".strip())
        return
    for parameter in command.params:
        shown = getattr(parameter, "metavar", None) or ""
        if isinstance(parameter.type, click.Path) or any(word in shown for word in ("FILE", "DIR", "PATH")):
            yield f"{name} {parameter.opts[-1]}"


def test_every_path_has_a_command() -> None:
    own = {name for name in {*READ, *WRITTEN} if name.startswith(("tvmc", "fvp"))}  # which read their words themselves
    assert {*READ, *WRITTEN, *ELSEWHERE} - own == {*path_options(cli)}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What a command is given besides."""
    folder, model = tmp_path_factory.mktemp("sound"), MODELS / "hello_world_int8.tflite"
    compile_model(model, CompileOptions("none"), folder / "art")
    (folder / "problem.csv").write_text("id,lower,upper,size\na,0,10,32\n")
    return {"model": model, "art": folder / "art", "csv": folder / "problem.csv",
            "pte": MODELS / "three_convolutions_u55.pte"}  # fmt: skip


@pytest.fixture(autouse=True)
def limit_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What waits is an error."""

    def end(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it waits")

    monkeypatch.setattr(paths, "_READER_S", 0.0)
    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(LIMIT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def assert_refused(command: str, make: Callable[[Path], None], folder: Path, sound: dict[str, Path]) -> None:
    """`command` with what `make` makes ends in a user's error, and leaves that alone."""
    make(folder / "given")
    ended = invoke(*command.replace("{}", "given").format(**sound).split(), code=None)
    error = ended.exception
    assert not isinstance(error, TimeoutError), command
    assert ended.exit_code == 2 or isinstance(error, NpuMemplanError | OSError), (command, ended.output, error)
    kept = {"out"} if "--store" in command else set()  # results that a sweep has computed
    assert {*os.listdir(folder)} - kept == {"given"}


@pytest.mark.parametrize("command", READ.values(), ids=READ)
def test_no_command_reads_what_is_no_file(
    command: str, sound: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, make in enumerate(UNREADABLE):
        (folder := tmp_path / str(number)).mkdir()
        monkeypatch.chdir(folder)
        assert_refused(command, make, folder, sound)


@pytest.mark.parametrize("command", WRITTEN.values(), ids=WRITTEN)
def test_no_command_waits_to_write(
    command: str, sound: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, make in enumerate(UNWRITABLE):
        (folder := tmp_path / str(number)).mkdir()
        monkeypatch.chdir(folder)
        assert_refused(command, make, folder, sound)


@pytest.mark.parametrize(
    ("command", "work"),
    [
        ("evidence --on local --only hello_world_int8 -o file/record", "npu_memplan.evidence.gather.gather_record"),
        ("explore {model} -o file/front", "npu_memplan.commands.explore._explore_front"),
        ("compile {model} --emit vela-tflite -o none/out.tflite", "npu_memplan.checking.other_outputs.emit_checked"),
        ("compile {model} --emit vela-tflite -o file/out.tflite", "npu_memplan.checking.other_outputs.emit_checked"),
        ("tvmc compile {model} -o none/out.tar", "npu_memplan.checking.other_outputs.compile_library_checked"),
    ],
)
def test_what_cannot_be_written_is_refused_before_the_work(
    command: str, work: str, sound: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the work began")

    (tmp_path / "file").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(work, refuse)
    done = invoke(*[word.format(**sound) for word in command.split()], code=None)
    assert isinstance(done.exception, OutputError), done.exception
    assert str(done.exception).startswith("cannot write ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_pipe_that_nothing_reads_on_is_not_waited_for(tmp_path: Path) -> None:
    """Its reader has opened it and takes no more than fits into it."""
    os.mkfifo(tmp_path / "pipe")
    code = "import sys, time; pipe = open(sys.argv[1]); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "pipe")]) as reader:
        try:
            with open(tmp_path / "pipe", "wb"), pytest.raises(OutputError, match="nothing read it within"):
                write_whole(tmp_path / "pipe", bytes(1 << 20))
        finally:
            reader.kill()
