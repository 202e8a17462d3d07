"""What cannot be compiled is one clear error that says where to go; found on public networks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from npu_memplan.frontend.host_ops import supported_names, unsupported_reason
from npu_memplan.frontend.tflite.lifted import from_network, import_host_only, import_tflite
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.models.flatbuffer import NetworkError, UnsupportedModelError
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import compile_tflite
from npu_memplan.vela.lift import LiftError
from tests.support.needs import need_data
from tests.support.operator_table import ROWS, row
from tests.support.real_data import shared_folder
from tests.support.tflite_builder import TensorSpec, constant, single_operator


def test_an_npu_operator_without_outputs_is_refused() -> None:
    network = compile_tflite(row("ADD", "int8").build()).parsed
    (call,) = network.npu_calls
    cut = replace(network, operators=(replace(call, outputs=(), output_addresses=()),))
    with pytest.raises(
        LiftError, match=r"NPU operator 0 of model has no output, and no later one reads what it leaves"
    ):
        from_network(cut)


def test_a_hybrid_operator_is_refused_by_that_name() -> None:
    x, y = TensorSpec((1, 4), "float32"), TensorSpec((1, 4), "float32")
    w = constant(np.ones((1, 4)), "int8", 0.1)
    model = single_operator("ADD", [x, w], [y], "AddOptions").finish()
    for read in (import_tflite, import_host_only, build_module):
        with pytest.raises(NetworkError, match=r"ADD takes float32 beside tensor 0 't0' .*, and tensor 2 't2' is int8"):
            read(model)


def test_a_resize_of_unknown_shape_names_the_tensor() -> None:
    x, s = TensorSpec((1, 4, 4, 2), "int8", 0.1), TensorSpec((2,), "int32")
    y = TensorSpec((), "int8", 0.1)
    b = single_operator("RESIZE_NEAREST_NEIGHBOR", [x, s], [y], "ResizeNearestNeighborOptions", 3)
    with pytest.raises(UnsupportedModelError, match=r"tensor 't2' has shape \[\], not four dimensions"):
        import_host_only(b.finish())


@pytest.mark.parametrize("kind", sorted(set(supported_names()) & set(ROWS)))
def test_float_tensors_are_taken_or_refused(kind: str) -> None:
    """No host operator fails in another way when its tensors are float32."""
    network = read_network(row(kind, "int8").build())
    tensors = tuple(
        replace(t, dtype="float32", scales=(), zero_points=()) if t.dtype == "int8" and t.data is None else t
        for t in network.tensors
    )
    network = replace(network, tensors=tensors)
    reason = unsupported_reason(network, network.cpu_operators[0])
    assert reason is None or "float32" in reason


def test_a_public_network_whose_shapes_follow_from_its_input_is_taken() -> None:
    path = need_data(shared_folder("zoo") / "style_transfer_dynamic.tflite")
    assert "main" in {v.name_hint for v in import_host_only(path.read_bytes(), path.name).module.functions}
