"""`compile --emit one-arena`: planned tensors and scratch in one arena, run as a firmware with the header runs it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fvp_runner.executorch.commands import HEADER, compile_program
from fvp_runner.executorch.model import ExecutorchModel
from fvp_runner.npu_model.errors import UninitialisedReadError
from npu_memplan.cli import cli
from npu_memplan.executorch import replanning
from npu_memplan.executorch.memory_map import lift_call, placed_tensors, tensor_blocks
from npu_memplan.executorch.replanning import OneArenaError, plan_one_arena, replan_tensors
from npu_memplan.models.executorch.delegates import npu_calls
from npu_memplan.models.executorch.program import read_program
from npu_memplan.vela.lift import LiftError
from tests.executorch.test_running import REFERENCE, method, ramp, real_delegate
from tests.support.pte_file import Calls, Tensor, pte_file

MODELS = Path(__file__).resolve().parents[1] / "models"
# Bytes as two pools today, and in one arena.
REAL = {
    "three_convolutions_u55": (61440 + 39808, 61440),
    "three_convolutions_u65": (61440 + 12288, 61440),
    "three_convolutions_u85": (61440 + 81920, 81920),
}
QUANTISE, DEQUANTISE = (f"quantized_decomposed::{name}_per_tensor.out" for name in ("quantize", "dequantize"))


@pytest.mark.parametrize("name", REAL)
def test_real_programs_in_one_arena(tmp_path: Path, name: str) -> None:
    out = tmp_path / "o.pte"
    words = ["compile", str(MODELS / f"{name}.pte"), "-o", str(out), "--emit", "one-arena", "--json"]
    document = json.loads(CliRunner().invoke(cli, words, catch_exceptions=False).output)
    today, now = REAL[name]
    row, arena = document["methods"][0], document["arenas"][0]
    assert row["planned_bytes_before"]["1"] + row["scratch_bytes_before"] == today
    assert row["planned_bytes"] == {"1": now}
    assert arena["bound_bytes"] <= arena["arena_bytes"] == now
    assert row["npu_cycles"] <= 1.01 * row["npu_cycles_before"]
    assert (arena["copied_bytes_before"], arena["copied_bytes"]) == (12298, 0)
    program = read_program(out.read_bytes())
    for inside in (True, False):
        ran = ExecutorchModel(program, program.methods[0], one_arena=inside).run([ramp()])
        assert ran.outputs[0].ravel().tolist() == list(REFERENCE)
    assert npu_calls(program)[0].blocks.scratch_bytes <= now
    assert "class OneArena" in (tmp_path / HEADER).read_text()


def test_an_input_ends_where_the_stream_has_read_it() -> None:
    """Else the stream planned again, which waits less, would take 12,288 bytes more than Vela's."""
    program = read_program((MODELS / "three_convolutions_u85.pte").read_bytes())
    made = plan_one_arena(program, program.methods[0])
    assert made.arena_bytes == 81920
    assert made.cycles < made.cycles_before


def test_places_that_a_delegate_cannot_state_are_refused() -> None:
    """Offsets of inputs and outputs are signed words; a damaged size has moved a buffer behind 2 GiB."""
    call = lift_call(npu_calls(read_program((MODELS / "three_convolutions_u85.pte").read_bytes()))[0])
    places = {content.name: content.original_offset for content in call.contents}
    assert call.data(call.commands(places), places)
    far = places | {call.slots[-1]: 1 << 31}
    with pytest.raises(LiftError, match=r"needs [\d,]+ bytes of scratch; its blocks state 2,147,483,647"):
        call.data(call.commands(places), far)


def twice(kept: bool, image_at: int = 49152, input_at: int = 0) -> bytes:
    """Two calls of two delegates in a row; `kept`: the input of the first is needed once more at the end."""
    image = (1, 3, 64, 64)
    values = [
        Tensor("float32", image, (1, input_at)), 0.0290738046169281, 2, -128, 127, 1,
        Tensor("int8", image, (1, image_at)),
        Tensor("int8", (1, 10), (1, 61440)), 0.0009240462677553296, 53, None, Tensor("float32", (1, 10), (1, 61456)),
        Tensor("int8", image, (1, 61504)), Tensor("int8", (1, 10), (1, 73792)), Tensor("float32", (1, 10), (1, 73808)),
        Tensor("float32", image, (1, 73856)),
    ]  # fmt: skip
    calls = [
        ("kernel", QUANTISE, [0, 1, 2, 3, 4, 5, 6, 6]), ("delegate", 0, [6, 7]),
        ("kernel", DEQUANTISE, [7, 8, 9, 3, 4, 5, 10, 11, 11]), ("kernel", "aten::neg.out", [6, 12, 12]),
        ("delegate", 1, [12, 13]), ("kernel", DEQUANTISE, [13, 8, 9, 3, 4, 5, 10, 14, 14]),
        *([("kernel", DEQUANTISE, [6, 1, 2, 3, 4, 5, 10, 15, 15])] if kept else []),
    ]  # fmt: skip
    outputs = [11, 14, *([15] if kept else [])]
    delegates = [("EthosUBackend", 0), ("EthosUBackend", 1)]
    whole = Calls(values, [0], outputs, calls, [0, 73856 + (49152 if kept else 0)], delegates)
    return pte_file([whole], [real_delegate(), real_delegate()])


def test_a_program_that_was_not_planned_so_fails_in_one_arena() -> None:
    """The control: the model's arena is one memory, so the scratch spoils a tensor that is needed later."""
    program = read_program(twice(True, 0, 73856))
    for inside in (False, True):
        model = ExecutorchModel(program, program.methods[0], one_arena=inside, stand_ins=True)
        if inside:
            with pytest.raises(UninitialisedReadError, match="reads value 6, but nothing wrote"):
                model.run([ramp()])
        else:
            assert model.run([ramp()]).outputs[0].ravel().tolist() == list(REFERENCE)


def copied_over() -> bytes:
    """A program whose delegate's input is copied over a tensor that is needed later: all its bytes stay written."""
    image = (1, 3, 64, 64)
    values = [
        Tensor("float32", image, (1, 16384)), 0.0290738046169281, 2, -128, 127, 1, Tensor("int8", image, (1, 65536)),
        Tensor("int8", (1, 10), (1, 77824)), None, 7, Tensor("int8", image, (1, 1024)),
    ]  # fmt: skip
    calls = [
        ("kernel", QUANTISE, [0, 1, 2, 3, 4, 5, 6, 6]), ("kernel", QUANTISE, [0, 1, 9, 3, 4, 5, 10, 10]),
        ("delegate", 0, [6, 7]),
    ]  # fmt: skip
    whole = Calls(values, [0], [7, 10], calls, [0, 77840], [("EthosUBackend", 0)])
    return pte_file([whole], [real_delegate()])


def checked(path: Path) -> tuple[int, str]:
    words = ["check", str(path), "--board", "corstone-320", "--one-arena"]
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    return done.exit_code, done.output


def test_check_counts_one_arena_once(tmp_path: Path) -> None:
    out = tmp_path / "o.pte"
    compile_program(MODELS / "three_convolutions_u85.pte", out, one_arena=True)
    code, text = checked(out)
    assert code == 0
    assert "planned: planned buffer 1, the scratch inside, needs 81,920 bytes" in text
    assert "temp:" not in text
    assert "1 call of delegates copy 0 bytes into the scratch, 0 out of it" in text
    assert "method 'forward' gives the same outputs with its scratch in planned buffer 1" in text


def test_check_finds_what_was_not_compiled_for_one_arena(tmp_path: Path) -> None:
    (tmp_path / "m.pte").write_bytes(twice(True, 0, 73856))
    code, text = checked(tmp_path / "m.pte")
    assert code == 1
    assert "reads value 6, but nothing wrote" in text
    (tmp_path / "m.pte").write_bytes(copied_over())
    code, text = checked(tmp_path / "m.pte")
    assert code == 1
    assert "method 'forward' gives other outputs with its scratch in planned buffer 1" in text
    code, text = checked(MODELS / "three_convolutions_u85.pte")
    assert code == 1
    assert "has 81,920 bytes, the planned buffer that it lies in 61,440: 20,480 too few" in text


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("objective", ["auto", "bytes"])
def test_several_delegates_and_a_tensor_that_outlives_its_call(tmp_path: Path, kept: bool, objective: str) -> None:
    source, out = tmp_path / "m.pte", tmp_path / "o.pte"
    source.write_bytes(twice(kept))
    made = compile_program(source, out, objective=objective, one_arena=True)
    old, new = read_program(source.read_bytes()), read_program(out.read_bytes())
    assert made.methods[0].whole
    assert made.arenas[0].arena_bytes == new.methods[0].planned_bytes[1] < old.methods[0].planned_bytes[1]
    outputs = [
        ExecutorchModel(one, one.methods[0], one_arena=arena, stand_ins=True).run([ramp()]).outputs
        for one, arena in ((old, False), (new, True), (new, False))
    ]
    for other in outputs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(outputs[0], other, strict=True))
    assert outputs[0][0].ravel().tolist() == list(REFERENCE)


@pytest.mark.parametrize("objective", ["auto", "bytes"])
def test_inputs_and_outputs_lie_in_a_scratch_that_cannot_be_planned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, objective: str
) -> None:
    def refuse(_: object) -> None:
        raise LiftError("no buffers")

    monkeypatch.setattr(replanning, "lift_call", refuse)
    values = [Tensor("int8", (1, 3, 64, 64), (1, 0)), Tensor("int8", (1, 10), (1, 12288))]
    calls = Calls(values, [0], [1], [("delegate", 0, [0, 1])], [0, 12304], [("EthosUBackend", 0)])
    source, out = tmp_path / "m.pte", tmp_path / "o.pte"
    scale = Calls([0.0290738046169281], [], [0], [], [0], name="input0_scale")  # a method that plans nothing
    source.write_bytes(pte_file([calls, scale], [real_delegate()]))
    made = compile_program(source, out, objective=objective, one_arena=True)  # which compares outputs
    arena, nothing = made.arenas
    assert nothing.arena_bytes == 0
    assert (arena.arena_bytes, arena.copied_bytes_before, arena.copied_bytes) == (12288, 12298, 0)


@pytest.mark.parametrize("kernel", ["aten::topk.values", "llama::sdpa_with_kv_cache.out"])
def test_kernels_that_use_the_temporary_allocator_are_named(kernel: str) -> None:
    program = read_program(method(kernel))
    with pytest.raises(OneArenaError, match=f"{kernel} in method 'forward' may use the temporary allocator"):
        plan_one_arena(program, program.methods[0])


def test_planned_tensors_of_unchanged_firmware_are_packed(tmp_path: Path) -> None:
    source, out = tmp_path / "m.pte", tmp_path / "o.pte"
    source.write_bytes(twice(False))
    compile_program(source, out)
    program = read_program(out.read_bytes())
    assert program.methods[0].planned_bytes == {1: 61440}  # the float input and its int8 version
    ran = ExecutorchModel(program, program.methods[0], stand_ins=True).run([ramp()])
    assert ran.outputs[0].ravel().tolist() == list(REFERENCE)


def test_states_views_moves_and_loops_keep_their_memory() -> None:
    def tensor(at: int) -> Tensor:
        return Tensor("int8", (16,), (1, at))

    values = [tensor(0), tensor(16), tensor(32), tensor(48), tensor(64), Tensor("int8", (16,)), tensor(96), 1]
    calls = [
        ("kernel", "aten::add.out", [0, 1, 7, 2, 2]),  # 1 is read before anything writes it: a state
        ("kernel", "aten::copy_.default", [1, 2, 7, 1]),
        ("kernel", "executorch_prim::et_view.default", [2, 7, 5]),
        ("kernel", "aten::neg.out", [0, 3, 3]),
        ("kernel", "aten::neg.out", [5, 4, 4]),  # 5 is a view of 2
        ("kernel", "aten::neg.out", [3, 6, 6]),
        (4, 7, 3),  # back to the first neg
    ]
    program = read_program(pte_file([Calls(values, [0], [6], calls, [0, 112])]))
    lives = {one.value: (one.first, one.last) for one in placed_tensors(program.methods[0])}
    assert lives == {0: (0, 7), 1: (0, 7), 2: (0, 7), 3: (3, 7), 4: (3, 7), 6: (3, 7)}


def test_tensors_over_one_another_stay_so() -> None:
    """In place: the output of an operator lies on its input, as the file says."""
    values = [Tensor("int8", (64,), (1, 128)), Tensor("int8", (64,), (1, 128)), Tensor("int8", (32,), (1, 160)),
              Tensor("int8", (64,), (1, 512))]  # fmt: skip
    calls = [("kernel", "aten::neg.out", [0, 1, 1]), ("kernel", "aten::slice.out", [1, 2, 2]),
             ("kernel", "aten::cat.out", [2, 3, 3])]  # fmt: skip
    program = read_program(pte_file([Calls(values, [0], [3], calls, [0, 576 + 64])]))
    blocks = tensor_blocks(program.methods[0])
    assert [(block.size_bytes, dict(block.members)) for block in blocks] == [(64, {0: 0, 1: 0, 2: 32}), (64, {3: 0})]
    found = replan_tensors(program.methods[0])
    assert found is not None
    assert found.planned_bytes == {1: 128 + 64}  # 64 bytes behind the last tensor stay: a backend may read over it
    places = {value: place.offset_bytes for value, place in found.places.items()}
    assert places[0] == places[1] == places[2] - 32
