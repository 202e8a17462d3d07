"""Random inputs that a network uses as an index are inside of what it indexes, however it gets there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import ArtifactError
from npu_memplan.compiler import compile_model
from npu_memplan.files.arrays import read_inputs, read_steps
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.inputs import load_inputs
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")


def ranges(b: ModelBuilder) -> list[tuple[int, int] | None]:
    network = read_network(b.finish())
    return [network.tensors[i].index_range for i in network.inputs]


def ints(*values: object) -> np.ndarray:
    return np.array(values, np.int32)


def gathered(b: ModelBuilder, indices: int, rows: int = 7, axis: int = 0) -> int:
    """A tensor that `indices` select of a constant of `rows` rows."""
    shape = (rows, 3) if axis == 0 else (3, rows)
    table = b.constant(np.arange(3 * rows, dtype=np.float32).reshape(shape))
    many = b.tensors[indices].shape
    y = b.tensor((*many, 3) if axis == 0 else (3, *many), "float32")
    b.operator("GATHER", [table, indices], [y], "GatherOptions", 2, Axis=axis)
    return y


def test_what_an_operator_indexes() -> None:
    b = ModelBuilder()
    x = [b.tensor((4,), "int32") for _ in range(3)]
    places, updates, at = b.tensor((4, 2), "int32"), b.tensor((2, 3), "float32"), b.tensor((2,), "int32")
    outputs = [gathered(b, x[0]), gathered(b, x[1], 5, axis=1)]
    table = b.constant(np.zeros((9, 4, 2), np.float32))
    for name, inputs, shape, options in (
        ("EMBEDDING_LOOKUP", [x[2], table], (4, 4, 2), None),
        ("GATHER_ND", [table, places], (4, 2), "GatherNdOptions"),
        ("DYNAMIC_UPDATE_SLICE", [b.constant(np.zeros((8, 5), np.float32)), updates, at], (8, 5),
         "DynamicUpdateSliceOptions"),
    ):  # fmt: skip
        outputs.append(b.tensor(shape, "float32"))
        b.operator(name, inputs, outputs[-1:], options)
    hot, one = b.tensor((4,), "int64"), [b.constant(np.array(v, np.float32)) for v in (1, 0)]
    outputs.append(b.tensor((4, 6), "float32"))
    b.operator("ONE_HOT", [hot, b.constant(np.array(6, np.int32)), *one], outputs[-1:], "OneHotOptions", Axis=-1)
    b.made([*x, places, updates, at, hot], outputs)
    assert ranges(b) == [(0, 7), (0, 5), (0, 9), (0, 4), None, (0, 3), (0, 6)]


def test_the_way_to_the_operator() -> None:
    """Reshapes, casts, concatenations and constants that are added; a constant that is subtracted from."""
    b = ModelBuilder()
    a, c = b.tensor((1, 2), "int64"), b.tensor((2,), "float32")
    flat, whole, more, both = (b.tensor(s, "int32") for s in ((2,), (2,), (2,), (4,)))
    cast = b.tensor((1, 2), "int32")
    b.operator("CAST", [a], [cast], "CastOptions")
    b.operator("RESHAPE", [cast, b.constant(ints(2))], [flat])
    b.operator("CAST", [c], [whole], "CastOptions")
    b.operator("ADD", [whole, b.constant(ints(1, 3))], [more], "AddOptions")
    b.operator("CONCATENATION", [flat, more], [both], "ConcatenationOptions", Axis=0)
    b.made([a, c], [gathered(b, both)])
    assert ranges(b) == [(0, 7), (-1, 4)]


def test_negative_indices_made_positive() -> None:
    """x + 7 where x is below 0, else x: both ways cannot be within the table, the direct one is."""
    b = ModelBuilder()
    x, less, more, chosen = (b.tensor((4,), dtype) for dtype in ("int32", "bool", "int32", "int32"))
    b.operator("LESS", [x, b.constant(ints(0))], [less])
    b.operator("ADD", [x, b.constant(ints(7))], [more], "AddOptions")
    b.operator("SELECT_V2", [less, more, x], [chosen], "SelectV2Options")
    b.made([x], [gathered(b, chosen)])
    assert ranges(b) == [(0, 7)]


def test_two_uses_and_numbers_that_are_none() -> None:
    b = ModelBuilder()
    x, nan, y = b.tensor((4,), "int32"), b.tensor((4,), "float32"), b.tensor((4,), "float32")
    whole = b.tensor((4,), "int32")
    b.operator("ADD", [nan, b.constant(np.array([np.nan], np.float32))], [y], "AddOptions")
    b.operator("CAST", [y], [whole], "CastOptions")
    b.made([x, nan], [gathered(b, x, 9), gathered(b, x, 5), gathered(b, whole)])
    assert ranges(b) == [(0, 5), None]


def test_random_inputs_of_a_compiled_model(tmp_path: Path) -> None:
    """Over the whole range of int32 nearly every row would lie outside the table."""
    b = ModelBuilder()
    x, i = b.tensor((50,), "int8", 0.05, 3), b.tensor((50,), "int32")
    y = b.tensor((50,), "int8", 0.05, 3)
    b.operator("RELU", [x], [y])
    b.made([x, i], [y, gathered(b, i)])
    path = save(tmp_path / "model.tflite", b.finish())
    for number, options in enumerate(
        (
            CompileOptions(objective="bytes", effort="quick"),
            CompileOptions(npu_compiler="tvm", objective="bytes"),
            CompileOptions("none"),
        )
    ):
        folder = tmp_path / f"out{number}"
        artifact = compile_model(path, options, folder)
        assert [slot.index_range for slot in artifact.inputs] == [None, (0, 7)]
        inputs = load_inputs(artifact, ["random:1"])
        assert set(inputs[1].tolist()) == set(range(7))
        assert len(set(inputs[0].tolist())) > 30
        reference = TFLiteReference(path.read_bytes()).run(inputs)
        for ours, theirs in zip(runner.create("local", folder).run(inputs).outputs, reference, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        (steps,) = {tuple(s[1].shape) for s in read_steps("model", artifact.inputs, ["random:2"], 3)}
        assert steps == (50,)
    parsed = read_network(path.read_bytes())
    again = read_inputs("model", [parsed.tensors[i] for i in parsed.inputs], ["random:1"])
    assert all(np.array_equal(a, b) for a, b in zip(inputs, again, strict=True))


def test_an_empty_range_is_damage(tmp_path: Path) -> None:
    b = ModelBuilder()
    i = b.tensor((50,), "int32")
    path = save(tmp_path / "model.tflite", b.made([i], [gathered(b, i)]).finish())
    text = compile_model(path, CompileOptions(accelerator="none"), tmp_path / "out").to_json()
    assert json.loads(text)["inputs"][0]["index_range"] == [0, 7]
    with pytest.raises(ArtifactError, match=r"'t0' has the empty index range \[7, 7\]"):
        Artifact.from_json(text.replace("[0, 7]", "[7, 7]"))
