"""Cycles by operator of Vela's stream: Vela's own estimate beside ours, the largest disagreements first.

    python -m benchmarks.vela_layers MODEL.tflite ... [--accelerator NAME] [--most 10]

Both are of one stream, at Vela's own places where those are a plan of ours. Vela names the results of the operations
that it makes of an operator; those whose result is none of the model's belong to the next one that is, and so do our
operators whose result Vela does not name. *Of the network*: the difference as a part of our cycles of it. A row is the
operator with the largest one of its kind, of all networks. Operations of no operator are in no row, and so are
operators that cannot be told apart, or that plain Vela leaves to the host. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from npu_memplan import pipeline
from npu_memplan.artifact.timing import Layer
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions
from npu_memplan.request import request
from npu_memplan.tuning.selection import original_plan

from .compile_cost import VELA_FLAGS


@dataclass(frozen=True, slots=True)
class Row:
    """Operators of a network between two results that Vela and the model both name; mostly one."""

    network: str
    total: int  # our cycles of the network
    layers: tuple[Layer, ...]
    theirs: int

    @property
    def ours(self) -> int:
        """Our cycles."""
        return sum(layer.cycles for layer in self.layers)

    @property
    def weight(self) -> float:
        """The difference as a part of the network."""
        return (self.ours - self.theirs) / self.total

    def __str__(self) -> str:
        names = ", ".join(f"{layer.operator} {layer.kind}" for layer in self.layers)
        moved: Counter[str] = Counter()
        for layer in self.layers:
            moved.update(layer.bytes)
        cells = [self.network, names, f"{self.theirs:,}", f"{self.ours:,}", f"{100 * self.weight:+.1f} %"]
        cells += [self.layers[-1].bound, str(sum(layer.operations for layer in self.layers))]
        cells += [", ".join(f"{memory} {size:,}" for memory, size in moved.items())]
        return f"| {' | '.join(cells)} |"


def own_estimate(model: Path, accelerator: str, *more: str) -> list[tuple[str, int]]:
    """The name of each operation's result, and Vela's cycles of the operation; `more`: options of Vela."""
    system, mode = next(flags for family, flags in VELA_FLAGS.items() if accelerator.startswith(family))
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("vela")), str(model), "--verbose-performance"]
        command += ["--accelerator-config", accelerator, "--config", "Arm/vela.ini", "--system-config", system]
        command += ["--memory-mode", mode, "--output-dir", folder, *more]
        subprocess.run(command, check=True, capture_output=True)
        (path,) = Path(folder).glob("*_per-layer.csv")
        lines = path.read_text(encoding="utf-8").splitlines()
    return [(row["Name"], int(float(row["Op Cycles"]))) for row in csv.DictReader(lines)]


def rows(model: Path, options: CompileOptions) -> Iterator[Row]:
    """Of all operators of a network that Vela takes to the NPU."""
    asked = request(replace(options, npu_compiler="vela"))
    planned = pipeline.plan(pipeline.extract_problem(pipeline.lower(pipeline.read(model, asked))))
    layers = pipeline.build(original_plan(planned) or planned).artifact.layers
    named, own = {layer.name for layer in layers}, own_estimate(model, options.accelerator)
    theirs: Counter[str] = Counter()
    waiting = 0
    for name, cycles in own:
        waiting += cycles
        if name in named:
            theirs[name] += waiting
            waiting = 0
    total, joined = sum(layer.cycles for layer in layers), []
    for layer in layers:
        joined.append(layer)
        if layer.name in theirs or layer is layers[-1]:
            yield Row(model.stem, total, tuple(joined), theirs[layer.name] + (waiting if layer is layers[-1] else 0))
            joined = []


def main() -> None:
    """Print the sums by network, and the rows of most weight."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--most", type=int, default=10, help="rows to print")
    requested = parser.parse_args()
    found: list[Row] = []
    for model in requested.models:
        try:
            made = list(rows(model, CompileOptions(accelerator=requested.accelerator)))
        except (NpuMemplanError, subprocess.CalledProcessError) as error:
            print(f"{model.stem}: {str(error).splitlines()[0][:100]}")
            continue
        found += made
        theirs, ours = sum(row.theirs for row in made), sum(row.ours for row in made)
        print(f"{model.stem}: Vela {theirs:,}, ours {ours:,} ({ours / (theirs or 1):.3f})", flush=True)
    print("| network | operator | Vela | ours | of the network | bound by | operations | bytes |")
    print("|---|---|--:|--:|--:|---|--:|---|")
    apart = (row for row in found if len(row.layers) == 1 and row.layers[0].operator >= 0 and row.theirs)
    kinds: dict[str, Row] = {}
    for row in sorted(apart, key=lambda row: -abs(row.weight)):
        kinds.setdefault(row.layers[0].kind, row)
    for row in list(kinds.values())[: requested.most]:
        print(row)


if __name__ == "__main__":
    main()
