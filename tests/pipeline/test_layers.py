"""Time by operator of the source model: right for both producers, and the same sum everywhere."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.timing import utilisation_percent
from npu_memplan.ethosu.arch import ACCELERATORS
from npu_memplan.ethosu.time import load_system
from npu_memplan.models.network import CpuOperator
from npu_memplan.models.tflite import read_network
from tests.support.entry import QUICK
from tests.support.real_data import REPOSITORY, Models, shared_folder

PRODUCERS = (("--npu-compiler", "vela"), ("--npu-compiler", "tvm"), ("--npu-compiler", "tvm", "--stripes"))
COMPUTED = ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "ADD", "SOFTMAX", "MEAN")


@pytest.mark.parametrize("flags", PRODUCERS, ids=" ".join)
@pytest.mark.parametrize("name", ["kws_ref_model", "pretrainedResnet_quant", "ad01_int8"])
def test_every_operator_has_its_time_under_its_name(
    name: str, flags: tuple[str, ...], cli, shared_model: Models, tmp_path: Path
) -> None:
    model = shared_model(name)
    cli.ok("compile", model, *QUICK, *flags, "-o", tmp_path / "out")
    artifact = Artifact.load(tmp_path / "out")
    source = read_network(model.read_bytes())
    for layer in artifact.layers:
        operator = source.operators[layer.operator]
        assert isinstance(operator, CpuOperator)
        assert (layer.kind, layer.name) == (operator.name, source.tensors[operator.outputs[0]].name)
        few = operator.name == "CONV_2D" and source.tensors[operator.inputs[0]].shape[3] < 16 and "tvm" in flags
        by_rows = operator.name in ("AVERAGE_POOL_2D", "FULLY_CONNECTED") and "--stripes" in flags
        more = layer.macs - _macs(source, operator)  # zeros where columns are read together, rows that are not there
        assert more >= 0 if by_rows else 0 <= more <= layer.macs // 2 if few else more == 0
    peak = ACCELERATORS["ethos-u55-256"].macs
    assert all(0 <= utilisation_percent(layer, peak) <= 100 for layer in artifact.layers)
    computed = [o.index for o in source.operators if isinstance(o, CpuOperator) and o.name in COMPUTED]
    assert [layer.operator for layer in artifact.layers] == computed
    assert sum(layer.cycles for layer in artifact.layers) == artifact.estimated_cycles
    assert artifact.timing is not None
    assert sum(artifact.timing.bounds.values()) == artifact.estimated_cycles
    assert (artifact.timing.vela_cycles is not None) is (flags == PRODUCERS[0])


def _macs(network, operator: CpuOperator) -> int:
    """Multiply-accumulates of an operator, from the shapes in the file."""
    if operator.name not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
        return 0
    output, weights = network.tensors[operator.outputs[0]].shape, network.tensors[operator.inputs[1]].shape
    elements = 1
    for extent in output:
        elements *= extent
    taps = {"CONV_2D": weights[1:], "DEPTHWISE_CONV_2D": weights[1:3], "FULLY_CONNECTED": weights[1:]}[operator.name]
    for extent in taps:
        elements *= extent
    return elements


def test_layers_csv_sums_to_the_total(cli, shared_model: Models, tmp_path: Path) -> None:
    quick = QUICK
    made = cli("compile", shared_model("kws_ref_model"), *quick, "--json", "-o", tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "layers.csv").read_text().splitlines()))
    document = json.loads(made.out)
    assert sum(int(row["Op Cycles"]) for row in rows) == document["estimated_cycles"]
    assert sum(int(row["MAC Count"]) for row in rows) == document["npu_macs"]
    assert sum(float(row["Network% (cycles)"]) for row in rows) == pytest.approx(100, abs=0.1)
    assert {row["Bound By"] for row in rows} >= {"multiplying", "reading flash"}


MODELS = ("kws_ref_model", "ad01_int8", "pretrainedResnet_quant", "micro_speech_quantized")  # each with all options
OPTIONS = (
    *PRODUCERS,
    ("--npu-compiler", "Size"),
    ("--memory-mode", "Sram_Only"),
    ("--constant-pool", "flash"),
    ("--accelerator", "ethos-u55-32"),
    ("--accelerator", "ethos-u65-512"),
)
FOLDERS = (REPOSITORY / "tests" / "models", shared_folder("models"), shared_folder("fvp") / "models")
OTHERS = {path.stem: path for folder in FOLDERS for path in sorted(folder.glob("*.tflite")) if path.stem not in MODELS}
LARGE_BYTES = 1 << 20  # of such models one set of options


@pytest.mark.slow
@pytest.mark.parametrize("flags", OPTIONS, ids=" ".join)
def test_no_estimate_is_below_what_its_memories_need(
    flags: tuple[str, ...], cli, shared_model: Models, tmp_path: Path
) -> None:
    for name in MODELS:
        _needs_no_more(cli, shared_model(name), flags, tmp_path / "out")


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_no_estimate_of_any_other_model_is_below_it(name: str, cli, tmp_path: Path) -> None:
    model = OTHERS[name]
    large = model.stat().st_size > LARGE_BYTES
    _needs_no_more(cli, model, OPTIONS[0 if large or list(OTHERS).index(name) % 2 else -1], tmp_path / "out")


def _needs_no_more(cli, model: Path, flags: tuple[str, ...], made_at: Path) -> None:
    """Each memory of the compiled `model` could have moved its bytes in the estimated cycles, at its fastest."""
    cli.ok("compile", model, *flags, "--effort", "quick", "--no-check", "--force", "-o", made_at)
    artifact = Artifact.load(made_at)
    assert artifact.estimated_cycles is not None
    port = 16 if "u65" in artifact.target.accelerator else 8
    for memory in load_system(artifact.target.system_config).memories.values():
        moved = sum(layer.bytes.get(memory.name, 0) for layer in artifact.layers)
        assert artifact.estimated_cycles >= moved / (port * memory.clock_scale), (model.name, memory.name)


def test_an_own_vela_ini_is_used(cli, shared_model: Models, tmp_path: Path) -> None:
    ini = tmp_path / "own.ini"
    ini.write_text(
        "[System_Config.Slow]\ncore_clock=100e6\naxi0_port=Sram\naxi1_port=OffChipFlash\nSram_clock_scale=1.0\n"
        "Sram_burst_length=32\nSram_read_latency=32\nSram_write_latency=32\nOffChipFlash_clock_scale=0.03125\n"
        "OffChipFlash_burst_length=128\nOffChipFlash_read_latency=64\nOffChipFlash_write_latency=64\n"
    )
    model = shared_model("kws_ref_model")
    usual = cli("compile", *QUICK, model, "--json", "-o", tmp_path / "usual")
    slow = cli.ok(
        "compile", *QUICK, model, *("--system-config", "Slow", "--vela-ini", ini, "--json", "-o", tmp_path / "slow")
    )
    assert json.loads(slow.out)["estimated_cycles"] > 1.5 * json.loads(usual.out)["estimated_cycles"]
    text = (tmp_path / "slow" / "memory.txt").read_text()
    assert " ms at 100 MHz; " in text
    wrong = cli("compile", model, "--system-config", "Slow", "-o", tmp_path / "wrong")
    assert wrong.code == 2
    assert "system configuration 'Slow' is unknown; known: Ethos_U55_Deep_Embedded" in wrong.err


def test_a_profile_of_the_fvp_is_compiled_for_its_configuration(cli, shared_model: Models, tmp_path: Path) -> None:
    words = (*QUICK, "--system-config", "FVP_Ethos_U55_High_End")
    cli.ok("compile", shared_model("kws_ref_model"), *words, "-o", tmp_path / "o")
