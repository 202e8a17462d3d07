"""The estimate beside every cycle count of Arm's FVPs that others published: the tables of docs/time_validation.md.

    python -m benchmarks.time_cells FOLDER [--page docs/time_validation.md]

FOLDER has the published counts (`cells_networks.csv`, `cells_yolo.csv`, `cells_micro.csv`, `cells_sweeps.csv`) and
single convolutions. Streams of the networks are Vela 5.0.0's, which were measured and are kept with the tests; those of
single convolutions are the installed Vela's. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from npu_memplan.ethosu.arch import Architecture, Language, accelerator
from npu_memplan.ethosu.stream.decode import Command, decode
from npu_memplan.ethosu.time import Direction, Estimate, Memory, MemoryMap, System, estimate, load_system
from npu_memplan.target_data import load_memory_mode
from npu_memplan.vela.compiler import VelaOptions, compile_tflite

GOLDEN = Path(__file__).parents[1] / "tests" / "golden"
MARK = "<!-- made by benchmarks/time_cells.py -->"
HEADINGS = ("| cells | how many | geometric mean | lowest | highest |", "|---|--:|--:|--:|--:|")
STEP = 1000  # of the counter of all cycles: exactly so in all 184 rows that have the active cycles, too
Row = Mapping[str, str]
_ADAPTERS = {"u55": "FVP_Ethos_U55_High_End", "u65": "FVP_Ethos_U65_High_End"}
_U85 = {128: "Low", 256: "Low", 512: "Mid", 1024: "Mid_1024", 2048: "High"}
_SYSTEMS = {"_Mid_512": "_Mid", "_Mid_1024": "_Mid", "_High_2048": "_High"}  # the evaluation kit's names: Vela's


@dataclass(frozen=True, slots=True)
class Cell:
    """One published count."""

    group: str  # of the table
    name: str
    published: int
    found: Estimate
    beats: tuple[int, ...] = ()  # reads and writes of port 0, of port 1
    reading: bool = False  # the cycle counter's, which goes on until its next step

    @property
    def estimate(self) -> int:
        """As the published count: cycles, or what the counter would read of them."""
        cycles = self.found.total
        return -(-cycles // STEP) * STEP + self.published % STEP if self.reading else cycles

    @property
    def ratio(self) -> float:
        return self.estimate / self.published

    @property
    def moved(self) -> tuple[int, ...]:
        """Beats of the estimate, as `beats`."""
        return tuple(self.found.beats(port, writes) for port in (0, 1) for writes in (False, True))


def cells(folder: Path) -> Iterator[Cell]:
    """All that the estimate has an answer to."""
    yield from networks(folder)
    yield from micro(folder)
    yield from sweeps(folder)


def networks(folder: Path) -> Iterator[Cell]:
    """Four networks on every NPU."""
    for row in rows(folder / "cells_networks.csv") + rows(folder / "cells_yolo.csv"):
        npu = accelerator(f"ethos-{row['npu']}-{row['macs']}")
        commands, memory_map = measured_on(row, npu)
        adapters = ", adapters off" if row["adapters"] == "off" else ""
        mode = "" if row["memory_mode"] == "Dedicated_Sram" or row["npu"] == "u55" else f", {row['memory_mode']}"
        beats = tuple(int(row[key]) for key in ("p0_rd_beats", "p0_wr_beats", "p1_rd_beats", "p1_wr_beats") if row[key])
        found = estimate(commands, npu, memory_map)
        yield Cell(
            f"{npu.name.rpartition('-')[0]} networks{adapters}",
            f"{npu.name} {row['model']}{mode}{', compiled for ' + row['system_config'] if odd(row) else ''}",
            int(row["active"] or row["total"]),
            found,
            beats,
            not row["active"],
        )


def measured_on(row: Row, npu: Architecture) -> tuple[tuple[Command, ...], MemoryMap]:
    """The stream of a published count, and the memories that it ran on."""
    u85 = npu.language is Language.U85
    kind = "Low" if odd(row) else row["memory_mode"]
    commands = measured(row["model"], npu, f".{kind}" if u85 and kind != "Dedicated_Sram" else "")
    return commands, around(npu, row["memory_mode"], off=row["adapters"] == "off")


def odd(row: Row) -> bool:
    """Compiled for another configuration than the adapters'."""
    return row["npu"] == "u85" and row["macs"] == "512" and "Low" in row["system_config"]


def micro(folder: Path) -> Iterator[Cell]:
    """Single convolutions on Ethos-U85."""
    for row in rows(folder / "cells_micro.csv"):
        kind = row["op"].partition(" ")[0]
        model = folder / "micro" / f"h3_{kind}_{row['H']}x{row['W']}_c{row['C_in']}.tflite"
        if not model.is_file():
            continue
        npu = accelerator(f"ethos-u85-{row['macs']}")
        memory_map = around(npu, row["memory_mode"], condition=row["condition"])
        commands = compiled(model, npu.name, system_of(row["system_config"]), row["memory_mode"])
        beats = tuple(int(row[key]) for key in ("sram_rd", "sram_wr", "ext_rd", "ext_wr") if row[key])
        name = f"{row['H']}x{row['W']} on {row['macs']}"
        yield Cell(
            f"{kind} {row['condition']}",
            name,
            int(row["active"] or row["total"]),
            estimate(commands, npu, memory_map),
            beats,
            not row["active"],
        )


def sweeps(folder: Path) -> Iterator[Cell]:
    """One stream under other settings of the timing adapters."""
    table = rows(folder / "cells_sweeps.csv")
    sizes = Counter(row["what"] for row in table)
    for row in table:
        npu = accelerator(f"ethos-{row['npu']}-{row['macs']}")
        mode = "Shared_Sram" if row["npu"] == "u55" else "Dedicated_Sram"
        profile = {"whole mid profile": 512, "whole low profile": 256}.get(row["what"], npu.macs)
        memory_map = around(npu, mode, profile=profile)
        requested = {
            key: int(row[key]) for key in ("EXT_RLATENCY", "EXT_WLATENCY", "EXT_MAXR", "EXT_BWCAP") if row[key]
        }
        if "profile" not in row["what"]:
            memory_map = changed(memory_map, lambda memory, requested=requested: _set(memory, requested), external=True)
        if row["SRAM_BWCAP"]:
            memory_map = changed(
                memory_map, lambda memory, n=int(row["SRAM_BWCAP"]): _capped(memory, n), external=False
            )
        if "2000/500" in row["what"]:
            memory_map = changed(memory_map, _faster_pulse, external=True)
        name = f"{row['model']} {npu.name} " + " ".join(f"{key[4:]} {n}" for key, n in requested.items())
        name += f" SRAM_BWCAP {row['SRAM_BWCAP']}" * bool(row["SRAM_BWCAP"])
        found = estimate(measured(row["model"], npu), npu, memory_map)
        group = row["what"] if sizes[row["what"]] > 1 else "other settings"
        yield Cell(f"sweep: {group}", name, int(row["total"]), found, reading=True)


def _set(memory: Memory, requested: Mapping[str, int]) -> Memory:
    read, write, pulse = memory.read, memory.write, memory.pulse
    read = replace(read, latency=requested.get("EXT_RLATENCY", read.latency))
    if "EXT_MAXR" in requested:
        read = replace(read, outstanding=requested["EXT_MAXR"] % 64)
    write = replace(write, latency=requested.get("EXT_WLATENCY", write.latency))
    if "EXT_BWCAP" in requested and pulse is not None:
        pulse = replace(pulse, words=requested["EXT_BWCAP"])
    return replace(memory, read=read, write=write, pulse=pulse)


def _capped(memory: Memory, words: int) -> Memory:
    pulse = memory.pulse
    both = pulse is not None and not 0 < words <= pulse.period  # beats of reads and of writes
    return replace(memory, pulse=pulse and replace(pulse, words=words), duplex=both)


def _faster_pulse(memory: Memory) -> Memory:
    pulse = memory.pulse
    return replace(memory, pulse=pulse and replace(pulse, on=pulse.on // 2, off=pulse.off // 2, words=pulse.words // 2))


def changed(memory_map: MemoryMap, change: object, external: bool) -> MemoryMap:
    """The same with each memory behind one port changed."""

    def of(memory: Memory) -> Memory:
        return change(memory) if bool(memory.port) == external else memory  # type: ignore[operator,no-any-return]

    return MemoryMap(
        {k: of(memory) for k, memory in memory_map.regions.items()}, of(memory_map.stream), memory_map.clock_hz
    )


def around(
    npu: Architecture, mode: str, off: bool = False, condition: str = "base", profile: int | None = None
) -> MemoryMap:
    """Memories behind the FVP's timing adapters; `off`: without them. `profile`: of the NPU with so many MACs."""
    family = npu.name.split("-")[1]
    if family == "u85":
        system = load_system(f"FVP_Ethos_U85_SYS_DRAM_{_U85[profile or npu.macs]}")
    else:
        system = load_system(_ADAPTERS[family])
    if off or condition in ("relaxed", "equalized"):
        system = _fast(system, limits=condition == "relaxed", off=off)
    pools = load_memory_mode(mode).pools
    return system.memory_map(mode, dict(enumerate(pools, start=1)))


def _fast(system: System, limits: bool, off: bool) -> System:
    """Without latencies and without caps; without adapters also without their pauses."""

    def side(of: Direction, keep: bool) -> Direction:
        return Direction(0, of.outstanding if keep else 0)

    memories = {}
    for name, memory in system.memories.items():
        keep = not off and (limits or not memory.port)
        pulse = None if off or memory.pulse is None else replace(memory.pulse, words=0)
        both = {"read": side(memory.read, keep), "write": side(memory.write, keep)}
        memories[name] = replace(memory, **both, pulse=pulse, duplex=off)
    return replace(system, memories=memories)


@lru_cache
def measured(model: str, npu: Architecture, kind: str = "") -> tuple[Command, ...]:
    """Of Vela 5.0.0; `kind`: `.` and the memory mode, or `.Low` for that configuration, where another is usual."""
    u85 = npu.language is Language.U85
    streams = np.load(GOLDEN / f"{'u85' if u85 else 'u55_u65'}_streams_of_vela_5_0.npz")
    words = streams[f"{model}.{npu.macs if u85 else npu.name.removeprefix('ethos-')}{kind}"]
    return tuple(decode(tuple(map(int, words)), npu.language))


@lru_cache
def compiled(model: Path, npu: str, system: str, mode: str) -> tuple[Command, ...]:
    """Of the installed Vela."""
    options = VelaOptions(npu, system, mode)
    (call,) = compile_tflite(model.read_bytes(), options, model.stem).parsed.npu_calls
    return tuple(decode(call.words, call.accelerator.language))


def system_of(name: str) -> str:
    """Vela's name of a configuration of the evaluation kit."""
    for end, own in _SYSTEMS.items():
        if name.endswith(end):
            return name.removesuffix(end) + own
    return name


def rows(file: Path) -> list[dict[str, str]]:
    """Of a table."""
    return list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))


def mean(ratios: Iterable[float]) -> float:
    """The geometric one."""
    logs = [math.log(ratio) for ratio in ratios]
    return math.exp(sum(logs) / len(logs))


def summary(found: Iterable[Cell]) -> list[str]:
    """A table of the groups."""
    groups = grouped(found)
    lines = list(HEADINGS)
    for name, group in groups.items():
        ratios = [cell.ratio for cell in group]
        lines.append(f"| {name} | {len(group)} | {mean(ratios):.3f} | {min(ratios):.3f} | {max(ratios):.3f} |")
    return lines


def details(found: Iterable[Cell]) -> Iterator[str]:
    """A table for each group of networks, with beats."""
    for name, group in grouped(found).items():
        if "networks" not in name:
            continue
        yield f"\n### {name}\n"
        yield "| cell | published | estimate | ratio | beats published | beats |\n|---|--:|--:|--:|---|---|"
        for cell in group:
            beats, moved = (" ".join(map(str, n)) for n in (cell.beats, cell.moved[: len(cell.beats)]))
            yield f"| {cell.name} | {cell.published:,} | {cell.estimate:,} | {cell.ratio:.3f} | {beats} | {moved} |"


def by_npu(found: Iterable[Cell]) -> Iterator[str]:
    """The same for the page: a row a network, a column an NPU; the published count and the ratio."""
    for name, group in grouped(found).items():
        if "networks" not in name:
            continue
        npus = list(dict.fromkeys(cell.name.partition(" ")[0] for cell in group))
        said: dict[str, dict[str, str]] = {}
        for cell in group:
            npu, _, network = cell.name.partition(" ")
            said.setdefault(network, {})[npu] = f"{cell.published:,} ({cell.ratio:.3f})"
        yield f"\n### {name}\n"
        yield f"| network | {' | '.join(npus)} |\n|---{'|--:' * len(npus)}|"
        yield from (f"| {network} | {' | '.join(row.get(npu, '') for npu in npus)} |" for network, row in said.items())


def grouped(found: Iterable[Cell]) -> dict[str, list[Cell]]:
    """By the table's groups, in their order."""
    groups: dict[str, list[Cell]] = {}
    for cell in found:
        groups.setdefault(cell.group, []).append(cell)
    return groups


def main() -> None:
    """Print the tables, or put them into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--page", type=Path)
    requested = parser.parse_args()
    found = list(cells(requested.folder))
    tables = [*summary(found), *(details(found) if requested.page is None else by_npu(found)), ""]
    text = "\n".join(["## Ratio of the estimate to the published count\n", *tables])
    if requested.page is None:
        print(text)
        return
    kept, mark, _ = requested.page.read_text(encoding="utf-8").partition(MARK)
    requested.page.write_text(f"{kept}{mark}\n\n{text}", encoding="utf-8")


if __name__ == "__main__":
    main()
