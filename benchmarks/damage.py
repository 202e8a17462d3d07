"""Damages models, plans and problems at random, and gives each to the command line as a user would.

Usage: python -m benchmarks.damage [OPTION ...] KIND [COUNT] [SEED] [FILE ...]    KIND: a key of `CAMPAIGNS`

With `--results` how each case ended is kept in a file, and cases that it has are not run again.

Invariant: exit code 0 means that every case ended with exit code 0, 1 or 2, without a traceback, a signal, more than
`CPU_LIMIT_S` seconds of CPU or more than `MEMORY_LIMIT_BYTES` of memory. A case is a fork of a process that has
imported what the cases before it did, so thousands are affordable; the same seed makes the same files.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import atexit
import collections
import contextlib
import importlib
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.damaged_files import (
    damaged_artifacts,
    damaged_boards,
    damaged_models,
    damaged_plans,
    damaged_problems,
    damaged_programs,
)
from benchmarks.kept_cases import KeptCases
from tests.support.contrary_models import contrary_models
from tests.support.fork import run_in_fork

REPOSITORY = Path(__file__).resolve().parent.parent
CPU_LIMIT_S = 10
WALL_LIMIT_S = 240  # what waits for ever is ended here; a case on a busy machine has taken more than a minute
MEMORY_LIMIT_BYTES = 2 << 30
_TEMPORARY, _VICTIM, _CONTENT, _MODULES = "tmp", "victim", b"the user's own", "modules"


@dataclass(frozen=True)
class Outcome:
    """How one command ended; `fault` is empty when it ended as it should."""

    code: int
    fault: str
    text: str  # of stdout and stderr


@dataclass(frozen=True)
class Campaign:
    """What is damaged, and the commands that meet it; `{case}` is the damaged file or folder, `{out}` a new folder,
    `{sound}` the first file as it was, or what the command `first` made of it."""

    damaged: Callable[[Sequence[Path], int, random.Random, Path], Iterator[tuple[str, Path]]]
    commands: dict[str, tuple[str, ...]]
    first: tuple[str, ...] = ()


_FILES = REPOSITORY / "tests" / "models"
_SMALL = _FILES / "hello_world_int8.tflite"
_QUICK = ("-o", "{out}", "--effort", "quick", "--npu-compiler", "tvm")
_COMPILE = ("compile", "{case}", "-o", "{out}")
CAMPAIGNS = {
    "none": Campaign(damaged_models, {"none": (*_COMPILE, "--accelerator", "none")}),
    "vela": Campaign(damaged_models, {"vela": _COMPILE}),
    "tvm": Campaign(damaged_models, {"tvm": (*_COMPILE, "--npu-compiler", "tvm")}),
    "structure": Campaign(
        contrary_models,
        {"check": ("check", "{case}", "--board", "corstone-300-u55"), "simulate": ("simulate", "{case}"),
         "operators": ("operators", "{case}"),
         "none": (*_COMPILE, "--accelerator", "none", "--effort", "quick"),
         "default": (*_COMPILE, "--effort", "quick"),
         "tvm": (*_COMPILE, "--npu-compiler", "tvm", "--effort", "quick"),
         "vela": (*_COMPILE, "--npu-compiler", "vela", "--effort", "quick"),
         "u85": (*_COMPILE, "--accelerator", "ethos-u85-256", "--effort", "quick"),
         "tflite": ("compile", "{case}", "-o", "{out}.tflite", "--emit", "vela-tflite", "--effort", "quick")},
    ),
    "streams": Campaign(
        damaged_models,
        {"simulate": ("simulate", "{case}"), "disassemble": ("disassemble", "{case}"), "compile": _COMPILE},
    ),
    "programs": Campaign(
        damaged_programs,
        {"simulate": ("simulate", "{case}", "--output", "{out}.npy"), "run": ("run", "{case}", "--output", "{out}.npy"),
         "disassemble": ("disassemble", "{case}"), "check": ("check", "{case}", "--board", "corstone-320"),
         "report": ("report", "{case}", "-o", "{out}"),
         "compile": ("compile", "{case}", "-o", "{out}.pte", "--objective", "bytes"),
         "arena": ("compile", "{case}", "-o", "{out}.pte", "--objective", "bytes", "--emit", "one-arena")},
    ),
    "references": Campaign(
        damaged_models,
        {"run": ("run", "{sound}", "--on", "local", "--reference", "{case}")},
        ("compile", "{file}", "-o", "{sound}", "--accelerator", "none"),
    ),
    "plans": Campaign(
        damaged_plans,
        {
            "run": ("run", "{case}", "--on", "local"),
            "verify": ("verify", "{case}/plan.json", "{case}/plan.json"),
            "report": ("report", "{case}", "-o", "{out}"),
            "explain": ("explain", "{case}"),
            "diff": ("diff", "{case}", "{sound}"),
        },
    ),
    "artifacts": Campaign(
        damaged_artifacts,
        {"report": ("report", "{case}"), "reported": ("report", "{case}", "-o", "{out}"),
         "explain": ("explain", "{case}"), "table": ("report", "{case}", "--table"),
         "diff": ("diff", "{case}", "{sound}"), "verify": ("verify", "{case}/plan.json", "{case}/plan.json"),
         "project": ("new-firmware", "{out}", "--board", "corstone-300-u55", "--model", "{case}")},
    ),
    "boards": Campaign(
        damaged_boards,
        {"boards": ("boards", "{case}"), "compile": ("compile", str(_SMALL), "--board", "{case}", *_QUICK),
         "check": ("check", str(_FILES / "three_convolutions_u85.pte"), "--board", "{case}")},
    ),
    "problems": Campaign(
        damaged_problems,
        {"plan": ("plan", "{case}", "--time-limit", "0.2", "-o", "{out}.json"),
         "report": ("report", "{case}", "--plan", "{out}.json", "-o", "{out}")},
    ),
}  # fmt: skip


# ------------------------------------------------------------------ running


def run_command(arguments: Sequence[str], folder: Path) -> Outcome:
    """`npu-memplan arguments` in a fork of this process, under limits."""

    def command() -> int:
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / _TEMPORARY)
        _limit_memory()
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        code = run_cli(arguments)
        (folder / _MODULES).write_text("\n".join(sys.modules))
        return code

    ended = run_in_fork(command, folder / "printed", WALL_LIMIT_S)
    import_modules(folder / _MODULES)
    return Outcome(ended.code, _fault(ended.code, ended.text, ended.timed_out, ended.memory_bytes), ended.text)


def import_modules(names: Path) -> None:
    """Import the modules that a fork has imported, so that the next need not: the file `names` lists them."""
    for name in names.read_text().splitlines() if names.exists() else ():
        if name not in sys.modules:
            with contextlib.suppress(Exception):  # a module that is no module of a file
                importlib.import_module(name)
    names.unlink(missing_ok=True)


def run_cli(arguments: Sequence[str]) -> int:
    """The exit code of `npu-memplan` with `arguments`, in a process that a fork made for it alone."""
    from npu_memplan import cli

    sys.argv = ["npu-memplan", *arguments]
    try:
        cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    finally:
        atexit._run_exitfuncs()  # a fork ends without them, a program does not
    return 0


ENDED_WRONG = re.compile(r"Traceback \(most recent call last\)|[Ii]nternal (error|fault)")  # what no command says


def _fault(code: int, text: str, hung: bool, memory_bytes: int) -> str:
    if hung or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "hang"
    if code < 0:
        return f"signal {-code}"
    if ENDED_WRONG.search(text) or code not in (0, 1, 2):
        places = re.findall(r'File ".*?([^/"]+)", line (\d+)', text)
        last = text.strip().splitlines()[-1] if text.strip() else ""
        return f"traceback {':'.join(places[-1]) if places else ''} {last[:90]}"
    return "memory" if memory_bytes > MEMORY_LIMIT_BYTES else ""


def _limit_memory() -> None:
    """This process takes no more than `MEMORY_LIMIT_BYTES` besides what it has."""
    space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (space + MEMORY_LIMIT_BYTES,) * 2)


def run_here(arguments: Sequence[str], folder: Path) -> Outcome:
    """`npu-memplan arguments` in this process, for commands that build and run nothing: some ten a second more."""
    from npu_memplan import cli

    before, arguments_before, streams = Path.cwd(), sys.argv, (sys.stdout, sys.stderr)
    with open(folder / "printed", "w+", encoding="utf-8", errors="backslashreplace") as printed:
        os.chdir(folder)
        sys.argv, sys.stdout, sys.stderr = ["npu-memplan", *arguments], printed, printed
        signal.alarm(WALL_LIMIT_S)  # which ends this process
        try:
            code = cli._run_commands()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            signal.alarm(0)
            sys.argv, (sys.stdout, sys.stderr) = arguments_before, streams
            os.chdir(before)
    text = (folder / "printed").read_text(encoding="utf-8")
    return Outcome(code, _fault(code, text, False, 0), text)


def run_campaign(
    name: str,
    files: Sequence[Path],
    count: int,
    seed: int,
    keep: Path | None = None,
    only: Sequence[str] = (),
    results: Path | None = None,
    run: Callable[[Sequence[str], Path], Outcome] = run_command,
) -> tuple[collections.Counter[str], list[str]]:
    """Outcomes by `command: exit code`, and what was wrong, a line each; faulty files are kept in `keep`."""
    campaign, cases = CAMPAIGNS[name], KeptCases(results)
    outcomes: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    temporary = tempfile.mkdtemp()  # a TemporaryDirectory would be removed by the end of each fork
    try:
        folder, out, sound = Path(temporary), Path(temporary) / "out", files[0]
        (folder / _TEMPORARY).mkdir()
        (folder / _VICTIM).write_bytes(_CONTENT)
        if run is run_here:
            _limit_memory()
        if campaign.first:
            sound = folder / "sound"
            words = [w.format(file=files[0], sound=sound) for w in campaign.first]
            assert not run_command(words, folder).code, words
        for label, case in campaign.damaged(files, count, random.Random(seed), folder):
            key = KeptCases.key(f"{name} {seed}: {label}", _tried(case))
            if (known := cases.find(key)) is None:
                stem = None if keep is None else keep / f"{name}-{seed}-{label.split()[0]}"
                words = {c: [w.format(case=case, out=out, sound=sound) for w in campaign.commands[c]]
                         for c in campaign.commands if not only or c in only}  # fmt: skip
                known = _run_case(name, label, case, words, out, stem, run)
                cases.add(key, *known)
            outcomes.update(f"{command}: {ended}" for command, ended in known[0].items())
            faults += known[1]
    finally:
        shutil.rmtree(temporary)
    return outcomes, faults


def _run_case(
    name: str,
    label: str,
    case: Path,
    commands: Mapping[str, Sequence[str]],
    out: Path,
    stem: Path | None,
    run: Callable[[Sequence[str], Path], Outcome],
) -> tuple[dict[str, str], list[str]]:
    """How each command ended, and what was wrong; `stem` begins the names of the files that a fault leaves."""
    ended: dict[str, str] = {}
    faults: list[str] = []
    cases = frozenset(out.parent.iterdir())  # this one, and those before it
    for command, words in commands.items():
        outcome = run(words, out.parent)
        ended[command] = outcome.fault.split()[0] if outcome.fault else f"exit code {outcome.code}"
        if outcome.fault:
            faults.append(f"{command} {label}: {outcome.fault}")
            if stem is not None:
                _keep(stem.with_name(f"{stem.name}-{command}"), case, outcome)
        faults += [f"{command} {label}: {text}" for text in _written_outside(out, cases)]
        made = [out.with_suffix(suffix) for suffix in (".npy", ".pte", ".tflite")]
        written = [p.name for p in (out, *made) if p.exists()]
        if name in ("programs", "structure") and outcome.code == 2 and written:
            faults.append(f"{command} {label}: exit code 2, but {written[0]} was written")
        for file in made:
            file.unlink(missing_ok=True)
        if command != "plan":
            shutil.rmtree(out, ignore_errors=True)
    out.with_suffix(".json").unlink(missing_ok=True)
    return ended, faults


def _written_outside(out: Path, cases: Collection[Path]) -> list[str]:
    """What a command did to files that are not its own; they are as before afterwards."""
    folder, found = out.parent, []
    if (folder / _VICTIM).read_bytes() != _CONTENT:
        found.append("the user's file was written")
        (folder / _VICTIM).write_bytes(_CONTENT)
    for path in (folder / _TEMPORARY).iterdir():
        found.append(f"{path.name} was left in TMPDIR")
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    own = {_TEMPORARY, _VICTIM, "printed", "sound", "npu_memplan_one_arena.h"}
    own |= {out.name, *(f"{out.name}{suffix}" for suffix in (".npy", ".pte", ".tflite", ".json"))}
    for path in folder.iterdir():
        if path.name not in own and path not in cases and not path.name.startswith("artifact"):
            found.append(f"{path.name} was written")
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return found


def _tried(case: Path) -> Path:
    """The file of a case that is damaged."""
    return case / "plan.json" if case.is_dir() else case


def _keep(stem: Path, case: Path, outcome: Outcome) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    source = _tried(case)
    if source.is_file():
        shutil.copyfile(source, f"{stem}{source.suffix}")
    Path(f"{stem}.txt").write_text(outcome.text, encoding="utf-8")


def main() -> int:
    """Run one campaign; 1 when a case misbehaved."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("kind", choices=CAMPAIGNS)
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("--here", action="store_true", help="in this process")
    parser.add_argument("--only", default="", help="of the campaign's commands, with commas")
    args = parser.parse_args()
    name, count, files = args.kind, args.count, [file.resolve() for file in args.files]
    began = time.monotonic()
    keep = os.environ.get("KEEP_DAMAGED")
    outcomes, faults = run_campaign(
        name, files, count, args.seed, Path(keep) if keep else None, args.only.split(",") if args.only else (),
        args.results, run_here if args.here else run_command,
    )  # fmt: skip
    for outcome, number in sorted(outcomes.items()):
        print(f"{number:6} {outcome}")
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{name}: {count} cases, {len(faults)} faults, {time.monotonic() - began:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
