"""A PT2E-quantised PyTorch network goes to the NPU and equals PyTorch's own quantised result within one step.

PyTorch is an extra of its own and not in `test`: it is large, and `import tvm` imports an installed one, which
costs seconds.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.frontend.torch import TorchImportError, _Converters, from_quantised_program
from npu_memplan.relax import host_operators, lower_for_ethosu, partition_for_ethosu
from tests.support.digits_network import Digits, digits
from tests.support.on_model import only_graph, run_program
from tests.support.torch_digits import converted, digits_net, needs_torch


@pytest.fixture(scope="module")
def network() -> Digits:
    return digits()


@pytest.fixture(scope="module", params=[True, False], ids=["per_channel", "per_tensor"])
def quantised(request: pytest.FixtureRequest, network: Digits) -> Any:
    return converted(*digits_net(network), request.param)


def stored_values(module: Any, image: np.ndarray) -> list[np.ndarray]:
    """Every tensor that PyTorch quantises per tensor when it runs `module`, in order."""
    import torch

    found: list[np.ndarray] = []

    class Recorder(torch.fx.Interpreter):
        def run_node(self, node: Any) -> Any:
            value = super().run_node(node)
            if node.target is torch.ops.quantized_decomposed.quantize_per_tensor.default:
                found.append(value.numpy().copy())
            return value

    Recorder(module).run(torch.from_numpy(image))
    return found


@needs_torch
def test_the_example_equals_pytorch_within_one_step(quantised: Any, network: Digits) -> None:
    import torch

    module = partition_for_ethosu(
        from_quantised_program(torch.export.export(quantised, (torch.from_numpy(network.images[:1]),)))
    )
    assert [o.kind for o in host_operators(module)] == ["nn.softmax"]  # XNNPACK's quantizer leaves it in float
    graph = only_graph(module)
    program_on_npu = lower(graph, accelerator("ethos-u55-256"))
    differences, seen = [], set()
    for sample in network.images:
        image, *_, logits = stored_values(quantised, sample[None])
        (found,) = run_program(program_on_npu, {graph.inputs[0]: image})
        differences.append(int(np.abs(found.reshape(-1).astype(int) - logits.reshape(-1)).max()))
        seen |= set(logits.reshape(-1).tolist())
    assert len(seen) > 50
    assert max(differences) <= 1, differences
    lowered = lower_for_ethosu(module)
    assert [gv.name_hint for gv in lowered.functions if gv.name_hint != "main"] == ["ethosu_0"]


def test_scales_that_are_computed_are_refused() -> None:
    empty = types.SimpleNamespace(
        graph_signature=types.SimpleNamespace(inputs_to_buffers={}, inputs_to_parameters={}),
        state_dict={},
        constants={},
    )
    node = types.SimpleNamespace(name="quantize_per_tensor_3")
    with pytest.raises(TorchImportError, match=r"quantize_per_tensor_3: .* is computed when the program runs"):
        _Converters(empty)._number(node, types.SimpleNamespace(name="choose_qparams"))
    with pytest.raises(TorchImportError, match=r"the zero points 300 do not fit its type int8"):
        _Converters(empty)._read_scaling(node, 0.5, 300, "int8")
