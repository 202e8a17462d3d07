"""LSTM and SVDF against TFLite Micro, with their states over several runs."""

from __future__ import annotations

import numpy as np
import pytest

from npu_memplan.frontend.host_ops import unsupported_reason
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.tflite import read_network
from tests.exactness.test_host_operators import values
from tests.support.many_operators import assert_equals_references
from tests.support.operator_models import lstm_layer
from tests.support.tflite_builder import ModelBuilder, TensorSpec, constant, write_model


def build_lstm(time_major: bool = False, batches: int = 1, clip: float = 0.0, cell_scale: float = 2.0**-11, **changes):
    """An LSTM; `changes` replace one of its inputs by a tensor: `input9=...`."""
    b, shape = ModelBuilder(), (3, batches) if time_major else (batches, 3)
    x = b.tensor((*shape, 7), "int8", 0.03, 4)
    made = b.made([x], [lstm_layer(b, x, time_major, batches, clip=clip, cell_scale=cell_scale)])
    ((kind, inputs, *rest),) = made.operators
    for name, spec in changes.items():
        inputs[int(name.removeprefix("input"))] = len(made.tensors)
        made.tensors.append(spec)
    made.operators = [(kind, inputs, *rest)]
    return made.finish()


def test_lstms_keep_their_states(bit_exact):
    forms = (False, 1, 0.0, 2.0**-11), (True, 2, 0.0, 2.0**-13), (False, 2, 1.5, 2.0**-12), (False, 1, 0.0, 2.0**-15)
    problem = bit_exact([build_lstm(*form) for form in forms], runs=4)
    assert [b.size_bytes for b in problem.buffers if "gates" in b.name] == [4 * 5 * 2] * 4


def test_lstms_that_tflite_micro_refuses_are_litert_s(tmp_path):
    """Where intermediate tensors have elements; LiteRT computes gates and products of the cell otherwise."""
    pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")
    models = {}
    for seed in range(3):
        rng, b = np.random.default_rng(seed), ModelBuilder()
        batches, steps, units = (int(n) for n in rng.integers(1, 7, 3))
        time_major, scale = bool(seed % 2), 2.0 ** int(rng.integers(-15, -8))
        shape = (steps, batches) if time_major else (batches, steps)
        x = b.tensor((*shape, 9), "int8", float(rng.uniform(0.005, 0.05)), int(rng.integers(-30, 30)))
        y = lstm_layer(b, x, time_major, batches, units, float(rng.choice([0.0, 0.5])), scale, elements=1)
        models[f"lstm{seed}"] = b.made([x], [y]).finish()
    assert_equals_references(models, values, tmp_path, what="LiteRT's reference kernels")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell_scale": 0.0003}, "which is no power of two"),
        ({"input9": constant([1] * 5, "int16", 0.1)}, "it has a peephole (input 9)"),
        ({"input20": constant([1] * 5, "int16", 0.1)}, "it has layer normalisation"),
    ],
)
def test_variants_are_refused(changes, message):
    network = read_network(build_lstm(**changes))
    assert message in (unsupported_reason(network, network.operators[0]) or "")


def test_a_state_that_is_no_variable_is_refused():
    with pytest.raises(NetworkError, match="as input 19, its state, which is not marked as a variable"):
        read_network(build_lstm(input19=TensorSpec((1, 5), "int16", 2.0**-11)))


def test_an_svdf_keeps_its_state(bit_exact):
    rng = np.random.default_rng(3)
    models, batches, depth, filters, memory = [], 1, 6, 8, 5
    for rank, kind in ((1, "int8"), (2, "int16"), (4, "int8")):
        zero = -11 if kind == "int8" else 0
        state_scale, time_scale = (0.2, 0.01) if kind == "int8" else (0.001, 0.0001)
        inputs = [
            TensorSpec((batches, depth), "int8", 0.05, -20),
            constant(rng.integers(-127, 128, (filters, depth)), "int8", 0.02),
            constant(rng.integers(-127, 128, (filters, memory)), kind, time_scale),
            constant(rng.integers(-500, 500, filters // rank), "int32", state_scale * time_scale),
            TensorSpec((batches, filters * memory), kind, state_scale, zero, is_variable=True),
        ]
        output = TensorSpec((batches, filters // rank), "int8", 0.1 if kind == "int8" else 1e-5, 7)
        models.append(
            write_model("SVDF", inputs, [output], ("SVDFOptions", {"Rank": rank, "FusedActivationFunction": 1}))
        )
    problem = bit_exact(models, runs=memory + 3)
    assert not any("over_time" in b.name for b in problem.buffers)  # sums have no bytes of the plan
