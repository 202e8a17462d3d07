"""The default compile beside Vela: bytes, estimated cycles under every timing model, and CPU seconds.

    python -m benchmarks.default_compile MODEL.tflite ... [--accelerator NAME,NAME] [--effort normal] [--results FILE]
        [--windows] [--without-limit]

A row a model and accelerator: Vela's bytes (its arena; "planned": the best plan of its stream, where its arena counts
other things), ours, cycles of Vela's stream there and ours by the nominal model, their ratio, ours from model to
model, the worst ratio of the timing models that are searched under (the same one on both sides of each), the ratio
where one operation runs at a time, CPU seconds of a compile in this process, and which program was taken. With
`--without-limit`, programs are those of a search that lets that ratio be above 1. With `--results`, rows are appended
to a file, and what it has is not computed again: a long run can be ended and continued. With `--windows`, rows also say
by how many cycles, at most, the operations of ours inside a window of time need more of a memory than the window's
length, under any timing model: 0 unless the models are wrong. The last lines have, by accelerator, the geometric means
and the rows in which bytes or cycles are above Vela's, or windows too short. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import csv
import math
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from npu_memplan import compiler, pipeline
from npu_memplan.ethosu.time import JUDGED, estimate
from npu_memplan.ethosu.time.timeline import timeline
from npu_memplan.options import CompileOptions
from npu_memplan.request import request
from npu_memplan.stages import Compiled
from npu_memplan.tuning import selection
from tests.support.windows import excess_cycles

ROUNDING = 1e-6  # cycles of a window


@dataclass(frozen=True, slots=True)
class Row:
    """One compile; `message`: why there is none, or nothing to compare."""

    model: str
    accelerator: str
    effort: str
    whose: str = ""  # the bytes of Vela: "arena" or "planned"
    vela_bytes: int = 0
    bytes: int = 0
    vela_cycles: int = 0
    cycles: int = 0
    worst: float = math.nan  # ratio of cycles, of the timing models that are searched under
    seconds: float = math.nan
    excess: float = math.nan  # cycles of a memory above a window's length; NaN: not looked at
    least: int = 0  # cycles by the timing model that has the fewest
    most: int = 0
    alone: float = math.nan  # ratio of cycles where one operation runs at a time
    taken: str = ""  # which program
    message: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """What is computed once."""
        return self.model, self.accelerator, self.effort

    @property
    def above(self) -> bool:
        """Whether bytes, or cycles under a timing model, are above Vela's."""
        return not self.message and (self.bytes > self.vela_bytes or self.worst > 1 or self.alone > 1)

    def __str__(self) -> str:
        if self.message:
            return f"{self.model[-40:]:40} {self.accelerator:15} {self.message}"
        return (
            f"{self.model[-40:]:40} {self.accelerator:15} {self.whose:8} {self.vela_bytes:>9,} ours {self.bytes:>9,}  "
            f"Vela {self.vela_cycles:>10,} ours {self.cycles:>10,} {self.cycles / self.vela_cycles:.3f} "
            f"({self.least:,} to {self.most:,}) worst {self.worst:.3f} "
            f"alone {self.alone:.3f} {self.seconds:5.1f} s, {self.taken}"
            f"{'  ABOVE' if self.above else ''}"
            f"{'' if math.isnan(self.excess) else f'  excess {self.excess:.3f}'}"
        )


def cycles_by_model(compiled: Compiled) -> tuple[int, ...]:
    """Cycles of a program's NPU calls under each timing model."""
    memory_map = compiled.artifact.memory_map
    assert memory_map is not None
    maps = [replace(memory_map, assumptions=model) for model in JUDGED]
    launches = compiled.sources.launches
    calls = [launches[call.function] for call in compiled.artifact.calls if call.function in launches]
    return tuple(sum(estimate(c.commands, c.accelerator, where).total for c in calls) for where in maps)


def cpu_cycles(compiled: Compiled, of_vela: Compiled | None) -> tuple[int, int]:
    """Cycles of the CPU's calls, and of what Vela leaves to the CPU (in `of_vela`, where its program was built), of the
    NPU's clock.
    """
    artifact = compiled.artifact
    assert artifact.timing is not None
    clocks = artifact.timing.clock_hz / artifact.host_clock_hz
    ours = artifact.host_cycles or 0
    theirs = artifact.timing.vela_host_cycles if of_vela is None else of_vela.artifact.host_cycles or 0
    theirs = ours if theirs is None else theirs  # None: that of this program
    return round(ours * clocks), round(theirs * clocks)


def excess_by_windows(compiled: Compiled) -> float:
    """The most of a program's NPU functions under any timing model."""
    memory_map = compiled.artifact.memory_map
    assert memory_map is not None
    most = 0.0
    for launch in compiled.sources.launches.values():
        for model in JUDGED:
            line = timeline(launch.commands, launch.accelerator, replace(memory_map, assumptions=model))
            most = max(most, excess_cycles(line.slots))
    return most if most >= ROUNDING else 0.0


def taken_of(compiled: Compiled) -> str:
    """What the note of a search calls its program."""
    notes = compiled.artifact.notes
    return next((note.removeprefix("taken: ").split(",")[0] for note in notes if note.startswith("taken: ")), "")


def measure(model: Path, name: str, options: CompileOptions, windows: bool) -> Row:
    """One row; whatever ends it is its message."""
    row = Row(name, options.accelerator, options.effort)
    try:
        loaded = pipeline.read(model, request(replace(options, npu_compiler="vela")))
        if not sum(loaded.vela_stream_cycles):
            return replace(row, message="nothing of Vela's runs on the NPU")
        theirs, size, whose = loaded.vela_stream_cycles, sum(loaded.vela_arena_bytes.values()), "arena"
        of_vela = None
        if not size or loaded.kept_from_vela:  # an artifact has no figures of Vela's where operators are kept from it
            planned = pipeline.plan(pipeline.extract_problem(pipeline.lower(loaded)))
            of_vela = pipeline.build(planned)
        if not size and of_vela is not None:
            whose, size = "planned", sum(usage.used_bytes for usage in planned.plan.usage)
            theirs = cycles_by_model(of_vela)
        started = time.process_time()
        made = compiler.plan_model(model, options)
        seconds = time.process_time() - started
        ours, cpu, cpu_of_vela = cycles_by_model(made), *cpu_cycles(made, of_vela)
        excess = excess_by_windows(made) if windows else math.nan
    except Exception as error:
        return replace(row, message=f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:100]}")
    used = sum(usage.used_bytes for usage in made.artifact.plan.usage)
    if not sum(ours):
        return replace(row, message="nothing of ours runs on the NPU")
    ours, theirs = tuple(n + cpu for n in ours), tuple(n + cpu_of_vela for n in theirs)
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return replace(
        row, whose=whose, vela_bytes=size, bytes=used, vela_cycles=theirs[0], cycles=ours[0],
        worst=max(ratios[:-1]), seconds=round(seconds, 2), excess=excess,
        least=min(ours[:-1]), most=max(ours[:-1]), alone=ratios[-1], taken=taken_of(made),
    )  # fmt: skip


def read_rows(path: Path) -> list[Row]:
    """The rows of a file of results, in its order; a line that was cut off is left out."""
    kinds = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(Row)}
    with open(path, newline="", encoding="utf-8") as file:
        found = [{name: text for name, text in values.items() if text is not None} for values in csv.DictReader(file)]
    return [Row(**{n: kinds[n](text) for n, text in values.items()}) for values in found if len(values) == len(kinds)]


def append_row(path: Path, row: Row) -> None:
    """Add `row` to the file of results."""
    with open(path, "a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        if not file.tell():
            writer.writeheader()
        writer.writerow(asdict(row))


def print_totals(rows: Iterable[Row]) -> None:
    """A line an accelerator."""
    every = list(rows)
    for accelerator in dict.fromkeys(row.accelerator for row in every):
        found = [row for row in every if row.accelerator == accelerator and not row.message]
        above = [row.model for row in found if row.above]
        if found:
            nominal, worst, alone = (
                math.exp(sum(map(math.log, ratios)) / len(found))
                for ratios in (
                    [r.cycles / r.vela_cycles for r in found],
                    [r.worst for r in found],
                    [r.alone for r in found],
                )
            )
            print(
                f"{accelerator}: {len(found)} networks, geometric mean {nominal:.3f}, worst model {worst:.3f}, "
                f"alone {alone:.3f} ({sum(row.alone > 1 for row in found)} above 1); "
                f"{len(above)} above Vela: {', '.join(above) or 'none'}"
            )
        checked = [row for row in found if not math.isnan(row.excess)]
        if checked:
            short = [row.model for row in checked if row.excess]
            print(f"{accelerator}: {len(checked)} programs by windows; too short: {', '.join(short) or 'none'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--effort", default="normal")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--windows", action="store_true")
    parser.add_argument("--without-limit", action="store_true")
    given = parser.parse_args()
    if given.without_limit:
        selection.reference_cycles = lambda theirs, *_: (*theirs[:-1], math.inf)
    known = read_rows(given.results) if given.results and given.results.exists() else []
    rows = {row.key: row for row in known}
    for model in given.models:
        for accelerator in given.accelerator.split(","):
            options = CompileOptions(accelerator, effort=given.effort).resolve_defaults()
            name = f"{model.parent.name}/{model.stem}"
            if (name, accelerator, given.effort) not in rows:
                row = measure(model, name, options, given.windows)
                rows[row.key] = row
                if given.results:
                    append_row(given.results, row)
            print(rows[name, accelerator, given.effort], flush=True)
    print_totals(rows.values())


if __name__ == "__main__":
    main()
