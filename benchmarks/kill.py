"""Sends signals to commands in each of their phases, and looks at what they leave.

Usage: python -m benchmarks.kill [COUNT] [SEED] [COMMAND ...]    COMMAND: a key of `COMMANDS`

Invariant: exit code 0 means that every command that was asked to end by TERM, HUP or INT did so within `LIMIT_S` with
the exit code that a shell shows of it (or had ended before, with the result that it has without a signal), told no
fault, and left its output as it was or whole, nothing in TMPDIR, and no process. The same seed chooses the same phases.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["NPU_MEMPLAN_PROGRAM_CACHE"] = "off"

import argparse
import collections
import hashlib
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.damage import ENDED_WRONG, import_modules, run_cli
from tests.support.fork import ForkResult, run_in_fork

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT_S = 60
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_MODEL = str(REPOSITORY / "tests" / "models" / "kws_ref_model.tflite")
_QUICK = ("--effort", "quick", "-q")
COMMANDS: Mapping[str, Sequence[str]] = {
    "native": ("compile", _MODEL, "-o", "{out}", "--npu-compiler", "tvm", "--no-check", *_QUICK),
    "both": ("compile", _MODEL, "-o", "{out}", "--force", *_QUICK),
    "vela": ("compile", _MODEL, "-o", "{out}", "--npu-compiler", "vela", "--force", "--no-check", *_QUICK),
    "host": ("compile", _MODEL, "-o", "{out}", "--accelerator", "none", *_QUICK),
    "run": ("run", "{sound}", "--on", "local", "--reference", _MODEL),
    "sanitize": ("run", "{sound}", "--sanitize"),
    "report": ("report", "{sound}", "-o", "{out}"),
    "project": ("new-firmware", "{out}", "--board", "corstone-300-u55", "--model", "{sound}"),
}


@dataclass(frozen=True)
class Moment:
    """When a signal is sent: `delay_s` after the command entered its phase `phase` (0: began)."""

    number: signal.Signals
    phase: int
    delay_s: float


def run_command(words: Sequence[str], folder: Path, moment: Moment | None = None) -> tuple[ForkResult, int, float]:
    """How a command ended, how many phases it entered, and the seconds from the signal to its end."""
    from npu_memplan.process.incidents import listen_to_phases

    ours, theirs = os.pipe()
    phases, sent = 0, time.monotonic()

    def command() -> int:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # as `npu_memplan.__main__` begins
        os.close(ours)
        os.write(theirs, b"b")  # it began: before, the signal would meet Python's own handler
        os.chdir(folder)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder / "tmp")
        with listen_to_phases(lambda _: os.write(theirs, b".") and None):
            code = run_cli(words)
        if moment is None:
            (folder / "modules").write_text("\n".join(sys.modules))
        return code

    def send(process: int) -> None:
        nonlocal phases, sent
        os.close(theirs)
        os.read(ours, 1)
        while (moment is None or phases < moment.phase) and os.read(ours, 1):
            phases += 1
        if moment is not None:
            time.sleep(moment.delay_s)
            sent = time.monotonic()
            os.kill(process, moment.number)

    ended = run_in_fork(command, folder / "printed", LIMIT_S, send)
    os.close(ours)
    import_modules(folder / "modules")
    return ended, phases, time.monotonic() - sent


def content(folder: Path) -> dict[str, str]:
    """The files of a folder and their digests."""
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def living(folder: Path) -> list[str]:
    """Command lines of processes whose temporary files are in `folder`, and that a moment later still are there."""
    for _ in range(100):  # what was killed takes a moment
        if not (found := _living(folder)):
            break
        time.sleep(0.02)
    return found


def _living(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder / "tmp").encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:80])
        except OSError:
            continue
    return found


class Killer:
    """Sends signals to one command after another, and keeps what was wrong."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder, self._rng, self._out, self._sound = folder, rng, folder / "out", folder / "sound"
        (folder / "tmp").mkdir()
        self.codes: collections.Counter[str] = collections.Counter()
        self.faults: list[str] = []
        self._whole: dict[str, tuple[int, int, float, dict[str, str]]] = {}
        ended, *_ = run_command(self._words("both"), folder)
        assert ended.code == 0, ended.text
        self._out.rename(self._sound)
        self._before = content(self._sound)

    def _words(self, name: str) -> list[str]:
        return [word.format(out=self._out, sound=self._sound) for word in COMMANDS[name]]

    def _undisturbed(self, name: str) -> tuple[int, int, float, dict[str, str]]:
        """Exit code, phases, seconds and output of a command that no signal meets."""
        if name not in self._whole:
            for _ in range(2):  # the first imports its modules
                shutil.rmtree(self._out, ignore_errors=True)
                began = time.monotonic()
                ended, phases, _ = run_command(self._words(name), self._folder)
            self._whole[name] = ended.code, phases, time.monotonic() - began, content(self._out)
            shutil.rmtree(self._out, ignore_errors=True)
        return self._whole[name]

    def kill(self, name: str) -> None:
        """One signal, in a phase and at a time in it that are drawn."""
        code, phases, seconds, whole = self._undisturbed(name)
        moment = Moment(
            self._rng.choice(SIGNALS), self._rng.randrange(phases + 1), self._rng.random() * seconds / (phases + 1)
        )
        before: dict[str, str] = {}
        if "--force" in COMMANDS[name]:
            shutil.copytree(self._sound, self._out)
            before = self._before
        ended, _, seconds = run_command(self._words(name), self._folder, moment)
        self.codes[f"{name}: exit code {ended.code}"] += 1
        wrong = self._wrong(ended, seconds, code, moment.number, (before, whole))
        self.faults += [f"{name}, {moment}: {text}" for text in wrong]
        shutil.rmtree(self._out, ignore_errors=True)

    def _wrong(
        self, ended: ForkResult, seconds: float, code: int, number: int, outputs: tuple[dict[str, str], dict[str, str]]
    ) -> list[str]:
        wrong = []
        if ended.timed_out or seconds > LIMIT_S:
            wrong.append(f"it had not ended after {seconds:.0f} s")
        if ended.code not in (128 + number, -number, code):
            wrong.append(f"exit code {ended.code}")
        if ENDED_WRONG.search(ended.text):
            wrong.append(f"it printed {ended.text[-400:]!r}")
        made = content(self._out)
        if made not in (outputs[1:] if ended.code == code else outputs):
            wrong.append(f"it left {sorted(made)[:3]} of {len(outputs[1])} files")
        if content(self._sound) != self._before:
            wrong.append("the sound artifact was changed")
        if running := living(self._folder):
            wrong.append(f"it left {running[0]}")
        if left := [path.name for path in (self._folder / "tmp").iterdir()]:
            wrong.append(f"it left {left[0]} in TMPDIR")
            for name in left:
                shutil.rmtree(self._folder / "tmp" / name, ignore_errors=True)
        if more := {path.name for path in self._folder.iterdir()} - {"tmp", "printed", "out", "sound"}:
            wrong.append(f"it left {sorted(more)[0]}")
            for name in more:
                shutil.rmtree(self._folder / name, ignore_errors=True)
        return wrong


def run_campaign(count: int, seed: int, names: Sequence[str] = tuple(COMMANDS)) -> Killer:
    """`count` signals to the commands `names` in turn."""
    temporary = tempfile.mkdtemp()  # a TemporaryDirectory would be removed by the end of each fork
    try:
        killer = Killer(Path(temporary).resolve(), random.Random(seed))
        for number in range(count):
            killer.kill(names[number % len(names)])
    finally:
        shutil.rmtree(temporary)
    return killer


def main() -> int:
    """Run one campaign; 1 when a command misbehaved."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=100)
    parser.add_argument("seed", nargs="?", type=int, default=1)
    parser.add_argument("commands", nargs="*", default=list(COMMANDS))
    args = parser.parse_args()
    began = time.monotonic()
    killer = run_campaign(args.count, args.seed, args.commands)
    for outcome, number in sorted(killer.codes.items()):
        print(f"{number:6} {outcome}")
    for fault in killer.faults:
        print(f"FAULT {fault}")
    print(f"{args.count} signals, {len(killer.faults)} faults, {time.monotonic() - began:.0f} s")
    return 1 if killer.faults else 0


if __name__ == "__main__":
    sys.exit(main())
