"""Random inputs of delegates that take rows by an index: indices of rows that are there."""

from __future__ import annotations

import numpy as np

from fvp_runner.executorch.commands import compare_programs
from fvp_runner.executorch.model import delegate_inputs, method_inputs
from npu_memplan.ethosu.stream.encode import build_payload
from npu_memplan.executorch_lowering.native import delegate_program
from npu_memplan.models.executorch.delegates import BlockSlot, build_blocks, npu_calls, slots_data
from npu_memplan.models.executorch.program import ExecutorchProgram
from npu_memplan.models.network import Network
from npu_memplan.vela.compiler import VelaOptions, compile_tosa
from tests.support.tosa_graphs import TosaFile

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
