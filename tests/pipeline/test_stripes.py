"""`compile --stripes`: fewer bytes, the same results, and refusals that say what to use instead."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_memplan.options import CompileOptions, OptionError
from tests.support.in_steps import equals_reference
from tests.support.real_data import Models
from tests.support.tflite_builder import ModelBuilder

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
OURS = ("--npu-compiler", "tvm")
QUICK = ("--effort", "quick")


def _sram(cli, model: Path, out: Path, *options: str) -> tuple[int, int]:
    """(bytes of pool sram, estimated cycles)."""
    made = cli.ok("compile", model, *OURS, *options, "--json", "-o", out)
    document = json.loads(made.out)
    return document["pools"][-1]["used_bytes"], document["estimated_cycles"]


def test_stripes_need_fewer_bytes_and_compute_the_same(cli, tmp_path: Path) -> None:
    whole = _sram(cli, DIGITS, tmp_path / "whole")
    cut = _sram(cli, DIGITS, tmp_path / "cut", "--stripes")
    assert cut[0] < 0.75 * whole[0]
    assert whole[1] < cut[1] < 2 * whole[1], "weights are read for each stripe"
    assert json.loads((tmp_path / "cut" / "plan.json").read_text())["target"]["stripes"] is True
    cli.bit_exact(tmp_path / "cut", DIGITS, "--input", "random:3")


def test_a_pool_says_how_far_to_go(cli, tmp_path: Path) -> None:
    best = _sram(cli, DIGITS, tmp_path / "best", *QUICK, "--stripes")
    roomy = _sram(cli, DIGITS, tmp_path / "roomy", *QUICK, "--stripes", "--pool", f"sram={best[0]}")
    assert roomy[0] <= best[0]
    assert roomy[1] <= best[1], "the fewest cycles that fit"


def test_nothing_is_cut_in_vain_where_a_host_call_makes_the_peak(cli, shared_model: Models, tmp_path: Path) -> None:
    model, apart = shared_model("kws_ref_model"), ("--host-ops", "DEPTHWISE_CONV_2D", "--objective", "bytes")
    whole = _sram(cli, model, tmp_path / "whole", *apart)
    cut = _sram(cli, model, tmp_path / "cut", *apart, "--stripes")
    assert cut == whole or cut[0] < whole[0], "cycles are paid for bytes only"


@pytest.mark.parametrize("npu", ["ethos-u55-256", "ethos-u65-256"])
def test_an_output_that_is_read_may_lie_in_another_pool(npu: str, tmp_path: Path) -> None:
    """On ethos-u65-256 outputs lie in DRAM and feature maps in memory of the NPU's own."""
    graph = ModelBuilder()
    data, twice = (graph.tensor((1, 16, 16, 8), "int8", scale) for scale in (0.1, 0.2))
    halved, quartered = (graph.tensor((1, side, side, 8), "int8", 0.2) for side in (8, 4))
    graph.operator("ADD", [data, data], [twice], "AddOptions")
    for source, target in ((twice, halved), (halved, quartered)):
        window = {"StrideW": 2, "StrideH": 2, "FilterWidth": 2, "FilterHeight": 2}
        graph.operator("MAX_POOL_2D", [source], [target], "Pool2DOptions", **window)
    options = CompileOptions(npu, npu_compiler="tvm", stripes=True)
    equals_reference(graph.made([data], [twice, quartered]).finish(), tmp_path, 1, options)


# arena bytes on the host alone with overlaps and reused inputs, which work row by row anyway
HOST_ALONE = {"vww_96_int8": 36880, "person_detect": 36880, "pretrainedResnet_quant": 33312}


@pytest.mark.parametrize(
    ("name", "npu"),
    [*((name, "ethos-u55-256") for name in (*HOST_ALONE, "kws_ref_model")), ("vww_96_int8", "ethos-u65-256")],
)
def test_real_models_need_less_than_on_the_host_alone(
    name: str, npu: str, cli, shared_model: Models, tmp_path: Path
) -> None:
    model = shared_model(name)
    used, _ = _sram(cli, model, tmp_path / "out", "--stripes", "--accelerator", npu)
    assert used <= HOST_ALONE.get(name, 11000)
    cli.bit_exact(tmp_path / "out", model, "--input", "random:5")


def test_stripes_need_overlaps() -> None:
    with pytest.raises(OptionError, match="which overlaps=False forbids; leave one of them out"):
        CompileOptions(stripes=True, npu_compiler="tvm", overlaps=False).resolve_defaults()
