"""`ethos_u_partitioner` inside `to_edge_transform_and_lower`: what it makes runs in ExecuTorch's runtime as PT2E says.

Needs the extra `executorch` with Arm's backend, in an environment of its own; skipped elsewhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.runtime")
pytest.importorskip("ethosu.vela")

from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner  # noqa: E402
from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config  # noqa: E402
from executorch.exir import to_edge_transform_and_lower  # noqa: E402
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: E402

from npu_memplan.executorch.replanning import ScratchError  # noqa: E402
from npu_memplan.executorch_lowering import ethos_u_partitioner  # noqa: E402
from npu_memplan.models.executorch.delegates import npu_calls  # noqa: E402
from npu_memplan.models.executorch.program import read_program  # noqa: E402
from tests.support.executorch_bench.runtime import RuntimeBench  # noqa: E402

SPEC = EthosUCompileSpec("ethos-u55-128")


SHAPE = (1, 3, 64, 64)


class Net(torch.nn.Module):  # type: ignore[misc]
    """Three convolutions, as in `tests/models`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1, stride=2)
        self.second = torch.nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.third = torch.nn.Conv2d(32, 32, 3, padding=1)
        self.dense = torch.nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.dense((x + torch.relu(self.third(x))).mean(dim=(2, 3)))


@pytest.fixture(scope="module")
def quantised() -> tuple[Any, Any]:
    example = (torch.randn(*SHAPE),)
    quantiser = EthosUQuantizer(SPEC).set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(Net().eval(), example).module(check_guards=False), quantiser)
    prepared(*example)
    return convert_pt2e(prepared), example


def lowered(quantised: tuple[Any, Any], partitioner: Any) -> bytes:
    module, example = quantised
    edge = to_edge_transform_and_lower(torch.export.export(module, example), partitioner=[partitioner])
    return bytes(edge.to_executorch().buffer)


def scratch(data: bytes) -> int:
    return npu_calls(read_program(data))[0].blocks.scratch_bytes


def test_less_scratch_and_the_outputs_of_pt2e(quantised: tuple[Any, Any], tmp_path: Path) -> None:
    vela = lowered(quantised, EthosUPartitioner(SPEC))
    ours = lowered(quantised, ethos_u_partitioner(SPEC, objective="bytes"))
    assert scratch(ours) < scratch(vela)
    again = lowered(quantised, EthosUPartitioner(SPEC))  # Arm's own is as it was
    assert scratch(again) == scratch(vela)
    values = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    expected = quantised[0](torch.from_numpy(values)).detach().numpy()
    bench = RuntimeBench(tmp_path)
    for data in (vela, ours):
        assert np.array_equal(bench.run(data, [values]).outputs[0], expected)
    with pytest.raises(ScratchError, match="bytes of scratch, the pool has 1,024"):
        lowered(quantised, ethos_u_partitioner(SPEC, pool="1KiB"))


@pytest.mark.parametrize("npu_compiler", ["tvm", "auto"])
def test_native_lowering(quantised: tuple[Any, Any], tmp_path: Path, npu_compiler: str) -> None:
    vela = lowered(quantised, ethos_u_partitioner(SPEC, objective="bytes"))
    ours = lowered(quantised, ethos_u_partitioner(SPEC, objective="bytes", npu_compiler=npu_compiler))
    assert scratch(ours) < scratch(vela)
    values = np.random.default_rng(4).standard_normal(SHAPE).astype(np.float32)
    expected = quantised[0](torch.from_numpy(values)).detach().numpy()
    assert np.array_equal(RuntimeBench(tmp_path).run(ours, [values]).outputs[0], expected)


def test_a_board(quantised: tuple[Any, Any], tmp_path: Path) -> None:
    data = lowered(quantised, ethos_u_partitioner(board="corstone-300-u55", accelerator="ethos-u55-128"))
    flags = read_program(data).methods[0].delegates[0].specs["compile_flags"].decode()
    assert "--system-config=Board" in flags
    values = np.random.default_rng(2).standard_normal(SHAPE).astype(np.float32)
    expected = quantised[0](torch.from_numpy(values)).detach().numpy()
    assert np.array_equal(RuntimeBench(tmp_path).run(data, [values]).outputs[0], expected)
