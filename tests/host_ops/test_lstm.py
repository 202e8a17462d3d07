"""The LSTM against TFLite Micro: alone, and its states over several runs."""

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

R = np.random.default_rng(11)


def _model(time_major=False, batches=1, clip=0.0, cell_scale=2.0**-11, **changes):
    steps, depth, units = 3, 7, 5
    shape = (steps, batches) if time_major else (batches, steps)

    def weights(columns):
        return constant(R.integers(-127, 128, (units, columns)), "int8", float(R.uniform(0.004, 0.02)))

    def bias():
        return constant(R.integers(-2000, 2000, units), "int32", 1e-4)

    inputs = [
        TensorSpec((*shape, depth), "int8", 0.03, 4),
        *(weights(depth) for _ in range(4)),
        *(weights(units) for _ in range(4)),
        None, None, None,
        *(bias() for _ in range(4)),
        None, None,
        TensorSpec((batches, units), "int8", 0.008, -6, is_variable=True),
        TensorSpec((batches, units), "int16", cell_scale, 0, is_variable=True),
        None, None, None, None,
    ]  # fmt: skip
    for position, spec in changes.get("replace", {}).items():
        inputs[position] = spec
    options = {"FusedActivationFunction": 4, "CellClip": clip, "TimeMajor": time_major}
    output = TensorSpec((*shape, units), "int8", 0.008, -6)
    return write_model("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [output], ("UnidirectionalSequenceLSTMOptions", options))


def test_lstms_keep_their_states(bit_exact):
    forms = (False, 1, 0.0, 2.0**-11), (True, 2, 0.0, 2.0**-13), (False, 2, 1.5, 2.0**-12), (False, 1, 0.0, 2.0**-15)
    problem = bit_exact([_model(*form) for form in forms], runs=4)
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
        ({"replace": {9: constant([1] * 5, "int16", 0.1)}}, "it has a peephole (input 9)"),
        ({"replace": {20: constant([1] * 5, "int16", 0.1)}}, "it has layer normalisation"),
    ],
)
def test_variants_are_refused(changes, message):
    network = read_network(_model(**changes))
    assert message in (unsupported_reason(network, network.operators[0]) or "")


def test_a_state_that_is_no_variable_is_refused():
    with pytest.raises(NetworkError, match="as input 19, its state, which is not marked as a variable"):
        read_network(_model(replace={19: TensorSpec((1, 5), "int16", 2.0**-11)}))
