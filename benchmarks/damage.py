"""Damages models, plans and problems at random, and gives each to the command line as a user would.

Usage: python -m benchmarks.damage KIND [COUNT] [SEED] [FILE ...]    KIND: a key of `CAMPAIGNS`, or `all`

Invariant: exit code 0 means that every case ended with exit code 0, 1 or 2, without a traceback, a signal, more than
`CPU_LIMIT_S` seconds of CPU or more than `MEMORY_LIMIT_BYTES` of memory. A case is a fork of a process that has
imported everything, so thousands are affordable; the same seed makes the same files.
"""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import collections
import importlib
import json
import random
import re
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fork import run_in_fork

REPOSITORY = Path(__file__).resolve().parent.parent
CPU_LIMIT_S = 10
WALL_LIMIT_S = 240  # what waits for ever is ended here; a case on a busy machine has taken more than a minute
MEMORY_LIMIT_BYTES = 2 << 30
_WORDS = (0, 1, 2, 3, 4, 7, 16, 127, 255, 65535, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1)
_FLOATS = (0.0, -1.0, float("nan"), float("inf"), 1e-40, 1e30)


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
    warm: tuple[str, ...] = ()  # modules to import before the first case
    first: tuple[str, ...] = ()


# ------------------------------------------------------------------ damage


def damaged_bytes(data: bytes, rng: random.Random, find: Callable[[bytes], list[tuple[int, int]]]) -> bytes:
    """A file with some of its tables, numbers or bytes changed, or its end cut off; seldom only weights."""
    spans = find(data)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        low, high = rng.choices(spans, [b - a for a, b in spans])[0]
        at = rng.randrange(low, high)
        kind = rng.randrange(8)
        if kind < 2:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at] = rng.randrange(256)
        elif kind < 5:
            _put(changed, at & ~3, struct.pack("<I", rng.choice(_WORDS)))
        elif kind == 5:
            _put(changed, at & ~3, struct.pack("<f", rng.choice(_FLOATS)))
        elif kind == 6:
            _put(changed, at & ~1, struct.pack("<H", rng.choice((0, 1, 4, 6, 8, 300, 65535))))
        elif rng.randrange(4) == 0:
            return bytes(changed[: rng.randrange(len(changed))])
        else:
            other = rng.choice(spans)[0]
            _put(changed, at & ~3, bytes(changed[other : other + rng.choice((4, 8, 32))]))
    return bytes(changed)


def _put(data: bytearray, at: int, value: bytes) -> None:
    data[at : min(at + len(value), len(data))] = value[: max(0, len(data) - at)]


def _program_parts(data: bytes) -> list[tuple[int, int]]:
    """A `.pte` without the middles of its constants, where damage only changes weights."""
    from npu_memplan.models.executorch.reading import read_program

    spans, at = [], 0
    for method in read_program(data).methods:
        for delegate in sorted(method.delegates, key=lambda d: d.file_offset):
            blocks = bytes(delegate.data)
            start = blocks.find(b"weight_data")
            length = int.from_bytes(blocks[start + 16 : start + 20], "little") if start >= 0 else 0
            if length > 64:
                begin = delegate.file_offset + start + 48
                spans.append((at, begin))
                at = begin + length - 32
    return [(a, b) for a, b in [*spans, (at, len(data))] if b > a]


def _tables(data: bytes, largest: int = 256) -> list[tuple[int, int]]:
    """The file without the middles of its large buffers, where damage only changes weights."""
    import tflite

    spans, model = [], tflite.Model.GetRootAsModel(data, 0)
    for i in range(model.BuffersLength()):
        length = model.Buffers(i).DataLength()
        if length > largest:
            table = model.Buffers(i)._tab
            start = table.Vector(table.Offset(4))
            spans.append((start + 16, start + length - 16))
    result, at = [], 0
    for start, end in sorted(spans):
        result.append((at, start))
        at = end
    return [(a, b) for a, b in [*result, (at, len(data))] if b > a]


_ODD: tuple[object, ...] = (
    None, True, -1, 0, 1, 1.5, 1 << 31, (1 << 60) - 1, 1 << 60, 1 << 70, -(1 << 63), 1e300, "", "x", "[/nope]", "../x",
    "\u0000", "é", [], {}, [1, 10**9, 5], [[]], ["x"], {"x": 1}, "object", "npu", "sram", "optimal",
)  # fmt: skip


def damaged_json(text: str, rng: random.Random) -> str:
    """A JSON document with values changed, moved, repeated or left out, or damaged as text."""
    kind = rng.randrange(20)
    if kind == 0:
        return text[: rng.randrange(len(text))]
    if kind == 1:
        at = rng.randrange(len(text))
        return text[:at] + chr(rng.randrange(1, 300)) + text[at + 1 :]
    if kind == 2:
        odd = ("NaN", "-Infinity", "9" * 5000, '"\\ud800"', "[" * 200_000, "[" * 500 + "]" * 500, "1e999")
        numbers = list(re.finditer(r"(?<=[\s:,\[])-?\d+(?=[,\]}\s])", text))
        found = rng.choice(numbers)
        return text[: found.start()] + rng.choice(odd) + text[found.end() :]
    document = json.loads(text)
    for _ in range(rng.choice((1, 1, 2, 3))):
        places = list(_places(document))
        holder, key = rng.choice(places)
        what = rng.randrange(6)
        if what == 0:
            del holder[key]
        elif what == 1:
            other, place = rng.choice(places)
            holder[key] = json.loads(json.dumps(other[place])) if place in _keys(other) else None
        elif what == 2 and type(holder[key]) is int:
            holder[key] += rng.choice((-1, 1, 16, 1 << 20, -(1 << 20), 1 << 40))
        elif what == 3 and isinstance(holder, list):
            holder.insert(key, json.loads(json.dumps(holder[key])))
        else:
            holder[key] = rng.choice(_ODD)
        if not document:
            break
    return json.dumps(document)


def _keys(holder: object) -> Sequence[object]:
    return list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()


def _places(value: object) -> Iterator[tuple[object, object]]:
    for key in _keys(value):
        yield value, key
        yield from _places(value[key])  # type: ignore[index]


def damaged_models(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """`count` `.tflite` files made of `files` in turn."""
    yield from _damaged(files, count, rng, folder / "m.tflite", _tables)


def damaged_programs(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """`count` `.pte` files made of `files` in turn."""
    yield from _damaged(files, count, rng, folder / "m.pte", _program_parts)


def _damaged(
    files: Sequence[Path], count: int, rng: random.Random, path: Path, find: Callable[[bytes], list[tuple[int, int]]]
) -> Iterator[tuple[str, Path]]:
    sources = [(f.name, f.read_bytes()) for f in files]
    for i in range(count):
        name, data = sources[i % len(sources)]
        path.write_bytes(damaged_bytes(data, rng, find))
        yield f"{i} of {name}", path


def damaged_plans(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """Compiled models (folders) whose plan.json is damaged."""
    homes = []
    for number, source in enumerate(files):
        home = folder / f"artifact{number}"
        shutil.copytree(source, home)
        homes.append((home, (source / "plan.json").read_text(encoding="utf-8")))
    for i in range(count):
        home, text = homes[i % len(homes)]
        (home / "plan.json").write_text(damaged_json(text, rng), encoding="utf-8", errors="surrogatepass")
        yield f"{i} of {files[i % len(homes)].name}", home


def damaged_problems(files: Sequence[Path], count: int, rng: random.Random, folder: Path) -> Iterator[tuple[str, Path]]:
    """Problems as JSON, and as CSV where a file is one."""
    for i in range(count):
        source = files[i % len(files)]
        text = source.read_text(encoding="utf-8")
        path = folder / f"p{source.suffix}"
        if source.suffix == ".json":
            text = damaged_json(text, rng)
        else:
            cells = re.split(r"([,\n])", text)
            for _ in range(rng.choice((1, 1, 2))):
                cells[rng.randrange(len(cells))] = rng.choice(("", "-1", "9" * 5000, "x", "[/nope]", '"', "1e3", "\n"))
            text = "".join(cells)
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        yield f"{i} of {source.name}", path


_TVM = ("tvm.relax", "npu_memplan.pipeline", "npu_memplan.frontend.tflite.lifted", "npu_memplan.frontend.host_ops",
        "npu_memplan.commands.compile", "npu_memplan.report.files", "npu_memplan.planners.auto")  # fmt: skip
_LOWERED = (
    *_TVM,
    "npu_memplan.frontend.tflite.lowered",
    "npu_memplan.frontend.tflite.operators",
    "npu_memplan.relax",
)
_READERS = ("npu_memplan.report.files", "npu_memplan.report.text.explain", "npu_memplan.report.text.diff",
            "npu_memplan.commands.verify", "npu_memplan.commands.plan", "numpy", "rich.console")  # fmt: skip
_RUN = ("fvp_runner.runner", "fvp_runner.host.runner", "npu_memplan.commands.run")
_COMPILE = ("compile", "{case}", "-o", "{out}")
CAMPAIGNS = {
    "none": Campaign(damaged_models, {"none": (*_COMPILE, "--accelerator", "none")}, _TVM),
    "vela": Campaign(damaged_models, {"vela": _COMPILE}, _TVM),
    "tvm": Campaign(damaged_models, {"tvm": (*_COMPILE, "--npu-compiler", "tvm")}, _LOWERED),
    "streams": Campaign(
        damaged_models,
        {"simulate": ("simulate", "{case}"), "disassemble": ("disassemble", "{case}"), "compile": _COMPILE},
        (*_TVM, "fvp_runner.npu_model.network.network", "npu_memplan.commands.simulate"),
    ),
    "programs": Campaign(
        damaged_programs,
        {"simulate": ("simulate", "{case}", "--output", "{out}.npy"), "run": ("run", "{case}", "--output", "{out}.npy"),
         "disassemble": ("disassemble", "{case}"), "check": ("check", "{case}", "--board", "corstone-320"),
         "report": ("report", "{case}", "-o", "{out}"),
         "compile": ("compile", "{case}", "-o", "{out}.pte", "--objective", "bytes"),
         "arena": ("compile", "{case}", "-o", "{out}.pte", "--objective", "bytes", "--one-arena")},
        ("fvp_runner.executorch.command", "fvp_runner.executorch.check", "fvp_runner.executorch.compiling",
         "npu_memplan.commands.compile", "npu_memplan.planners.auto", "npu_memplan.commands.simulate",
         "npu_memplan.commands.run", "npu_memplan.executorch.memory_map", "npu_memplan.report.files"),
    ),
    "references": Campaign(
        damaged_models,
        {"run": ("run", "{sound}", "--on", "local", "--reference", "{case}")},
        (*_RUN, "fvp_runner.references.tflite", *_TVM),
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
        (*_READERS, *_RUN),
    ),
    "problems": Campaign(
        damaged_problems,
        {"plan": ("plan", "{case}", "--time-limit", "0.2", "-o", "{out}.json"),
         "report": ("report", "{case}", "--plan", "{out}.json", "-o", "{out}")},
        (*_READERS, "npu_memplan.planners.auto"),
    ),
}  # fmt: skip


# ------------------------------------------------------------------ running


def run_command(arguments: Sequence[str], folder: Path) -> Outcome:
    """`npu-memplan arguments` in a fork of this process, under limits."""
    from npu_memplan import cli

    def command() -> int:
        os.chdir(folder)
        space = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (space + MEMORY_LIMIT_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S + 1))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["npu-memplan", *arguments]
        try:
            cli.main()
        except SystemExit as end:
            return end.code if isinstance(end.code, int) else 1
        return 0

    ended = run_in_fork(command, folder / "printed", WALL_LIMIT_S)
    return Outcome(ended.code, _fault(ended.code, ended.text, ended.timed_out, ended.memory_bytes), ended.text)


def _fault(code: int, text: str, hung: bool, memory_bytes: int) -> str:
    if hung or code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "hang"
    if code < 0:
        return f"signal {-code}"
    if "Traceback (most recent call last)" in text or "Internal error" in text or code not in (0, 1, 2):
        places = re.findall(r'File ".*?([^/"]+)", line (\d+)', text)
        last = text.strip().splitlines()[-1] if text.strip() else ""
        return f"traceback {':'.join(places[-1]) if places else ''} {last[:90]}"
    return "memory" if memory_bytes > MEMORY_LIMIT_BYTES else ""


def run_campaign(
    name: str, files: Sequence[Path], count: int, seed: int, keep: Path | None = None, only: Sequence[str] = ()
) -> tuple[collections.Counter[str], list[str]]:
    """Outcomes by `command: exit code`, and what was wrong, a line each; faulty files are kept in `keep`."""
    campaign = CAMPAIGNS[name]
    for module in campaign.warm:
        importlib.import_module(module)
    outcomes: collections.Counter[str] = collections.Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder, out, sound = Path(temporary), Path(temporary) / "out", files[0]
        if campaign.first:
            sound = folder / "sound"
            words = [w.format(file=files[0], sound=sound) for w in campaign.first]
            assert not run_command(words, folder).code, words
        for label, case in campaign.damaged(files, count, random.Random(seed), folder):
            for command, pattern in campaign.commands.items():
                if only and command not in only:
                    continue
                words = [w.format(case=case, out=out, sound=sound) for w in pattern]
                outcome = run_command(words, folder)
                ended = outcome.fault.split()[0] if outcome.fault else f"exit code {outcome.code}"
                outcomes[f"{command}: {ended}"] += 1
                if outcome.fault:
                    faults.append(f"{command} {label}: {outcome.fault}")
                    if keep is not None:
                        _keep(keep / f"{name}-{command}-{label.split()[0]}", case, outcome)
                made = [out.with_suffix(suffix) for suffix in (".npy", ".pte")]
                written = [p.name for p in (out, *made) if p.exists()]
                if name == "programs" and outcome.code == 2 and written:
                    faults.append(f"{command} {label}: exit code 2, but {written[0]} was written")
                for file in made:
                    file.unlink(missing_ok=True)
                if command != "plan":
                    shutil.rmtree(out, ignore_errors=True)
            out.with_suffix(".json").unlink(missing_ok=True)
    return outcomes, faults


def _keep(stem: Path, case: Path, outcome: Outcome) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    source = case / "plan.json" if case.is_dir() else case
    shutil.copyfile(source, f"{stem}{source.suffix}")
    Path(f"{stem}.txt").write_text(outcome.text, encoding="utf-8")


def main() -> int:
    """TimedRun one campaign; 1 when a case misbehaved."""
    name, count, seed = sys.argv[1], int([*sys.argv, 0, 200][2] or 200), int([*sys.argv, 0, 0, 1][3] or 1)
    files = [Path(f).resolve() for f in sys.argv[4:]]
    began = time.monotonic()
    keep = os.environ.get("KEEP_DAMAGED")
    outcomes, faults = run_campaign(name, files, count, seed, Path(keep) if keep else None)
    for outcome, number in sorted(outcomes.items()):
        print(f"{number:6} {outcome}")
    for fault in faults:
        print(f"FAULT {fault}")
    print(f"{name}: {count} cases, {len(faults)} faults, {time.monotonic() - began:.0f} s")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
