"""Programs of several shapes as ExecuTorch exports them, compiled both ways, in its runtime: the same outputs.

Needs the extra `executorch` with Arm's backend, in an environment of its own; skipped elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.runtime")
pytest.importorskip("ethosu.vela")

from executorch.backends.arm.ethosu import EthosUCompileSpec  # noqa: E402
from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower  # noqa: E402

from fvp_runner.executorch.commands import compile_program  # noqa: E402
from npu_memplan.executorch_lowering import ethos_u_partitioner  # noqa: E402
from npu_memplan.models.executorch.program import read_program  # noqa: E402
from tests.support.executorch_bench.runtime import BenchMemory, RuntimeBench  # noqa: E402
from tests.support.executorch_networks import quantise  # noqa: E402

SPEC = EthosUCompileSpec("ethos-u55-128")
SHAPE = (1, 3, 8, 8)


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.second(torch.relu(self.first(x))))


class Several(Net):
    """Two delegates around a kernel, and two outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.nn.Conv2d(8, 4, 1)

    def forward(self, x: Any) -> Any:
        y = torch.trunc(super().forward(x) * 16)
        return self.last(y), y


class State(Net):
    """A buffer that each inference changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(1, 8, 8, 8))

    def forward(self, x: Any) -> Any:
        y = super().forward(x)
        self.kept.add_(torch.trunc(y))
        return self.kept + y


def exported(module: Any) -> Any:
    torch.manual_seed(5)
    example = (torch.randn(SHAPE),)
    return torch.export.export(quantise(module().eval(), [example], SPEC), example)


def emitted(programs: Any, npu_compiler: str, **config: Any) -> bytes:
    partitioner: Any = [ethos_u_partitioner(SPEC, npu_compiler=npu_compiler)]
    if isinstance(programs, dict):
        partitioner = {name: [ethos_u_partitioner(SPEC, npu_compiler=npu_compiler)] for name in programs}
    edge = to_edge_transform_and_lower(programs, partitioner=partitioner)
    return bytes(edge.to_executorch(ExecutorchBackendConfig(**config)).buffer)


KINDS: dict[str, Callable[[], bytes]] = {
    "several delegates": lambda: emitted(exported(Several), "vela"),
    "native delegates": lambda: emitted(exported(Several), "tvm"),
    "methods": lambda: emitted({"one": exported(Net), "two": exported(Several)}, "vela"),
    "a state": lambda: emitted(exported(State), "vela"),
    "inline": lambda: emitted(exported(Net), "vela", extract_delegate_segments=False),
}


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RuntimeBench:
    return RuntimeBench(tmp_path_factory.mktemp("bench"))


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_programs_give_the_same(kind: str, bench: RuntimeBench, tmp_path: Path) -> None:
    data = KINDS[kind]()
    (tmp_path / "model.pte").write_bytes(data)
    values = np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)
    for one_arena in (False, True):
        planned = tmp_path / f"planned{one_arena}.pte"
        compile_program(tmp_path / "model.pte", planned, objective="bytes", one_arena=one_arena)
        memory = BenchMemory(temp_at=0) if one_arena else None
        for method in read_program(data).methods:
            expected = bench.run(data, [values], method.name).outputs
            ran = bench.run(planned.read_bytes(), [values], method.name, memory)
            assert all(np.array_equal(a, b) for a, b in zip(ran.outputs, expected, strict=True)), method.name
            assert not one_arena or ran.copied_in_bytes + ran.copied_out_bytes == 0
