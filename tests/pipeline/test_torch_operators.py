"""Small PyTorch networks, quantised by PT2E, are wholly on the NPU and within one step of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner import runner
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.inputs import load_inputs
from tests.support.torch_digits import needs_torch, quantised_program


def network(middle: Callable[[Any, Any], Any], channels: int) -> Any:
    """Two convolutions around `middle`, a function of torch and of 8 channels."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.last = torch.nn.Conv2d(channels, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return self.last(middle(torch, self.first(x)))

    torch.manual_seed(0)
    return Network().eval()


@needs_torch
@pytest.mark.parametrize(
    "middle, channels",
    [
        (lambda torch, x: torch.nn.functional.max_pool2d(torch.relu(x), 2), 8),
        (lambda torch, x: torch.nn.functional.hardswish(x), 8),
        (lambda torch, x: torch.nn.functional.relu6(x), 8),
        (lambda torch, x: torch.cat([torch.relu(x), torch.relu(x + x)], 1), 16),
        (lambda torch, x: torch.nn.functional.interpolate(torch.relu(x), scale_factor=2, mode="nearest"), 8),
        (lambda torch, x: torch.relu(x) * torch.relu(x).mean((2, 3), keepdim=True), 8),
    ],
    ids=["max_pool", "hardswish", "relu6", "cat", "interpolate", "mul"],
)
def test_on_the_npu_within_one_step(middle: Callable[[Any, Any], Any], channels: int, tmp_path: Path) -> None:
    import torch

    from fvp_runner.references.other_formats import TorchReference

    samples = [torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(8)]
    program = quantised_program(network(middle, channels), samples, per_channel=True)
    torch.export.save(program, tmp_path / "m.pt2")
    artifact = compile_model(
        tmp_path / "m.pt2", CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out"
    )
    assert [call.agent for call in artifact.calls] == [Agent.HOST, Agent.NPU, Agent.HOST]
    npu = runner.create("local", tmp_path / "out")
    inputs = load_inputs(npu.artifact, ["random:1"])
    (wanted,) = TorchReference(tmp_path / "m.pt2").run(inputs)
    (step,) = [n.args[1] for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1:]
    assert np.abs(npu.run(inputs).outputs[0] - wanted).max() <= 1.001 * step
