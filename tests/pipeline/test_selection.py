"""Producers compete: who is taken, what is said of it, and that it computes the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.compiler import plan_network
from npu_memplan.frontend.tflite import lowered
from npu_memplan.options import CompileOptions
from npu_memplan.tuning.cascades import STRIPES
from npu_memplan.tuning.selection import OURS
from npu_memplan.tuning.smallest import HOST
from tests.support.needs import need_data
from tests.support.operator_table import row
from tests.support.real_data import shared_folder
from tests.support.twins import Twin

MODELS = Path(__file__).resolve().parents[1] / "models"


def test_the_better_producer_is_taken_and_reported(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "kws_ref_model.tflite"
    cycles = {}
    for compiler in ("vela", "tvm", "auto"):
        flags = ("--npu-compiler", compiler, "--pool", "sram=22192", "--json")
        made = cli.ok("compile", model, *flags, "-o", tmp_path / compiler)
        cycles[compiler] = made.json["estimated_cycles"]
        assert made.json["pools"][0]["used_bytes"] <= 22192
    assert cycles["auto"] <= min(cycles.values())
    (note,) = (text for text in made.json["notes"] if text.startswith("selected: "))
    found = re.fullmatch(
        r"selected: native lowering(?: in stripes)?, ([\d,]+) cycles in [\d,]+ bytes, at least ([\d,]+) "
        r"to read its constants once; Vela's stream re-planned, about ([\d,]+); "
        r"([\d,]+) to ([\d,]+) by how memories are shared, at most (0\.\d+) of Vela's own",
        note,
    )
    assert found is not None, note
    taken, least, about, low, high = (int(text.replace(",", "")) for text in found.groups()[:5])
    assert least < taken == cycles["auto"] < about
    assert low <= taken < high
    assert about == pytest.approx(cycles["vela"], rel=0.2)  # before it was searched
    cli.bit_exact(tmp_path / "auto", model, "--input", "random:3")


@pytest.mark.parametrize(
    ("name", "npu", "effort"),
    [("pretrainedResnet_quant", "ethos-u85-256", "quick"), ("micro_speech_quantized", "ethos-u85-512", "normal")],
)
def test_programs_of_ethos_u85_are_compared(
    name: str, npu: str, effort: str, cli: Callable[..., Any], tmp_path: Path
) -> None:
    """Also where Vela's stream has chains that begin with weights; the bound is one."""
    model = MODELS / f"{name}.tflite"
    made = cli.ok("compile", model, "--accelerator", npu, "--effort", effort, "--json", "-o", tmp_path / "out")
    (note,) = (text for text in made.json["notes"] if text.startswith("selected: "))
    line = r"selected: [^,]+, ([\d,]+) cycles in [\d,]+ bytes, at least ([\d,]+) to read its constants once; "
    found = re.match(line, note)
    assert found is not None, note
    taken, least = (int(text.replace(",", "")) for text in found.groups())
    assert 0 < least <= taken
    cli.ok("run", tmp_path / "out", "--on", "local", "--input", "random:5", "--reference", model, "--tolerance", "1")


def test_stripes_fit_where_nothing_else_does(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "kws_ref_model.tflite"
    assert cli("compile", model, "--npu-compiler", "vela", "--pool", "sram=12KiB", "-o", tmp_path / "lifted").code == 2
    made = cli.ok("compile", model, "--pool", "sram=12KiB", "--json", "-o", tmp_path / "auto")
    assert made.json["pools"][0]["used_bytes"] <= 12 * 1024
    assert any("native lowering in stripes" in text for text in made.json["notes"])
    cli.bit_exact(tmp_path / "auto", model, "--input", "random:4")


@pytest.mark.parametrize("options", [("--objective", "bytes"), ("--pool", "sram=3KiB")])
def test_sums_by_rows_need_less_than_the_map(cli: Callable[..., Any], tmp_path: Path, options: tuple[str, ...]) -> None:
    """The map in front of the FULLY_CONNECTED alone has 4,000 bytes."""
    model = MODELS / "micro_speech_quantized.tflite"
    made = cli.ok("compile", model, "--npu-compiler", "tvm", "--stripes", *options, "--json", "-o", tmp_path / "out")
    assert made.json["pools"][0]["used_bytes"] <= 3 * 1024
    cli.bit_exact(tmp_path / "out", model, "--input", "random:6")


def test_sums_by_rows_are_lowered_from_one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    partition = lowered.partition_network
    monkeypatch.setattr(lowered, "partition_network", lambda *given: found.append(partition(*given)) or found[-1])
    options = CompileOptions(
        "ethos-u55-256", npu_compiler="tvm", stripes=True, objective="bytes", pools={"sram": 3 * 1024}
    )
    made = plan_network(MODELS / "micro_speech_quantized.tflite", options)
    assert made.extracted.loaded.request.sums_by_rows
    assert len(found) == 1


def test_windows_are_gathered_where_there_is_room_for_it(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "micro_speech_quantized.tflite"
    made = {}
    for size, kind in ((6144, "roomy"), (4200, "tight")):
        made[kind] = cli("compile", model, "--pool", f"sram={size}", "--json", "-o", tmp_path / kind)
        assert made[kind].code == 0, made[kind].err
        cli.bit_exact(tmp_path / kind, model, "--input", "random:5")
    assert made["roomy"].json["estimated_cycles"] < 0.9 * made["tight"].json["estimated_cycles"]
    assert made["tight"].json["pools"][0]["used_bytes"] <= 4200  # with two, 4,260 bytes are the least


def test_copies_may_start_between_stripes_that_write_over_their_input(cli: Callable[..., Any], tmp_path: Path) -> None:
    """As the fastest ones of this network do."""
    model = need_data(shared_folder("zoo") / "fingerprint.tflite")
    made = cli.ok("compile", model, "--pool", "sram=156704", "--json", "-o", tmp_path / "out")
    vela = cli("compile", model, "--npu-compiler", "vela", "--objective", "bytes", "--json", "-o", tmp_path / "vela")
    assert made.json["estimated_cycles"] < 0.5 * vela.json["estimated_cycles"]
    cli.bit_exact(tmp_path / "out", model, "--input", "random:6")


def test_what_runs_on_the_host_does_not_win_by_the_npus_cycles(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Native lowering leaves functions of int16 to the host."""
    model = tmp_path / "exp.tflite"
    model.write_bytes(row("EXP", "int16", 0).build())
    made = cli.ok("compile", model, "--pool", "sram=153600", "--json", "-o", tmp_path / "out")
    (note,) = (text for text in made.json["notes"] if text.startswith("selected: "))
    assert note.startswith("selected: Vela's stream re-planned, ")
    assert made.json["estimated_cycles"] > 0


def test_without_a_size_auto_is_velas_stream_with_the_fewest_bytes(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "hello_world_int8.tflite"
    one, other = (
        cli("compile", model, *flags, "--json", "-o", tmp_path / name)
        for name, flags in (("auto", ("--npu-compiler", "auto")), ("vela", ()))
    )
    assert one.json["estimated_cycles"] == other.json["estimated_cycles"]


def test_what_fits_nowhere_is_reported(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "kws_ref_model.tflite"
    made = cli("compile", model, "--npu-compiler", "auto", "--pool", "sram=2KiB", "-o", tmp_path / "out")
    assert made.code == 2
    assert "does not fit pool sram" in made.err
    lines = made.err.splitlines()
    first = lines.index("what a program of each backend needs:") + 1
    rows = [re.split(r"  +", line.strip()) for line in lines[first : first + 5]]
    assert {HOST, STRIPES, OURS} < {row[0] for row in rows}
    assert rows[0][1] == re.split(r"  +", lines[1].strip())[1].partition(" (")[0]  # required
    assert not (tmp_path / "out").exists()


def test_channels_are_cut_where_rows_would_read_weights_again(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "str_ww_ref_model.tflite"
    made = cli.ok("compile", model, "--pool", "sram=5904", "--json", "-o", tmp_path / "out")
    assert made.json["estimated_cycles"] < 66_000  # 79,050 by rows; 56,769 bytes of constants, one a cycle
    cli.bit_exact(tmp_path / "out", model, "--input", "random:6")


def test_stripes_leave_bytes_to_copies_where_the_program_fits_whole(cli: Callable[..., Any], tmp_path: Path) -> None:
    model = MODELS / "kws_ref_model.tflite"
    made = cli.ok("compile", model, "--pool", "sram=16000", "--effort", "quick", "--json", "-o", tmp_path / "out")
    assert made.json["estimated_cycles"] < 60_000  # 70,327 made at once, which leaves no byte
    cli.bit_exact(tmp_path / "out", model, "--input", "random:6")


def test_a_program_slower_than_velas_stream_is_searched_further(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Also where that stream does not fit: `quick` goes on as `normal`, whose program then is its own."""
    made = {}
    for effort in ("quick", "normal"):
        flags = ("--effort", effort, "--pool", "sram=13000", "--json", "-o", tmp_path / effort)
        made[effort] = cli("compile", MODELS / "kws_ref_model.tflite", *flags).json
        (note,) = (text for text in made[effort]["notes"] if text.startswith("selected: "))
        found = re.search(r"at most (\d\.\d+) of Vela's own", note)
        assert found is not None, note
        assert float(found[1]) > 1  # else it says nothing of what it is for
    assert made["quick"]["estimated_cycles"] == made["normal"]["estimated_cycles"]
    assert made["quick"]["pools"] == made["normal"]["pools"]


def test_slices_of_a_program_that_is_slow_without_them_are_searched(cli: Callable[..., Any], tmp_path: Path) -> None:
    """Weights of 76 KB do not fit beside the maps, so the program looks slow until copies of parts of them are made."""
    twin = Twin("slices")
    twin.begin((1, 32, 32, 1), 1 / 128, 0, "input")
    twin.convolve(184, 3)
    twin.by_channel(2)
    for stride in (1, 2, 2):
        twin.convolve(276)
        twin.by_channel(stride)
    twin.convolve(276)
    (tmp_path / "m.tflite").write_bytes(twin.file())
    made = cli.ok("compile", tmp_path / "m.tflite", "--no-check", "--json", "-o", tmp_path / "out")
    (note,) = (text for text in made.json["notes"] if text.startswith("selected: "))
    assert float(note.partition("at most ")[2].split()[0]) < 0.85, note
