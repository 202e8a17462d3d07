"""Each repair of TVM's TFLite frontend, and that TVM still needs it: when such a test fails, drop the repair."""

from __future__ import annotations

import numpy as np
import pytest
import tflite
import tvm
from tvm import relax
from tvm.relax.frontend.tflite import from_tflite, tflite_frontend

from fvp_runner.references.interpreters import Reference
from npu_memplan.frontend.tflite import lowered
from npu_memplan.frontend.tflite.lowered import clear_stray_quantised_dimensions, round_integer_averages
from tests.support.on_model import import_relax
from tests.support.operator_models import pool
from tests.support.real_data import Models
from tests.support.single_operators import Case, case
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, single_operator


def plain_import(model: bytes) -> object:
    return from_tflite(tflite.Model.GetRootAsModel(model, 0))


@pytest.mark.parametrize(
    "name", ["pad_plane", "transpose_hw", "slice_box", "split_axis3_3", "nearest_x2", "pack_axis3"]
)
def test_moving_operators_import_and_tvm_still_refuses_them(name: str) -> None:
    with pytest.raises(Exception, match="not supported"):
        plain_import(case(name).build())
    assert import_relax(case(name).build())["main"] is not None


def test_tvms_own_converter_stays_as_it_is() -> None:
    assert import_relax(case("pad_plane").build())["main"] is not None
    assert "PAD" not in tflite_frontend.OperatorConverter._SUPPORTED_QUANTIZED_OPS


def three_dimensional_dense() -> bytes:
    x = TensorSpec((1, 4, 10), "int8", 0.05, 3)
    w = constant(np.arange(-100, 100).reshape(5, 40), "int8", 0.01)
    y = TensorSpec((1, 5), "int8", 0.5, -1)
    return single_operator("FULLY_CONNECTED", [x, w], [y], "FullyConnectedOptions", 4).finish()


def test_dense_layers_flatten_and_tvm_still_does_not() -> None:
    with pytest.raises(Exception, match=r"(?i)matmul|shape"):
        plain_import(three_dimensional_dense())
    module = import_relax(three_dimensional_dense())
    assert [int(d) for d in module["main"].ret_ty.shape] == [1, 5]


def test_stray_quantised_dimensions_are_cleared() -> None:
    model = case("depthwise_c1").build()  # one scale, but dimension 3
    with pytest.raises(Exception, match="QuantizedDimension"):
        plain_import(model)
    repaired, count = clear_stray_quantised_dimensions(model)
    assert count >= 1
    assert len(repaired) == len(model)
    assert clear_stray_quantised_dimensions(repaired)[1] == 0
    import_relax(model)


def test_per_channel_dimensions_stay() -> None:
    model = case("conv_k3x3").build()
    assert clear_stray_quantised_dimensions(model) == (model, 0)


def resized(scale: tuple[float, ...] | None) -> bytes:
    x, y = (TensorSpec((1, size, size, 4), "int8", 0.05, 3) for size in (3, 6))
    inputs = [x, constant([6, 6], "int32", scale)]
    return single_operator("RESIZE_NEAREST_NEIGHBOR", inputs, [y], "ResizeNearestNeighborOptions").finish()


def test_empty_tables_of_scales(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls(model: bytes) -> bool:
        return "image.resize2d" in import_relax(model).script()

    assert calls(resized(None))
    assert calls(resized(()))
    monkeypatch.setattr(lowered._Tensor, "Quantization", tflite.Tensor.Quantization)
    assert not calls(resized(()))


@pytest.mark.parametrize(
    ("places", "batches", "imported"), [([2, 0], 0, True), (1, 0, True), ([3, -1], 0, False), ([[1, 0]], 1, False)]
)
def test_gather_of_constant_places(places: list[int] | int, batches: int, imported: bool) -> None:
    b = ModelBuilder()
    indices, left = np.array(places, np.int32), (1, 3) if batches else ()
    x = b.tensor((1, 3, 4), "int8", 0.05, 3)
    y = b.tensor((*left, *indices.shape[batches:]) if batches else (1, 3, *indices.shape), "int8", 0.05, 3)
    b.operator("GATHER", [x, b.constant(indices)], [y], "GatherOptions", 2, Axis=2, BatchDims=batches)
    assert ("R.take" in import_relax(b.made([x], [y]).finish()).script()) == imported


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_reshape_copies_stored_values(dtype: str) -> None:
    x, y = TensorSpec((1, 4, 6), dtype, 0.05, 3), TensorSpec((1, 24), dtype, 0.07, 9)
    b = single_operator("RESHAPE", [x, constant([1, 24])], [y], "ReshapeOptions", NewShape=[1, 24])
    text = import_relax(b.finish()).script()
    assert "R.reshape" in text
    assert "quantize" not in text


def run_on_host(module: object, value: np.ndarray) -> np.ndarray:
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    return np.asarray(machine["main"](tvm.runtime.tensor(value)).numpy())


def test_integer_averages_round_and_tvm_still_truncates() -> None:
    average = Case("repair", "pool", lambda rng: pool(rng, kind="AVERAGE", kernel=(3, 3), stride=(2, 2)))
    model = average.build()
    value = np.random.default_rng(8).integers(-128, 128, (1, 9, 10, 7)).astype(np.int8)
    expected = Reference(model).run([value])[0]
    module = import_relax(model)
    assert not np.array_equal(run_on_host(module, value), expected)
    assert np.array_equal(run_on_host(round_integer_averages(module), value), expected)


def test_real_models_need_them(real_network: Models) -> None:
    for name in ("person_detect", "micro_speech_quantized"):
        model = real_network(name).read_bytes()
        with pytest.raises(Exception, match=r".+"):
            plain_import(model)
        import_relax(model)
