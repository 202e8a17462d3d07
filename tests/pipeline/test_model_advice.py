"""Advice about a model (`explain --advise`): changed files mean what they say, and gains are those of compiles."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result

from fvp_runner import TFLiteReference
from npu_memplan import model_advice
from npu_memplan.compiler import compile_model, plan_model
from npu_memplan.model_advice import AdviceError, advise, find_changes, find_model
from npu_memplan.models.edits import resize_channels, with_edit
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.entry import invoke
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder

QUICK = CompileOptions(effort="quick")


class Layers(ModelBuilder):
    """A network of random weights, a layer on the other."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(5)

    def image(self, size: int, channels: int, scale: float = 0.05) -> int:
        return self.tensor((1, size, size, channels), "int8", scale, 3)

    def shape(self, x: int) -> tuple[int, ...]:
        return self.tensors[x].shape

    def convolution(self, x: int, channels: int, dtype: str = "int8") -> int:
        depth, low = self.shape(x)[3], 1 if dtype == "uint8" else -90
        values = self.rng.integers(low, 90, (channels, 3, 3, depth)).astype(dtype)
        scales = 0.01 if dtype == "uint8" else (0.01 + 0.001 * np.arange(channels)).tolist()
        weights = self.constant(values, scales, 100 if dtype == "uint8" else 0)
        steps = 0.0005 if dtype == "uint8" else [0.05 * s for s in scales]
        bias = self.constant(self.rng.integers(-900, 900, channels).astype(np.int32), steps)
        y = self.tensor((*self.shape(x)[:3], channels), dtype, 0.05, 3)
        self.operator("CONV_2D", [x, weights, bias], [y], "Conv2DOptions", Padding=0, StrideH=1, StrideW=1)
        return y

    def depthwise(self, x: int) -> int:
        channels = self.shape(x)[3]
        weights = self.constant(self.rng.integers(-90, 90, (1, 3, 3, channels)).astype(np.int8), 0.01)
        bias = self.constant(self.rng.integers(-900, 900, channels).astype(np.int32), 0.0005)
        y, how = self.image(self.shape(x)[1], channels), {"Padding": 0, "StrideH": 1, "StrideW": 1}
        self.operator("DEPTHWISE_CONV_2D", [x, weights, bias], [y], "DepthwiseConv2DOptions", DepthMultiplier=1, **how)
        return y

    def each(self, kind: str, *inputs: int, options: str | None = None, scale: float = 0.05) -> int:
        y = self.image(self.shape(inputs[0])[1], self.shape(inputs[0])[3], scale)
        self.operator(kind, inputs, [y], options)
        return y

    def dense(self, x: int, count: int) -> int:
        weights = self.constant(self.rng.integers(-90, 90, (count, self.shape(x)[-1])).astype(np.int8), 0.01)
        y = self.tensor((1, count), "int8", 0.5, 0)
        self.operator("FULLY_CONNECTED", [x, weights, -1], [y], "FullyConnectedOptions")
        return y

    def mean(self, x: int) -> int:
        y = self.tensor((1, self.shape(x)[3]), "int8", 0.05, 3)
        self.operator("MEAN", [x, self.constant(np.array([1, 2], np.int32))], [y], "ReducerOptions", KeepDims=False)
        return y


def residual_network(channels: int = 20) -> bytes:
    """A block whose channels meet in an ADD, PRELU, MEAN and a dense layer, and SOFTMAX behind it."""
    b = Layers()
    x = b.image(12, 3)
    first = b.convolution(x, channels)
    slopes = b.constant(b.rng.integers(-90, 90, (1, 1, channels)).astype(np.int8), 0.01)
    second = b.convolution(b.each("PRELU", b.depthwise(first), slopes), channels)
    logits = b.dense(b.mean(b.each("ADD", first, second, options="AddOptions")), 7)
    y = b.tensor((1, 7), "int8", 1 / 256, -128)
    b.operator("SOFTMAX", [logits], [y], "SoftmaxOptions", Beta=1.0)
    return b.made([x], [y]).finish()


def outputs_of(data: bytes) -> list[np.ndarray]:
    shapes = read_network(data, "m")
    values = np.random.default_rng(2).integers(-128, 128, shapes.tensors[shapes.inputs[0]].shape).astype(np.int8)
    return TFLiteReference(data).run([values])


def test_padded_channels_leave_the_results_as_they_are() -> None:
    data = residual_network()
    before = read_network(data, "m")
    edit = resize_channels(before, before.operators[0].outputs[0], 32)
    assert edit is not None
    changed = with_edit(data, edit)
    after = read_network(changed, "m")
    widths = [after.tensors[o.outputs[0]].shape[-1] for o in after.operators]
    assert widths == [32] * 6 + [7, 7]
    first = before.operators[0].inputs[1]
    assert after.tensors[first].scales == (*before.tensors[first].scales, *before.tensors[first].scales[-1:] * 12)
    assert all(np.array_equal(a, b) for a, b in zip(outputs_of(data), outputs_of(changed), strict=True))


def test_fewer_channels_are_the_first() -> None:
    data = residual_network()
    before = read_network(data, "m")
    edit = resize_channels(before, before.operators[0].outputs[0], 16)
    assert edit is not None
    after = read_network(with_edit(data, edit), "m")
    for place, kept in ((0, (16, 3, 3, 3)), (3, (16, 3, 3, 16)), (6, (7, 16))):
        weights = after.operators[place].inputs[1]
        assert after.tensors[weights].shape == kept
        first = tuple(slice(n) for n in kept)
        assert np.array_equal(after.tensors[weights].array(), before.tensors[weights].array()[first])


def test_new_weights_of_uint8_are_zero() -> None:
    b = Layers()
    x = b.tensor((1, 6, 6, 3), "uint8", 0.05, 3)
    y = b.convolution(b.convolution(x, 5, "uint8"), 4, "uint8")
    data = b.made([x], [y]).finish()
    before = read_network(data, "m")
    edit = resize_channels(before, before.operators[0].outputs[0], 16)
    assert edit is not None
    after = read_network(with_edit(data, edit), "m")
    assert (after.tensors[after.operators[1].inputs[1]].array()[..., 5:] == 100).all()


def concatenated() -> tuple[bytes, int]:
    b = Layers()
    x = b.image(6, 3)
    inner = b.convolution(x, 5)
    both = b.image(6, 8)
    b.operator("CONCATENATION", [inner, x], [both], "ConcatenationOptions", Axis=3)
    return b.made([x], [b.convolution(both, 4)]).finish(), inner


def last() -> tuple[bytes, int]:
    b = Layers()
    x = b.image(6, 3)
    y = b.convolution(x, 5)
    return b.made([x], [y]).finish(), y


def reduced_over_channels() -> tuple[bytes, int]:
    b = Layers()
    x = b.image(6, 3)
    inner = b.convolution(x, 5)
    y = b.tensor((1, 6, 6), "int8", 0.05, 3)
    b.operator("MEAN", [inner, b.constant(np.array([-1], np.int32))], [y], "ReducerOptions", KeepDims=False)
    return b.made([x], [y]).finish(), inner


@pytest.mark.parametrize("make", [concatenated, last, reduced_over_channels])
def test_channels_that_others_depend_on_stay(make: Callable[[], tuple[bytes, int]]) -> None:
    data, tensor = make()
    assert resize_channels(read_network(data, "m"), tensor, 16) is None


def gated_network() -> bytes:
    """x * LOGISTIC(x), as YOLO has it, TANH, and a resized image."""
    b = Layers()
    x = b.image(8, 16)
    inner = b.convolution(x, 16)
    gate = b.tensor((1, 8, 8, 16), "int8", 1 / 256, -128)
    b.operator("LOGISTIC", [inner], [gate])
    swish = b.each("MUL", inner, gate, options="MulOptions")
    bent = b.tensor((1, 8, 8, 16), "int8", 1 / 128, 0)
    b.operator("TANH", [swish], [bent])
    large = b.tensor((1, 20, 20, 16), "int8", 1 / 128, 0)
    b.operator("RESIZE_BILINEAR", [bent, b.constant(np.array([20, 20], np.int32))], [large], "ResizeBilinearOptions", 3)
    return b.made([x], [b.convolution(large, 16)]).finish()


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    path = save(tmp_path / "gated.tflite", gated_network())
    return path


def test_other_operators_are_in_the_file_and_run(gated: Path) -> None:
    data = gated.read_bytes()
    changes = find_changes(plan_model(gated, QUICK).artifact, read_network(data, "m"))
    kinds = {}
    for change in changes:
        changed = with_edit(data, change.edit)
        kinds[change.text] = [o.name for o in read_network(changed, "m").cpu_operators]
        assert outputs_of(changed)
    ends = "CONV_2D"
    assert kinds["HARD_SWISH in the place of 1 pairs of LOGISTIC and MUL"] == [
        ends, "HARD_SWISH", "TANH", "RESIZE_BILINEAR", ends,
    ]  # fmt: skip
    assert kinds["RESIZE_NEAREST_NEIGHBOR in the place of 1 RESIZE_BILINEAR"] == [
        ends, "LOGISTIC", "MUL", "TANH", "RESIZE_NEAREST_NEIGHBOR", ends,
    ]  # fmt: skip


def texts(b: ModelBuilder, inputs: list[int], outputs: list[int], path: Path) -> set[str]:
    path.write_bytes(b.made(inputs, outputs).finish())
    artifact = plan_model(path, QUICK).artifact
    return {change.text for change in find_changes(artifact, read_network(path.read_bytes(), "m"))}


def test_a_gate_that_others_read_stays(tmp_path: Path) -> None:
    b = Layers()
    x = b.image(8, 16)
    inner, gate = b.convolution(x, 16), b.tensor((1, 8, 8, 16), "int8", 1 / 256, -128)
    b.operator("LOGISTIC", [inner], [gate])
    outputs = [b.each("MUL", inner, gate, options="MulOptions"), b.convolution(gate, 16)]
    assert not any("HARD_SWISH" in text for text in texts(b, [x], outputs, tmp_path / "gate.tflite"))


def test_a_last_sigmoid_is_left_out_and_not_replaced(tmp_path: Path) -> None:
    b = Layers()
    x, y = b.image(8, 16), b.tensor((1, 8, 8, 16), "int8", 1 / 256, -128)
    b.operator("LOGISTIC", [b.convolution(x, 16)], [y])
    found = texts(b, [x], [y], tmp_path / "last.tflite")
    assert not any("RELU" in text for text in found)
    assert found <= {"leave out logistic, the last operator"}


def test_where_bytes_are_wanted_they_count_first(tmp_path: Path) -> None:
    model = save(tmp_path / "block.tflite", residual_network())
    artifact = plan_model(model, replace(QUICK, objective="bytes")).artifact
    gains = [one.bytes_gained for one in advise(artifact, model).advice]
    assert gains
    assert gains == sorted(gains, reverse=True)
    assert gains[-1] >= 0


def explain(*arguments: object) -> Result:
    return invoke("explain", *arguments, code=None)


def test_a_gain_is_the_difference_of_two_compiles(tmp_path: Path) -> None:
    model = save(tmp_path / "block.tflite", residual_network())
    compile_model(model, QUICK, tmp_path / "out")
    document = json.loads(explain(tmp_path / "out", "--advise", "--json").output)  # the model is beside it
    whole = plan_model(model, QUICK).artifact
    assert (document["cycles"], document["bytes"]) == (whole.total_cycles, whole.pool_bytes("sram"))
    best = document["advice"][0]
    assert {one["text"] for one in document["advice"]} >= {
        "RELU in the place of 1 PRELU",
        "leave out softmax, the last operator",
        "16 channels, not 20, of conv_2d and what has as many by it",
    }
    cut = read_network(model.read_bytes(), "m")
    (change,) = (c for c in find_changes(whole, cut) if c.text == best["text"])
    model.write_bytes(with_edit(model.read_bytes(), change.edit))
    without = plan_model(model, QUICK).artifact
    assert best["cycles_gained"] == (whole.total_cycles or 0) - (without.total_cycles or 0) > 0
    assert best["bytes_gained"] == whole.pool_bytes("sram") - without.pool_bytes("sram")
    gains = [one["cycles_gained"] for one in document["advice"]]
    assert gains == sorted(gains, reverse=True)


def test_float_ends_are_advised_against(tmp_path: Path) -> None:
    b = Layers()
    image, x = b.tensor((1, 12, 12, 3), "float32"), b.image(12, 3)
    b.operator("QUANTIZE", [image], [x], "QuantizeOptions")
    inner, y = b.convolution(x, 16), b.tensor((1, 12, 12, 16), "float32")
    b.operator("DEQUANTIZE", [inner], [y], "DequantizeOptions", 2)
    model = save(tmp_path / "floats.tflite", b.made([image], [y]).finish())
    artifact = plan_model(model, QUICK).artifact
    first = advise(artifact, model).advice[0]
    stored = plan_model(model, replace(QUICK, io="int8")).artifact
    assert first.text.startswith("compile with --io int8")
    assert first.results == "the same results, as int8"
    assert first.cycles_gained == (artifact.total_cycles or 0) - (stored.total_cycles or 0)


def test_what_the_cpu_runs_is_compiled_with_an_operator_of_the_npu(tmp_path: Path) -> None:
    b = Layers()
    x = b.image(12, 16)
    inner, y = b.convolution(x, 16), b.image(12, 16)
    b.operator("CUMSUM", [inner, b.constant(np.array(1, np.int32))], [y], "CumsumOptions")
    model = save(tmp_path / "sums.tflite", b.made([x], [b.convolution(y, 16)]).finish())
    first = advise(plan_model(model, QUICK).artifact, model).advice[0]
    assert first.text == "an operator of the NPU in the place of 1 CUMSUM on the CPU (compiled with RELU)"
    assert first.results.startswith("another function")
    assert first.cycles_gained > 0


def test_nothing_to_advise(tmp_path: Path) -> None:
    b = Layers()
    x = b.image(12, 16)
    model = save(tmp_path / "plain.tflite", b.made([x], [b.convolution(b.convolution(x, 16), 16)]).finish())
    compile_model(model, QUICK, tmp_path / "out")
    done = explain(tmp_path / "out", "--advise")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0].startswith("plain: 0 changes of the model compiled with --effort quick; ")
    assert done.output.splitlines()[-1] == "nothing to advise"


def test_without_the_model_it_is_an_error(gated: Path, tmp_path: Path) -> None:
    artifact = compile_model(gated, QUICK, tmp_path / "out")
    assert find_model(artifact, tmp_path / "out", None) == gated
    gated.rename(tmp_path / "moved.tflite")
    command = [sys.executable, "-m", "npu_memplan", "explain", str(tmp_path / "out"), "--advise"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 2
    assert done.stderr.startswith("npu-memplan: gated.tflite, which ")
    assert "Traceback" not in done.stderr
    with pytest.raises(AdviceError, match=r"gated.tflite, which .*out was compiled from, is not at .*give it by --mod"):
        find_model(artifact, tmp_path / "out", None)
    assert find_model(artifact, tmp_path / "out", tmp_path / "moved.tflite") == tmp_path / "moved.tflite"
    gated.write_bytes(residual_network())
    with pytest.raises(AdviceError, match=r"is not the gated.tflite that .*out was compiled from"):
        find_model(artifact, tmp_path / "out", None)
    assert explain(tmp_path / "out", "conv_2d", "--advise").exit_code == 2
    assert explain(tmp_path / "out", "--model", gated).exit_code == 2


def test_only_the_dearest_changes_are_compiled(gated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact, parsed = plan_model(gated, QUICK).artifact, read_network(gated.read_bytes(), "m")
    every = find_changes(artifact, parsed)
    monkeypatch.setattr(model_advice, "MOST_TRIED", 1)
    assert [c.text for c in find_changes(artifact, parsed)] == [every[0].text]
