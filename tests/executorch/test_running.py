"""Programs of ExecuTorch on the NPU model: real ones against PyTorch's quantised reference, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fvp_runner.executorch.commands import compare_programs
from fvp_runner.executorch.model import ExecutorchModel, MissingKernelError, delegate_inputs, method_inputs
from fvp_runner.npu_model.errors import NpuModelError, OutOfRegionError, UninitialisedReadError
from npu_memplan.cli import cli
from npu_memplan.ethosu.stream.encode import build_payload
from npu_memplan.executorch_lowering.native import delegate_program
from npu_memplan.models.executorch.delegates import BlockSlot, build_blocks, npu_calls, slots_data
from npu_memplan.models.executorch.program import ExecutorchProgram, read_program
from npu_memplan.models.network import Network
from npu_memplan.vela.compiler import VelaOptions, compile_tosa
from tests.support.entry import invoke
from tests.support.pte_file import Calls, Tensor, pte_file
from tests.support.tosa_graphs import TosaFile

MODELS = Path(__file__).resolve().parents[1] / "models"
REAL = ("three_convolutions_u65", "three_convolutions_u85")
# What PyTorch's PT2E model, before it was lowered, gives for `ramp()`.
REFERENCE = (
    -0.16725237667560577, -0.08963248878717422, -0.07022751867771149, 0.032341618090867996, -0.022177111357450485,
    0.028645433485507965, 0.06837942451238632, -0.008316416293382645, -0.1228981539607048, -0.007392370142042637,
)  # fmt: skip


def ramp() -> np.ndarray:
    return (((np.arange(12288) % 97) - 48) / 16).astype(np.float32).reshape(1, 3, 64, 64)


@pytest.mark.parametrize("name", REAL)
def test_real_programs_give_what_pytorchs_reference_gives(name: str) -> None:
    program = read_program((MODELS / f"{name}.pte").read_bytes(), name)
    ran = ExecutorchModel(program, program.methods[0]).run([ramp()])
    assert ran.outputs[0].ravel().tolist() == list(REFERENCE)


def test_commands_run_programs_and_keep_outputs(tmp_path: Path) -> None:
    np.save(tmp_path / "in.npy", ramp())
    file, out = str(MODELS / f"{REAL[0]}.pte"), tmp_path / "out.npy"
    for command in ("simulate", "run"):
        words = [command, file, "--input", str(tmp_path / "in.npy"), "--output", str(out), "--json"]
        done = CliRunner().invoke(cli, words, catch_exceptions=False)
        document = json.loads(done.output)
        assert (document["scratch_bytes"], document["planned_bytes"]) == (12288, {"1": 61440})
        assert (document["copied_in_bytes"], document["copied_out_bytes"]) == (12288, 10)
        assert document["npu_cycles"] > 1000
        assert np.load(out).ravel().tolist() == list(REFERENCE)
        out.unlink()


def test_a_program_is_simulated_on_a_board(tmp_path: Path) -> None:
    file = str(MODELS / f"{REAL[0]}.pte")
    done = CliRunner().invoke(cli, ["simulate", file, "--board", "nxp-imx93"], catch_exceptions=False)
    assert " at 1,000 MHz" in done.output
    checked = CliRunner().invoke(cli, ["check", file, "--board", "nxp-imx93"], catch_exceptions=False).output
    assert done.output.split(" ms at")[0].splitlines()[-1] + " ms at 1,000 MHz; not compared" in checked
    other = invoke("simulate", file, "--board", "himax-we2", code=None).exception
    assert "it was compiled for ethos-u65-256, and board himax-we2 has ethos-u55-64: leave --board out" in str(other)
    checked = CliRunner().invoke(cli, ["check", file, "--board", "himax-we2"], catch_exceptions=False).output
    assert "export the model again with EthosUCompileSpec('ethos-u55-64')" in checked


def test_streams_are_disassembled() -> None:
    done = CliRunner().invoke(cli, ["disassemble", str(MODELS / f"{REAL[1]}.pte")], catch_exceptions=False)
    assert done.output.startswith(
        "; NPU call at operator 1: ethos-u85-256, 490 words, 17616 bytes of constants, scratch"
    )


def real_delegate() -> bytes:
    return bytes(read_program((MODELS / f"{REAL[0]}.pte").read_bytes()).methods[0].delegates[0].data)


def method(kernel: str, places: tuple[int, int, int, int] = (0, 49152, 48, 0), size: int = 61440) -> bytes:
    """The real program's calls, the first of them of `kernel`."""
    quantise, dequantise = (f"quantized_decomposed::{name}_per_tensor.out" for name in ("quantize", "dequantize"))
    values = [
        Tensor("float32", (1, 3, 64, 64), (1, places[0])), 0.0290738046169281, 2, -128, 127, 1,
        Tensor("int8", (1, 3, 64, 64), (1, places[1])), Tensor("int8", (1, 10), (1, places[2])), 0.0009240462677553296,
        53, None, Tensor("float32", (1, 10), (1, places[3])),
    ]  # fmt: skip
    return pte_file(
        [Calls(
            values, [0], [11],
            [("kernel", kernel or quantise, [0, 1, 2, 3, 4, 5, 6, 6]), ("delegate", 0, [6, 7]),
             ("kernel", dequantise, [7, 8, 9, 3, 4, 5, 10, 11, 11])],
            [0, size], [("EthosUBackend", 0)],
        )],
        [real_delegate()],
    )  # fmt: skip


def test_moved_tensors_give_the_same() -> None:
    program = read_program(method("", (4096, 53248, 48, 0), 65536))
    assert ExecutorchModel(program, program.methods[0]).run([ramp()]).outputs[0].ravel().tolist() == list(REFERENCE)


def test_a_plan_whose_tensors_share_bytes_fails() -> None:
    program = read_program(method("", (0, 48000, 48, 0)))
    with pytest.raises(NpuModelError, match=r"instruction 0 .* writes value 6 over value 0, which it reads"):
        ExecutorchModel(program, program.methods[0]).run([ramp()])


def test_a_tensor_beyond_its_buffer_says_by_how_much() -> None:
    program = read_program(method("", size=61000))
    text = r"value 6 .* ends at byte 61,440 of planned buffer 1, which has 61,000: 440 too few"
    with pytest.raises(OutOfRegionError, match=text):
        ExecutorchModel(program, program.methods[0]).run([ramp()])


def test_what_nothing_wrote_is_reported() -> None:
    program = read_program(pte_file([Calls([Tensor("int8", (4,), (1, 0))], [], [0], [], [0, 16])]))
    with pytest.raises(UninitialisedReadError, match="nothing wrote 4 of its 4 bytes"):
        ExecutorchModel(program, program.methods[0]).run([])


def test_a_loop_without_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fvp_runner.executorch.model._MOST_STEPS", 50)
    program = read_program(pte_file([Calls([0], [], [], [(4, 0, 0)], [0])]))
    with pytest.raises(NpuModelError, match="has not ended after 50 instructions"):
        ExecutorchModel(program, program.methods[0]).run([])


def test_a_delegate_of_too_much_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fvp_runner.executorch.model.MOST_BYTES", 999)
    program = read_program(method(""))
    with pytest.raises(
        OutOfRegionError, match=r"takes [\d,]+ bytes of scratch and [\d,]+ of fast scratch; at most 999"
    ):
        ExecutorchModel(program, program.methods[0]).run([ramp()])


def test_kernels_that_are_not_run_here_are_named(tmp_path: Path) -> None:
    file = tmp_path / "m.pte"
    file.write_bytes(method("aten::sort.values"))
    program = read_program(file.read_bytes())
    with pytest.raises(MissingKernelError, match=r"calls aten::sort\.values, not run here"):
        ExecutorchModel(program, program.methods[0])
    done = CliRunner().invoke(cli, ["simulate", str(file)], catch_exceptions=False)
    assert "note: aten::sort.values are not run here, so each delegate was given inputs of its own" in done.output
    out = tmp_path / "o.npy"
    refused = invoke("simulate", file, "--output", out, code=None)
    assert refused.exit_code != 0
    assert not out.exists()


def test_inputs_are_described_by_the_method() -> None:
    program = read_program(pte_file([Calls([Tensor("int64", (1, 8)), 3], [0], [], [], [0])]))
    assert [(i.name, i.dtype, i.shape) for i in method_inputs(program.methods[0], [])] == [("input0", "int64", (1, 8))]


@pytest.mark.parametrize(("name", "board", "clock_hz"), [(REAL[0], "nxp-imx93", 1e9), (REAL[1], "alif-e8-u85", 400e6)])
def test_check_and_simulate_agree_on_the_time_on_a_board(name: str, board: str, clock_hz: float) -> None:
    file = str(MODELS / f"{name}.pte")
    words = ["simulate", file, "--board", board, "--json"]
    simulated = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).output)
    cycles = simulated["npu_cycles"]
    assert simulated["npu_clock_hz"] == clock_hz
    checked = CliRunner().invoke(cli, ["check", file, "--board", board], catch_exceptions=False).output
    time = f"{1000 * cycles / clock_hz:.3f} ms at {clock_hz / 1e6:,.0f} MHz"
    assert f" {cycles:,} estimated cycles, {time}; not compared" in checked


# -- Random inputs of delegates that take rows by an index: indices of rows that are there


_ROWS = 20


def _embedding() -> ExecutorchProgram:
    """A delegate for Ethos-U85 that takes 8 of 20 rows, by indices that it is given."""
    file, rng = TosaFile(), np.random.default_rng(4)
    indices = file.input(1, 8, dtype="int32")
    rows = file.constant(rng.integers(-128, 128, (1, _ROWS, 16)), "int8")
    tosa = file.finish(file.operator("GATHER", [rows, indices], (1, 8, 16)))
    network: Network = compile_tosa(tosa, VelaOptions("ethos-u85-256"), "embedding").parsed
    (call,) = network.npu_calls
    blocks = {
        "cmd_data": build_payload(call.payload),
        "weight_data": call.read_only.tobytes(),
        "scratch_size": call.scratch_bytes.to_bytes(4, "little"),
        "inputs": slots_data([BlockSlot((1, 1, 1, 1, 1, 8), 4, call.input_addresses[0][1], 1)]),
        "outputs": slots_data([BlockSlot((1, 1, 1, 1, 8, 16), 1, call.output_addresses[0][1], 1)]),
    }
    return delegate_program(build_blocks(blocks), {})


def test_indices_are_of_rows_that_are_there() -> None:
    program = _embedding()
    calls = npu_calls(program)
    (whole,), (alone,) = method_inputs(program.methods[0], calls), delegate_inputs(calls[0])
    assert whole.index_range == alone.index_range == (0, _ROWS)
    compare_programs(program, program)  # random inputs, on the NPU model


def test_other_inputs_have_their_whole_range() -> None:
    program = _embedding()
    assert [one.index_range for one in method_inputs(program.methods[0], [])] == [None]
