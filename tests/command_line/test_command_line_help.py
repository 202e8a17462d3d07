"""What the command line says of itself: groups, completion by the shell, how much is said, lists."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import BashComplete
from click.testing import CliRunner

from npu_memplan.cli import COMMANDS, cli
from npu_memplan.command_line import GroupedCommand
from npu_memplan.commands.compile import command
from npu_memplan.ethosu.arch import ACCELERATORS
from npu_memplan.options import REMOVED
from npu_memplan.process.incidents import listen_to_phases, report_phase
from npu_memplan.target_data import board_names

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def invoke(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def completed(line: str) -> list[str]:
    """What click's completion of bash offers for `line`: kinds and values."""
    *words, last = line.split(" ")[1:]
    found = BashComplete(cli, {}, "npu-memplan", "_NPU_MEMPLAN_COMPLETE").get_completions(words, last)
    return [f"{item.type},{item.value}" for item in found]


@pytest.mark.parametrize("name", ["compile", "run"])
def test_every_option_stands_in_one_group(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert isinstance(command, GroupedCommand)
    code, text, _ = invoke(name, "--help-all")
    options = [p for p in command.params if isinstance(p, click.Option) and not p.hidden and p.name != "help_all"]
    assert code == 0
    assert not [p.name for p in options if not getattr(p, "group", "")]
    for option in options:
        lines = [line for line in text.splitlines() if re.match(rf" +(-\w, )?{option.opts[-1]}\b(?!-)", line)]
        assert len(lines) == 1, option.opts
    headings = [line.rstrip(":") for line in text.splitlines() if re.fullmatch(r"\S.*:", line)]
    assert headings == [*dict.fromkeys(p.group for p in options), "Options"]
    assert text.rstrip().splitlines()[-1].split() == ["-h,", "--help", "Show", "this", "message", "and", "exit."]


@pytest.mark.parametrize(
    "words, shown, hidden",
    [
        (("compile",), ["--board", "--pool", "--objective", "--output"], ["--planner", "--incbin"]),
        (("run",), ["--reference", "--on", "--input"], ["--semihosting", "--fvp-path"]),
        (("sweep",), ["--boards", "--run"], ["--case-memory", "--store"]),
        (("tvmc", "compile"), ["--target", "--workspace-pools"], ["--workspace-pools-targets", "--executor"]),
    ],
)
def test_help_has_what_most_want_and_help_all_the_rest(
    words: tuple[str, ...], shown: list[str], hidden: list[str]
) -> None:
    short, every = (invoke(*words, flag)[1] for flag in ("--help", "--help-all"))
    for option in shown:
        assert re.search(rf"^ .*{option}\b", short, re.M), option
    for option in hidden:
        assert not re.search(rf"^ +{option}\b", short, re.M), option
        assert re.search(rf"^ +{option}\b", every, re.M), option
    assert "--help-all" in short


@pytest.mark.parametrize(
    "line, expected",
    [
        ("npu-memplan comp", ["plain,compile"]),
        ("npu-memplan compile m --accelerator ethos-u65", ["plain,ethos-u65-256", "plain,ethos-u65-512"]),
        ("npu-memplan compile m --npu-compiler ", ["plain,vela", "plain,tvm", "plain,auto"]),
        ("npu-memplan compile m --board alif-e7", ["plain,alif-e7-he", "plain,alif-e7-hp"]),
        ("npu-memplan compile m --board my-", ["file,my-"]),
        ("npu-memplan compile m --memory-mode Sh", ["plain,Shared_Sram"]),
        ("npu-memplan compile m --planner opt", ["plain,optimal"]),
        ("npu-memplan compile mod", ["file,mod"]),
        ("npu-memplan sweep m --boards himax-we2,nxp", ["plain,himax-we2,nxp-imx93"]),
        ("npu-memplan run build --reference m", ["file,m"]),
    ],
)
def test_the_shell_completes(line: str, expected: list[str]) -> None:
    assert completed(line) == expected


def test_the_program_itself_answers_the_shell() -> None:
    """As a shell asks: `eval "$(_NPU_MEMPLAN_COMPLETE=bash_source npu-memplan)"` calls this."""
    requested = {"_NPU_MEMPLAN_COMPLETE": "bash_complete", "COMP_WORDS": "npu-memplan boa", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "npu_memplan"]
    done = subprocess.run(command, env={**os.environ, **requested}, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("plain,boards\n", "")


def test_lists() -> None:
    code, text, _ = invoke("accelerators")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines() if line.startswith("ethos")] == list(ACCELERATORS)
    rows = {row["name"]: row for row in json.loads(invoke("accelerators", "--json")[1])["accelerators"]}
    assert rows["ethos-u55-64"] == {
        "name": "ethos-u55-64", "macs_per_cycle": 64, "cores": 1, "system_config": "Ethos_U55_Deep_Embedded",
        "memory_mode": "Shared_Sram", "clock_hz": 2e8, "npu_compilers": ["vela", "tvm"],
        "boards": ["corstone-300-u55", "corstone-310", "himax-we2"],
    }  # fmt: skip
    assert rows["ethos-u85-2048"]["npu_compilers"] == ["vela", "tvm"]
    assert {board for row in rows.values() for board in row["boards"]} == set(board_names())
    assert set(COMMANDS) >= {"accelerators", "boards", "operators"}


def test_an_option_of_earlier_versions_or_vela_names_what_takes_its_place() -> None:
    now = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    assert not now.intersection(REMOVED)
    for option, advice in REMOVED.items():
        code, out, err = invoke("compile", DIGITS, option, "-o", "nowhere")
        assert (code, out) == (2, "")
        assert err.endswith(f"Error: {option} is no option: {advice}\n")
        named = {word for word in re.findall(r"(?<!\S)--[a-z-]+", advice) if f"plan {word}" not in advice}
        assert named <= now, option


@pytest.mark.parametrize("words", [("--emit", "vela-tflite"), ("-o", "x")])
def test_all_boards_writes_nothing_and_says_so(words: tuple[str, ...], tmp_path: Path) -> None:
    code, out, err = invoke("compile", DIGITS, "--board", "all", *words)
    flag = words[0].replace("-o", "--output") if words[0] == "-o" else words[0]
    assert (code, out) == (2, "")
    assert err.endswith(f"Error: --board all writes nothing and chooses nothing; leave {flag} out\n")


def test_verbosity(tmp_path: Path) -> None:
    """Quiet: the verdict. Usual: nothing on stderr, which is no terminal here. Verbose: the phases, with seconds."""
    compile_ = ("compile", DIGITS, "-o", tmp_path / "d", "--force", "--accelerator", "none", "--pool", "sram=32KiB")
    _, quiet, said = invoke(*compile_, "--quiet")
    assert re.fullmatch(
        r"digits: fits; sram [\d,]+ of 32,768 bytes, optimal; CPU about [\d,]+ cycles \(estimated\), 10 calls\n", quiet
    )
    assert said == ""
    _, usual, said = invoke(*compile_)
    assert usual.startswith(quiet)
    assert said == ""
    _, verbose, said = invoke(*compile_, "-v")
    assert verbose.startswith(usual)
    assert verbose.removeprefix(usual).startswith("What takes the time (estimated):\n")
    phases = [re.fullmatch(r" *\d+\.\d\d s  (.+)", line) for line in said.splitlines()]
    assert [found and found[1] for found in phases] == [
        "reading digits.tflite", "passes", "extracting buffers", "planning memory", "writing streams and C", "in all",
    ]  # fmt: skip
    assert invoke(*compile_, "-v", "-q") == (0, quiet, "")


def test_a_terminal_sees_progress_and_a_pipe_does_not(tmp_path: Path) -> None:
    """stdout is the same in both; on a terminal stderr has told the phases, and is clean at the end."""
    command = [sys.executable, "-m", "npu_memplan", "compile", DIGITS, "-o", tmp_path / "d", "--force",
               "--accelerator", "none"]  # fmt: skip
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, env=environment, check=True)
    os.close(theirs)
    told = b""
    try:
        while chunk := os.read(ours, 1 << 16):
            told += chunk
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert b"compiling digits.tflite" in told
    assert re.search(rb"compiling digits.tflite: (reading|passes|extracting|planning|writing)", told)
    piped = subprocess.run(command, capture_output=True, check=True)
    assert (piped.stdout, piped.stderr) == (done.stdout, b"")


def test_phases_are_heard_only_inside() -> None:
    told: list[str] = []
    report_phase("before")
    with listen_to_phases(told.append):
        report_phase("inside")
    report_phase("after")
    assert told == ["inside"]


# Modules whose texts have options of other programs, and those programs.
_OF_OTHERS = {
    "npu_memplan/tvmc": "tvmc, of TVM",
    "npu_memplan/vela": "Vela",
    "npu_memplan/executorch_lowering/partitioner.py": "Vela",
    "fvp_runner/emulators/fvp_command.py": "Arm's FVPs",
    "fvp_runner/fvp.py": "the installers of FVPs",
    "fvp_runner/firmware_build": "the linker, CMake",
    "fvp_runner/host/instrumented.py": "GCC",
    "fvp_runner/references/other_formats.py": "TOSA's reference model",
}
_NAMED = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9]")


def texts_of(path: Path) -> list[str]:
    """String literals of a module that may name an option, but for docstrings."""
    source = path.read_text(encoding="utf-8")
    if not _NAMED.search(source):
        return []
    tree = ast.parse(source)
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
            and id(n) not in alone]  # fmt: skip


def test_messages_name_options_that_are_there() -> None:
    context = click.Context(cli)
    known = {"--help"}
    groups: list[click.Command] = [cli]
    while groups:
        of = groups.pop()
        known.update(option for parameter in of.params for option in (*parameter.opts, *parameter.secondary_opts))
        groups += [found for name in (of.list_commands(context) if isinstance(of, click.Group) else ())
                   if (found := of.get_command(context, name)) is not None]  # fmt: skip
    root = DIGITS.parents[2]
    paths = [path for package in ("npu_memplan", "fvp_runner") for path in sorted((root / package).rglob("*.py"))]
    found = {
        (str(path.relative_to(root)), option)
        for path in paths
        if not any((root / others) in (path, *path.parents) for others in _OF_OTHERS)
        for text in texts_of(path)
        for option in _NAMED.findall(text)
        if option not in known
    }
    inside = {
        *(("npu_memplan/options.py", option) for option in REMOVED),
        ("npu_memplan/commands/firmware.py", "--path"),  # of MLIA's command
        ("npu_memplan/commands/run.py", "--runner"),  # the parameter of --on
    }
    assert found <= inside, found - inside
