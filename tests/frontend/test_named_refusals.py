"""Operators and types of TensorFlow itself are refused by their names."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import flatbuffers
import numpy as np
import pytest
import tflite

from npu_memplan.compiler import compile_model
from npu_memplan.errors import InternalError
from npu_memplan.frontend.errors import TvmFrontendError, run_importer
from npu_memplan.frontend.tflite.lifted import import_host_only, import_tflite
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.frontend.test_folding import to_a_matrix
from tests.support.operator_table import row
from tests.support.tflite_builder import ModelBuilder, TensorSpec, _table, single_operator


def test_a_flex_operator() -> None:
    x, y = TensorSpec((1, 4), "float32"), TensorSpec((1, 4), "float32")
    with pytest.raises(UnsupportedModelError, match=r"operator 0 FlexErf\n(?s:.*)TensorFlow's own, which needs"):
        import_host_only(single_operator("custom:FlexErf", [x], [y]).finish())


@pytest.mark.parametrize("name", ["RELU", "ADD", "CUSTOM"])
def test_a_custom_operator_with_the_name_of_a_built_in_one(name: str) -> None:
    """It was compiled as that one, and called exact."""
    x, y = TensorSpec((1, 4), "int8", 0.1), TensorSpec((1, 4), "int8", 0.1)
    with pytest.raises(UnsupportedModelError, match=f"is a custom operator with a built-in one's name, {name}"):
        read_network(single_operator(f"custom:{name}", [x], [y]).finish())


def test_a_custom_code_of_a_built_in_operator_names_nothing() -> None:
    x, y = TensorSpec((1, 4), "int8", 0.1), TensorSpec((1, 4), "int8", 0.1)
    data = single_operator("custom:MyOp", [x], [y]).finish()
    custom, relu = tflite.BuiltinOperator.CUSTOM, tflite.BuiltinOperator.RELU
    model = tflite.Model.GetRootAs(data)
    code = model.OperatorCodes(0)
    changed = bytearray(data)
    fields = [code._tab.Pos + code._tab.Offset(offset) for offset in (4, 10)]  # the code of 8 bits, and of 32
    for place, size in zip(fields, (1, 4), strict=True):
        assert int.from_bytes(data[place : place + size], "little") == custom
        changed[place : place + size] = relu.to_bytes(size, "little")
    assert [o.name for o in read_network(bytes(changed)).cpu_operators] == ["RELU"]


class _DataBehind(ModelBuilder):
    """A file whose constants lie behind the flatbuffer."""

    def _buffer(self, b: flatbuffers.Builder, data: np.ndarray | None) -> int:
        return (
            super()._buffer(b, None) if data is None else _table(b, "Buffer", {"Offset": 1 << 12, "Size": data.nbytes})
        )


def test_constants_outside_of_the_flatbuffer() -> None:
    """They were called results that no operator makes, and the file no valid one."""
    graph = _DataBehind()
    x, y = graph.tensor((1, 4), "int8", 0.1), graph.tensor((1, 4), "int8", 0.1)
    graph.operator("ADD", [x, graph.constant(np.zeros((1, 4), np.int8), 0.1)], [y], "AddOptions")
    with pytest.raises(UnsupportedModelError, match="tensor 2 't2' is stored outside of the flatbuffer"):
        read_network(graph.made([x], [y]).finish())


@pytest.mark.parametrize("dtype", ["variant", "string"])
def test_a_type(dtype: str) -> None:
    x, y = TensorSpec((1, 4), dtype), TensorSpec((1, 4), "float32")
    with pytest.raises(NetworkError, match=f"tensor 0 't0' has element type {dtype.upper()}, which"):
        read_network(single_operator("RELU", [x], [y]).finish())


def raising(error: Exception) -> Callable[[], None]:
    def importer() -> None:
        raise error

    return importer


def test_what_a_library_raises_while_it_imports_is_a_refusal() -> None:
    with pytest.raises(TvmFrontendError, match=r"TVM's ONNX frontend cannot import m.onnx: Expecting value"):
        run_importer("ONNX", "m.onnx", lambda: json.loads("x"))


@pytest.mark.parametrize("error", [InternalError("a fault"), MemoryError("no room"), OSError("no disk")])
def test_what_is_not_of_the_file_is_no_refusal(error: Exception) -> None:
    with pytest.raises(type(error)):
        run_importer("ONNX", "m.onnx", raising(error))


def test_a_fault_of_ours_while_a_file_is_imported_is_no_refusal() -> None:
    nodes = pytest.importorskip("npu_memplan.frontend.onnx", reason="needs onnx")

    def importer() -> None:
        nodes._read_nodes(None, set())

    with pytest.raises(AttributeError, match="'NoneType' object has no attribute 'node'"):
        run_importer("ONNX", "m.onnx", importer)


@pytest.mark.parametrize("target", ["none", "ethos-u55-256", "ethos-u65-512"])
def test_streams_that_the_target_does_not_take_are_refused(target: str, tmp_path: Path) -> None:
    """They were compiled, and failed when they ran."""
    model = tmp_path / "compiled.tflite"
    model.write_bytes(compile_tflite(row("ADD", "int8").build(), VelaOptions("ethos-u85-256")).network)
    with pytest.raises(
        UnsupportedModelError, match=rf"compiled for an NPU already .*--accelerator {target} cannot run"
    ):
        compile_model(model, CompileOptions(target, objective="bytes", effort="quick"), tmp_path / "out")


@pytest.mark.parametrize("take", [import_host_only, import_tflite, partial(build_module, accelerator="ethos-u55-256")])
def test_messages_have_the_numbers_of_the_file(take: Callable[[bytes], object]) -> None:
    """Also where operators of constants are gone, or Vela has made a file of its own."""
    b = to_a_matrix()
    y = b.tensor((1, 192), "int8", 0.05, 3)
    b.operator("custom:Odd", b.outputs, [y])
    b.outputs = [y]
    with pytest.raises(UnsupportedModelError) as error:
        take(b.finish())
    named = f"  operator 5 Odd\n    tensors: {y - 1} 't{y - 1}' int8[1, 192]; {y} 't{y}' int8[1, 192]\n"
    assert named in str(error.value)
