"""Bytes of networks with many branches: by order alone, TFLite Micro's planner, Vela, the default and the fewest.

    python -m benchmarks.branching [MODEL.tflite ...] [--networks 40] [--operators 12,24,36,48,60] [--size 24]
        [--kinds randwire,darts,...] [--heads]

A row a network: of eight kinds with drawn branches, in turn, of so many operators, or of the files that are given.
Drawn networks end in maps, which no plan can share; with --heads those that classify end in classes, as published ones.
*order* is the most bytes alive at once, nothing in place: in the file's order, in ours, and in the best one by a search
of this benchmark's own over all sets of operators that may have run ("?" past a number of them). Then TFLite Micro's
planner on the file, Vela's arena with `--optimise Size`, the default compile, `--objective bytes`; the default's cycles
over those of Vela's stream, by our estimate; what the checks found; CPU seconds and peak memory of both compiles.
The exit code is 1 where an order is not the best, a default has more bytes than Vela's arena or more cycles than its
stream, or a check found a difference.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from npu_memplan import planners
from npu_memplan.cache import VARIABLE
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem
from npu_memplan.problem.operator_order import GraphOperator, GraphStorage, OperatorGraph
from tests.support.random_networks.branching import KINDS, branching

from .compile_cost import run_command, vela_command

ACCELERATOR = "ethos-u55-256"
MOST_SETS = 100_000  # of operators that have run, of one number of operators


@dataclass(frozen=True, slots=True)
class Compiled:
    """What one compile made, and what it took."""

    bytes: int
    cycles: int
    vela_bytes: int
    vela_cycles: int
    check: str
    cpu_seconds: float
    peak_mb: float


@dataclass(frozen=True, slots=True)
class Row:
    """A network."""

    name: str
    operators: int
    given: int
    ordered: int
    best: int | None
    tflm: int
    vela_size: int
    default: Compiled
    fewest: Compiled

    def faults(self) -> Iterator[str]:
        """What must not be."""
        if self.best is not None and self.ordered != self.best:
            yield f"{self.name}: an order has {self.best:,} bytes, ours {self.ordered:,}"
        if self.default.bytes > self.default.vela_bytes:
            yield f"{self.name}: {self.default.bytes:,} bytes by default, Vela's arena {self.default.vela_bytes:,}"
        if self.default.cycles > self.default.vela_cycles:
            yield f"{self.name}: {self.default.cycles:,} cycles by default, Vela's stream {self.default.vela_cycles:,}"
        if self.fewest.bytes > self.default.bytes:
            yield f"{self.name}: {self.fewest.bytes:,} bytes at least, {self.default.bytes:,} by default"
        for compiled in (self.default, self.fewest):
            if compiled.check != "equal":
                yield f"{self.name}: check: {compiled.check}"

    def text(self) -> str:
        """A line of the table."""
        best = "?" if self.best is None else f"{self.best:,}"
        sizes = f"{self.given:,} | {self.ordered:,} | {best} | {self.tflm:,} | {self.vela_size:,}"
        cells = f"{self.default.bytes:,} | {self.fewest.bytes:,} | {self.fewest.bytes / self.vela_size:.3f}"
        cells += f" | {self.fewest.bytes / (self.best or self.ordered):.3f}"
        cells += f" | {self.default.cycles / self.default.vela_cycles:.3f}"
        costs = f"{self.default.cpu_seconds:.1f} | {self.fewest.cpu_seconds:.1f} | {self.default.peak_mb:.0f}"
        return f"| {self.name} | {self.operators} | {sizes} | {cells} | {costs} |"


HEAD = (
    "| network | operators | order: file | ours | best | TFLite Micro | Vela Size | default | fewest"
    " | fewest / Vela Size | fewest / best order | cycles / Vela | CPU s, default | fewest | MB |"
)


def graph_of(network: Network) -> OperatorGraph:
    """The operators and the tensors that are no constants; nothing is written in place."""
    made = {*network.inputs, *(t for o in network.operators for t in o.outputs)}
    places = {tensor: place for place, tensor in enumerate(sorted(made))}
    storages = tuple(
        GraphStorage(network.tensors[t].size_bytes, t in network.inputs, t in network.outputs) for t in places
    )
    producer: dict[int, int] = {}
    operators = []
    for index, operator in enumerate(network.operators):
        read = [t for t in operator.inputs if t in made]
        after = tuple(sorted({producer[t] for t in read if t in producer}))
        operators.append(GraphOperator(tuple(places[t] for t in (*read, *operator.outputs)), after))
        producer.update(dict.fromkeys(operator.outputs, index))
    return OperatorGraph(tuple(operators), storages)


def tflm_problem(graph: OperatorGraph) -> Problem:
    """TFLite Micro's lifetimes: inputs from the start, outputs to the end, others from maker to last reader."""
    buffers, end = [], len(graph.operators)
    for number, storage in enumerate(graph.storages):
        users = [i for i, operator in enumerate(graph.operators) if number in operator.storages]
        life = Lifetime(0 if storage.given else users[0], end if storage.kept else users[-1] + 1)
        buffers.append(Buffer(str(number), storage.size_bytes, (life,), 16))
    return Problem(tuple(buffers), (Pool("arena"),))


def best_peak(graph: OperatorGraph) -> int | None:
    """Least peak over all orders, set by set of what has run; None where there are too many sets."""
    users = [0] * len(graph.storages)  # as bits
    for index, operator in enumerate(graph.operators):
        for storage in operator.storages:
            users[storage] |= 1 << index
    before = [sum(1 << a for a in operator.after) for operator in graph.operators]
    sizes = [s.size_bytes for s in graph.storages]

    def alive(done: int) -> int:
        """Bytes alive between operators."""
        return sum(
            size
            for size, read, s in zip(sizes, users, graph.storages, strict=True)
            if (s.given or read & done) and (s.kept or read & ~done)
        )

    levels = {0: 0}
    for _ in graph.operators:
        following: dict[int, int] = {}
        for done, peak in levels.items():
            base = alive(done)
            for index, operator in enumerate(graph.operators):
                bit = 1 << index
                if done & bit or before[index] & ~done:
                    continue
                born = {s for s in operator.storages if not graph.storages[s].given and not users[s] & done}
                reached = max(peak, base + sum(sizes[s] for s in born))
                known = following.get(done | bit)
                if known is None or reached < known:
                    following[done | bit] = reached
        if len(following) > MOST_SETS:
            return None
        levels = following
    return next(iter(levels.values()))


def compile_network(model: Path, folder: Path, options: Sequence[str]) -> Compiled:
    """Compile, with the check."""
    command = [sys.executable, "-m", "npu_memplan", "compile", str(model), "--accelerator", ACCELERATOR, "--json"]
    command += ["-o", str(folder / "artifact"), "--force", "--check", *options]
    printed, errors = folder / "printed", folder / "errors"
    with printed.open("w") as output, errors.open("w") as error:
        cost = run_command(command, folder / "artifact", {**os.environ, VARIABLE: "off"}, output, error)
    if cost.code:
        raise SystemExit(f"{model.name} {options}: {errors.read_text()[-1000:]}")
    found = json.loads(printed.read_text())
    return Compiled(
        sum(pool["used_bytes"] for pool in found["pools"]),
        found["estimated_cycles"],
        found["vela_arena_bytes"] or 0,
        found["vela_stream_cycles"] or 0,
        found["check"]["verdict"] if found["check"] else "none",
        cost.cpu,
        cost.peak_mb,
    )


def vela_size_bytes(model: Path, folder: Path) -> int:
    """The arena by `vela --optimise Size`, as its summary says."""
    program, *words = vela_command(model, ACCELERATOR, folder)
    command = [str(Path(sys.executable).with_name(program)), *words, "--optimise", "Size"]
    subprocess.run(command, check=True, capture_output=True)
    (summary,) = folder.glob(f"{model.stem}_summary_*.csv")
    with summary.open(newline="") as file:
        (row,) = csv.DictReader(file)
    return round(float(row["sram_memory_used"]) * 1024)


def measure(model: Path, folder: Path) -> Row:
    """A row."""
    content = model.read_bytes()
    network = read_network(content, model.name)
    graph = graph_of(network)
    tflm = planners.plan(tflm_problem(graph), "greedy-by-size")
    return Row(
        model.stem,
        len(network.operators),
        graph.peak_bytes(range(len(graph.operators))),
        graph.best_order().peak_bytes,
        best_peak(graph),
        sum(usage.used_bytes for usage in tflm.usage),
        vela_size_bytes(model, folder),
        compile_network(model, folder, []),
        compile_network(model, folder, ["--objective", "bytes"]),
    )


def drawn(
    count: int, kinds: Sequence[str], sizes: Sequence[int], maps: int, heads: bool, folder: Path
) -> Iterator[Path]:
    """Files of drawn networks."""
    for seed in range(count):
        kind, most = kinds[seed % len(kinds)], sizes[seed // len(kinds) % len(sizes)]
        path = folder / f"{kind}_{most}_{seed}.tflite"
        path.write_bytes(branching(kind, most, seed, maps, heads).finish())
        yield path


def main() -> None:
    """Print the table, and what must not be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--networks", type=int, default=40)
    parser.add_argument("--operators", default="12,24,36,48,60")
    parser.add_argument("--size", type=int, default=24, help="rows and columns of the image of drawn networks")
    parser.add_argument("--kinds", default=",".join(KINDS), help="of drawn networks")
    parser.add_argument("--heads", action="store_true", help="drawn networks that classify end in classes")
    requested = parser.parse_args()
    rows, faults = [], 0
    print(f"{HEAD}\n|---|{'--:|' * (HEAD.count('|') - 2)}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sizes = [int(word) for word in requested.operators.split(",")]
        kinds = requested.kinds.split(",")
        networks = drawn(requested.networks, kinds, sizes, requested.size, requested.heads, folder)
        for model in requested.models or networks:
            rows.append(measure(model, folder))
            print(rows[-1].text(), flush=True)
            for fault in rows[-1].faults():
                print(f"FAULT {fault}", flush=True)
                faults += 1
    print(
        f"fewest / Vela Size {geometric_mean([row.fewest.bytes / row.vela_size for row in rows]):.3f} (geometric mean)"
    )
    wired = [row.fewest.bytes / (row.best or row.ordered) for row in rows if row.name.startswith(("randwire", "darts"))]
    if wired:
        print(f"fewest / best order of RandWire and DARTS {geometric_mean(wired):.3f}")
    raise SystemExit(1 if faults else 0)


if __name__ == "__main__":
    main()
