"""The estimate, held to cycle counts that others published of Arm's FVPs (docs/time.md has the table)."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.ethosu.arch import Language, accelerator
from npu_memplan.ethosu.stream.commands import Command
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.time import Direction, Estimate, MemoryMap, Pulse, estimate, load_system
from npu_memplan.ethosu.vela import VelaOptions, VelaResult, compile_tflite
from npu_memplan.target_data import load_memory_mode
from tests.support.real_data import REPOSITORY, shared_folder
from tests.support.traffic import bytes_of

FVP = {"ethos-u55": "FVP_Ethos_U55_High_End", "ethos-u65": "FVP_Ethos_U65_High_End"}
LIMITS = {"ethos-u55": 10, "ethos-u65": 15}  # per cent
U55 = VelaOptions("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Shared_Sram")


@pytest.fixture(scope="module")
def fvp() -> Path:
    folder = shared_folder("fvp")
    if not folder.is_dir():
        pytest.skip(f"no published cycle counts: {folder} is missing")
    return folder


def compiled(fvp: Path, model: str, options: VelaOptions) -> VelaResult:
    return compile_tflite((fvp / "models" / f"{model}.tflite").read_bytes(), options, model)


def timed(network: VelaResult, where: MemoryMap) -> Estimate:
    (call,) = network.parsed.npu_calls
    return estimate(decode(call.words), call.accelerator, where)


def around(system: str, mode: str) -> MemoryMap:
    return load_system(system).memory_map(mode, dict(enumerate(load_memory_mode(mode).pools, start=1)))


@pytest.mark.slow
def test_every_published_cell_is_met(fvp: Path) -> None:
    errors: dict[tuple[str, str, str], float] = {}
    for row in csv.DictReader((fvp / "cells.csv").read_text().splitlines()):
        if row["npu"] in FVP:
            npu, mode = row["npu"], row["memory_mode"]
            network = compiled(fvp, row["model"], VelaOptions(f"{npu}-{row['macs']}", row["system_config"], mode))
            published = int(row["npu_total_cycles"])
            errors[npu, row["macs"], row["model"]] = 100 * (
                timed(network, around(FVP[npu], mode)).total / published - 1
            )
    assert len(errors) == 18
    assert {cell: e for cell, e in errors.items() if abs(e) > LIMITS[cell[0]]} == {}
    close = [e for cell, e in errors.items() if cell[0] == "ethos-u55" and abs(e) <= 5]
    assert len(close) >= 9
    page = (REPOSITORY / "docs" / "time.md").read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| ethos-u")
    ]
    said = {(npu.rpartition("-")[0], npu.rpartition("-")[2], model): float(row[2]) for npu, model, *row in rows}
    assert said == pytest.approx(errors, abs=0.06), "the column of today's streams on docs/time.md"


@pytest.mark.parametrize(
    ("words", "latency", "published"),
    [(25, 64, 179_059), (50, 64, 105_059), (100, 64, 77_059), (0, 64, 77_059), (50, 16, 103_059), (200, 16, 34_059)],
)
def test_the_flash_sweep_is_followed(fvp: Path, words: int, latency: int, published: int) -> None:
    """rnnoise, one stream, only the external timing adapter changed."""
    base = around("FVP_Ethos_U55_High_End", "Shared_Sram")
    flash = replace(base.stream, read=Direction(latency, 2), pulse=Pulse(320, 80, words))
    total = timed(compiled(fvp, "rnnoise_INT8", U55), MemoryMap({**base.regions, 0: flash}, flash)).total
    assert total == pytest.approx(published, rel=0.15)


@pytest.mark.parametrize(
    ("model", "core", "axi0", "axi1"),
    [
        ("kws_micronet_m", "legacy", (132_130, 48_252), 17_544),
        ("ad_medium_int8", "legacy", (485_194, 138_111), 56_245),
        ("rnnoise_INT8", "regor", (530, 376), 13_911),
    ],
)
def test_beats_by_port_are_those_published(fvp: Path, model: str, core: str, axi0: tuple[int, int], axi1: int) -> None:
    """The evaluation kit's own documents are of an older Vela; the core named makes its streams, or nearly."""
    network = compiled(fvp, model, replace(U55, accelerator="ethos-u55-128", core=core))
    found = timed(network, around("FVP_Ethos_U55_High_End", "Shared_Sram"))
    assert (found.beats(0, False), found.beats(0, True)) == pytest.approx(axi0, rel=0.03)
    assert found.beats(1, False) == pytest.approx(axi1, rel=0.03)


def test_a_placement_in_slower_memory_is_never_faster(fvp: Path) -> None:
    network = compiled(fvp, "kws_micronet_m", U55)
    totals = [
        timed(network, around("Ethos_U55_High_End_Embedded", mode)).total for mode in ("Sram_Only", "Shared_Sram")
    ]
    half = load_system("Ethos_U55_Deep_Embedded").memory_map("Shared_Sram", {1: "sram"})
    assert totals[0] < totals[1] < timed(network, half).total


def test_an_estimate_is_never_below_what_its_memories_need(fvp: Path) -> None:
    for model in ("kws_micronet_m", "ad_medium_int8", "rnnoise_INT8"):
        for system in ("Ethos_U55_High_End_Embedded", "Ethos_U55_Deep_Embedded"):
            where = around(system, "Shared_Sram")
            found = timed(compiled(fvp, model, U55), where)
            for memory in (where.regions[0], where.regions[1]):
                moved = sum(bytes_of(share, memory.name) for share in found.shares)
                assert found.total >= moved / (8 * memory.clock_scale)


U85_MACS = (128, 256, 512, 1024, 2048)
U85_SYSTEM = {128: "Low", 256: "Low", 512: "Mid", 1024: "Mid_1024", 2048: "High"}
U85_MODELS = ("ad_medium_int8", "kws_micronet_m", "rnnoise_INT8")
SWEEP = {  # rnnoise: latency of the external memory -> published cycles
    256: {0: 21_086, 125: 26_086, 250: 36_086, 500: 62_086, 1000: 116_086},
    512: {0: 16_086, 250: 31_086, 500: 55_086, 1000: 101_086, 2000: 197_086},
    1024: {0: 11_086, 250: 28_086, 500: 49_086, 1000: 95_086},
    2048: {0: 11_086, 250: 30_086, 500: 54_086, 1000: 102_086},
}


def measured(model: str, macs: int) -> list[Command]:
    """The stream that was measured, of Vela 5.0.0 (`--optimise Performance`, Arm's vela.ini)."""
    streams = np.load(REPOSITORY / "tests" / "golden" / "u85_streams_of_vela_5_0.npz")
    return decode(tuple(map(int, streams[f"{model}.{macs}"])), Language.U85)


def u85_around(macs: int, latency: int | None = None, write: int | None = None) -> MemoryMap:
    """`latency` of reads from the external memory; writes take half of it where `write` does not say."""
    base = around(f"FVP_Ethos_U85_SYS_DRAM_{U85_SYSTEM[macs]}", "Dedicated_Sram")
    if latency is None:
        return base
    dram, write = base.regions[1], latency // 2 if write is None else write
    slow = replace(dram, read=replace(dram.read, latency=latency), write=replace(dram.write, latency=write))
    return MemoryMap({i: slow if memory == dram else memory for i, memory in base.regions.items()}, slow)


def u85_cells(fvp: Path) -> dict[tuple[str, int], int]:
    rows = csv.DictReader((fvp / "cells.csv").read_text().splitlines())
    return {(r["model"], int(r["macs"])): int(r["npu_total_cycles"]) for r in rows if r["npu"] == "ethos-u85"}


def page_rows(heading: str) -> list[str]:
    """Lines of the table on docs/time.md whose first cell is `heading`."""
    lines = (REPOSITORY / "docs" / "time.md").read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    return lines[start + 2 : lines.index("", start)]


def row(name: str, ratios: Iterable[float | None]) -> str:
    return f"| {name} | " + " | ".join("-" if r is None else f"{r:.2f}" for r in ratios) + " |"


def test_the_measured_streams_of_ethos_u85_are_met(fvp: Path) -> None:
    cells, found = u85_cells(fvp), {}
    for (model, macs), published in cells.items():
        npu = accelerator(f"ethos-u85-{macs}")
        found[model, macs] = estimate(measured(model, macs), npu, u85_around(macs)).total / published
    assert len(found) == 15
    assert {cell: ratio for cell, ratio in found.items() if not 0.85 <= ratio <= 1.15} == {}
    assert page_rows("streams of 5.0") == [row(m, (found[m, n] for n in U85_MACS)) for m in U85_MODELS]


def test_the_latency_sweep_of_ethos_u85_is_followed() -> None:
    table = []
    for macs, published in SWEEP.items():
        stream, npu = measured("rnnoise_INT8", macs), accelerator(f"ethos-u85-{macs}")
        found = {latency: estimate(stream, npu, u85_around(macs, latency)).total for latency in published}
        assert list(found.values()) == sorted(found.values())
        ratios = {latency: found[latency] / published[latency] for latency in published}
        assert {latency: r for latency, r in ratios.items() if not 0.8 <= r <= 1.2} == {}
        table.append(row(str(macs), (ratios.get(latency) for latency in (0, 125, 250, 500, 1000, 2000))))
    assert page_rows("latency") == table


APART = {  # rnnoise: published cycles at these (read, write) latencies
    256: (22_086, 27_086, 36_086, 62_086, 114_086, 59_086, 60_086, 64_086),
    512: (19_086, 24_086, 32_086, 55_086, 99_086, 53_086, 53_086, 56_086),
    1024: (14_086, 20_086, 30_086, 49_086, 91_086, 46_086, 49_086, 52_086),
    2048: (14_086, 21_086, 31_086, 54_086, 100_086, 51_086, 52_086, 55_086),
}
APART_AT = ((0, 250), (125, 250), (250, 250), (500, 250), (1000, 250), (500, 0), (500, 125), (500, 500))
BETWEEN = {256: (49_086, 87_086), 512: (42_086, 75_086), 1024: (39_086, 69_086), 2048: (42_086, 72_086)}
OTHERS = {
    ("kws_micronet_m", 256): (196_068, 199_068, 214_068, 259_068),
    ("kws_micronet_m", 512): (104_068, 109_068, 114_068, 163_068),
    ("ad_medium_int8", 256): (371_068, 377_068, 421_068, 562_068),
    ("ad_medium_int8", 512): (207_068, 214_068, 235_068, 327_068),
}


def test_other_counts_of_the_study_are_as_near_as_the_page_says() -> None:
    """Source: H13_RESULTS.md of github.com/Kwon-GiHwan/mps4_prototyping_board, sections 1, 3 and 4."""

    def ratio(model: str, macs: int, at: tuple[int, int], published: int) -> float:
        where = u85_around(macs, *at)
        return estimate(measured(model, macs), accelerator(f"ethos-u85-{macs}"), where).total / published

    rnnoise = "rnnoise_INT8"
    apart = [ratio(rnnoise, n, *point) for n, row in APART.items() for point in zip(APART_AT, row, strict=True)]
    between = [
        ratio(rnnoise, n, (at, at // 2), f) for n, row in BETWEEN.items() for at, f in zip((375, 750), row, strict=True)
    ]
    others = [
        ratio(*cell, (at, 250), f)
        for cell, row in OTHERS.items()
        for at, f in zip((0, 250, 500, 1000), row, strict=True)
    ]
    page = " ".join((REPOSITORY / "docs" / "time.md").read_text(encoding="utf-8").split())
    for ratios in (apart, between, others):
        assert f"{len(ratios)}{' points' if ratios is apart else ''}: {min(ratios):.2f} to {max(ratios):.2f})" in page


@pytest.mark.parametrize(("macs", "read", "written"), [(256, 7_650, 36), (1024, 7_838, 36)])
def test_external_beats_of_ethos_u85_are_those_published(macs: int, read: int, written: int) -> None:
    found = estimate(measured("rnnoise_INT8", macs), accelerator(f"ethos-u85-{macs}"), u85_around(macs))
    assert found.beats(1, False) == pytest.approx(read, rel=0.002)
    assert found.beats(1, True) == written


@pytest.mark.slow
def test_published_cells_of_ethos_u85_by_todays_streams_are_as_the_page_says(fvp: Path) -> None:
    table = []
    cells = u85_cells(fvp)
    for model in U85_MODELS:
        ratios = []
        for macs in U85_MACS:
            system = load_system(f"FVP_Ethos_U85_SYS_DRAM_{U85_SYSTEM[macs]}").vela
            options = VelaOptions(f"ethos-u85-{macs}", system, "Dedicated_Sram")
            (call,) = compiled(fvp, model, options).parsed.npu_calls
            commands = decode(call.words, call.accelerator.language)
            ratios.append(estimate(commands, call.accelerator, u85_around(macs)).total / cells[model, macs])
        table.append(row(model, ratios))
    assert page_rows("streams of 5.2") == table
