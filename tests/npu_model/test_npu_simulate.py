"""`npu-memplan simulate`: what it prints, writes and returns."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from tests.support.assembler import Assembler
from tests.support.pooling_stream import U55, pooling

pytest.importorskip("tflite_micro", reason="needs tflite-micro as the reference (pip install npu_memplan[reference])")

from fvp_runner.npu_model.errors import NpuModelError
from fvp_runner.references.base import ReferenceRunError
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.stream.encode import Payload, build_payload
from npu_memplan.ethosu.stream.isa import Op
from npu_memplan.files.arrays import InputError
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.tflite import read_network
from tests.support.entry import invoke
from tests.support.saving import save
from tests.support.single_operators import case
from tests.support.trial import compiled


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("simulate")
    found = {}
    for name in ("softmax_int8", "conv_k5x5"):
        found[name] = folder / f"{name}.tflite"
        found[name].write_bytes(case(name).build())
        found[f"{name}_vela"] = folder / f"{name}_vela.tflite"
        found[f"{name}_vela"].write_bytes(compiled(name).network)
    return found


def simulate(*arguments: object) -> Result:
    return invoke("simulate", *arguments, code=None)


def test_bit_exact_against_the_reference(files: dict[str, Path]) -> None:
    result = simulate(files["conv_k5x5_vela"], "--input", "random:1", "--reference", files["conv_k5x5"])
    assert result.exit_code == 0, result.output
    assert "on the NPU model of ethos-u55-256: 1 NPU call," in result.output
    assert "uninitialised reads" in result.output
    assert "layers: 1 of 1 reference tensors are visible and equal" in result.output
    assert result.output.endswith("bit-exact\n")


def test_json_has_the_verdict_and_the_figures(files: dict[str, Path]) -> None:
    result = simulate(
        files["softmax_int8_vela"], "--reference", files["softmax_int8"], "--json", "--fuzz-schedule", "3"
    )
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert document["bit_exact"] is True
    assert document["accelerator"] == "ethos-u55-256"
    assert document["fuzzed_schedules"] == 3
    assert document["outputs"] == [{"name": "t1", "elements": 10, "mismatches": 0, "max_abs_diff": 0}]
    assert document["npu_cycles_are_estimates"] is True
    assert document["npu_operations"] > 10


def test_a_board_gives_memories_and_clock(files: dict[str, Path]) -> None:
    plain, board = (
        json.loads(simulate(files["conv_k5x5_vela"], "--json", *more).output)
        for more in ((), ("--board", "alif-e7-hp"))
    )
    assert board["npu_clock_hz"] == 400e6
    assert plain["npu_clock_hz"] == 500e6
    assert board["npu_cycles"] > plain["npu_cycles"]  # its SRAM and MRAM are slower than Vela's generic memories


def test_wrong_reference_gives_exit_code_1_and_the_layer(files: dict[str, Path], tmp_path: Path) -> None:
    other = bytearray(files["conv_k5x5"].read_bytes())
    weights = read_network(bytes(other)).tensors[1].data
    assert weights is not None
    at = other.find(weights.tobytes())
    assert at > 0
    other[at : at + 40] = bytes(40)
    path = save(tmp_path / "other.tflite", bytes(other))
    result = simulate(files["conv_k5x5_vela"], "--reference", path)
    assert result.exit_code == 1
    assert "first layer that differs: t3 [1, 14, 13, 11] (tensor 3), written by operation" in result.output
    assert result.output.endswith("NOT bit-exact\n")
    document = json.loads(simulate(files["conv_k5x5_vela"], "--reference", path, "--json").output)
    assert document["first_difference"]["tensor"] == "t3"
    assert document["first_difference"]["coordinates"][3] == 0  # only channel 0 has other weights


def test_inputs_and_outputs_are_files(files: dict[str, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.arange(10, dtype=np.int8).reshape(1, 10))
    result = simulate(
        files["softmax_int8_vela"], "--input", tmp_path / "in.npy", "--output", tmp_path / "out.npy", "--no-checks"
    )
    assert result.exit_code == 0, result.output
    assert "checks:" not in result.output
    out = np.load(tmp_path / "out.npy")
    assert out.shape == (1, 10)
    assert (np.diff(out.astype(int)) >= 0).all()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]


def test_trace_has_one_event_for_each_operation(files: dict[str, Path], tmp_path: Path) -> None:
    result = simulate(files["softmax_int8_vela"], "--trace", tmp_path / "trace.json", "--json")
    document = json.loads((tmp_path / "trace.json").read_text())
    events = [e for e in document["traceEvents"] if e["ph"] == "X"]
    complete = [e for e in events if e["cat"] != "port"]
    assert {e["tid"] for e in events} == {1, 2, 3, 4}, "kernels, DMA, two ports"
    assert len(complete) == json.loads(result.output)["npu_operations"]
    assert {e["cat"] for e in complete} == {"kernel", "dma"}
    assert all(e["dur"] > 0 for e in complete)
    kernels = sorted((e for e in complete if e["cat"] == "kernel"), key=lambda e: e["ts"])
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(kernels))
    assert kernels[0]["name"].startswith("POOL MAX")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("missing.tflite",), "cannot read missing.tflite"),
        (("{softmax_int8}",), "has no ethos-u operator: it was not compiled by Vela"),
        (("{softmax_int8_vela}", "--input", "random:x"), "the seed must be a whole number"),
        (("{softmax_int8_vela}", "--input", "random:1", "--input", "random:2"), "--input was given 2 times"),
        (("{softmax_int8_vela}", "--input", "{softmax_int8}"), "save it with numpy.save"),
        (("{softmax_int8_vela}", "--output", "a.npy", "--output", "b.npy"), "--output was given 2 times"),
        (("{softmax_int8_vela}", "--reference", "{softmax_int8_vela}"), "is itself compiled by Vela"),
    ],
)
def test_bad_use(arguments: tuple[str, ...], message: str, files: dict[str, Path]) -> None:
    texts = [a.format(**files) for a in arguments]
    result = simulate(*texts)
    assert isinstance(result.exception, InputError | NetworkError | ReferenceRunError)
    assert message in str(result.exception)


@pytest.mark.parametrize("core", ["regor", "legacy"])
def test_a_network_of_which_vela_left_everything_to_the_cpu(core: str, tmp_path: Path) -> None:
    path = save(tmp_path / "matmul.tflite", compiled("matmul_int16", core=core).network)
    for subcommand in ("simulate", "disassemble"):
        result = invoke(subcommand, path, code=None)
        assert isinstance(result.exception, NpuMemplanError)
        assert str(result.exception) == (
            "matmul.tflite has no ethos-u operator: Vela compiled it, but left 1 operator to the CPU "
            "(BATCH_MATMUL); nothing of it runs on an NPU"
        )


def test_what_relies_on_timing_is_a_warning(tmp_path: Path) -> None:
    """A wait for a transfer stands between a kernel and another that may read its output too early."""
    words = Assembler(pooling(OFM_BLK_WIDTH_M1=3)[:-1]).dma(0, 0x40, 16).op(Op.DMA_WAIT, 0)
    words.set(IFM_BASE0=0x100, OFM_BASE0=0x180, BLOCKDEP=3).op(Op.POOL, 1)
    payload = np.frombuffer(build_payload(Payload(U55, words.stop())), np.uint8)
    ends = {
        f"{kind}_{field}": np.array(value)
        for kind, offset in (("input", 0), ("output", 0x180))
        for field, value in (("shape", [[2, 3, 4]]), ("elem_size", [1]), ("region", [1]), ("offset", [offset]))
    }
    ends |= {f"variable_{field}": np.array([]) for field in ("shape", "elem_size", "region", "offset")}
    path = tmp_path / "timing.npz"
    np.savez(path, cmd_data=payload, weight_data=payload, scratch_size=0x200, scratch_fast_size=0, **ends)
    result = simulate(path)
    assert result.exit_code == 0, result.output
    assert "warning: relies on timing: operation" in result.output
    assert "waits, BLOCKDEP: clean, but 1 place relying on timing" in result.output
    document = json.loads(simulate(path, "--json").output)
    assert [m[:17] for m in document["relies_on_timing"]] == ["relies on timing:"]


def test_input_file_of_another_shape(files: dict[str, Path], tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", np.zeros((2, 5), np.int8))
    result = simulate(files["softmax_int8_vela"], "--input", tmp_path / "in.npy")
    assert "holds int8[2, 5], but input 't0' is int8[1, 10]" in str(result.exception)


def test_a_stream_that_breaks_a_rule_is_a_user_error(files: dict[str, Path], tmp_path: Path) -> None:
    data = bytearray(files["softmax_int8_vela"].read_bytes())
    wait = (0x011).to_bytes(4, "little")  # DMA_WAIT 0 becomes a KERNEL_WAIT 3, which waits for nothing
    places = [i for i in range(0, len(data), 4) if data[i : i + 4] == wait]
    assert places
    for at in places:
        data[at : at + 4] = (0x012 | 3 << 16).to_bytes(4, "little")
    path = save(tmp_path / "broken.tflite", bytes(data))
    result = simulate(path)
    assert isinstance(result.exception, NpuModelError)
    assert "DMA_WAIT 0 before it" in str(result.exception)
