"""What delegates make, byte for byte, beside TOSA's reference model on the graphs that ExecuTorch gave Vela.

Outputs may differ from PT2E's model where ExecuTorch's graph does: where a convolution with ReLU goes into a
concatenation, its graph has no ReLU. Needs the extra `executorch` with Arm's backend; skipped elsewhere.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("executorch.runtime")
pytest.importorskip("ethosu.vela")

from benchmarks.executorch_programs import FORMS, measure_exported  # noqa: E402
from fvp_runner.references.other_formats import find_tool  # noqa: E402
from tests.support.executorch_bench.runtime import RuntimeBench  # noqa: E402
from tests.support.executorch_networks import UNet, quantise  # noqa: E402

pytestmark = pytest.mark.skipif(find_tool("tosa_reference_model") is None, reason="tosa-tools is not installed")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> RuntimeBench:
    return RuntimeBench(tmp_path_factory.mktemp("bench"))


def rows(module: Any, example: Any, npu: str, bench: RuntimeBench) -> dict[str, Any]:
    from executorch.backends.arm.ethosu import EthosUCompileSpec

    quantised = quantise(module.eval(), [(example,)], EthosUCompileSpec(npu))
    return {row.form: row for row in measure_exported("", npu, quantised, (example,), FORMS, bench)}


def test_a_deviation_from_pt2e_is_in_the_graph_that_executorch_makes(bench: RuntimeBench) -> None:
    torch.manual_seed(3)
    example = torch.randn(1, 3, 16, 16).to(memory_format=torch.channels_last)
    made = rows(UNet(8, 1).to(memory_format=torch.channels_last), example, "ethos-u55-128", bench)
    assert list(made) == list(FORMS)
    for row in made.values():
        assert row.pt2e_differs > 0
        assert (row.tosa_differs, row.tosa_elements, row.note) == (0, 256, "")
    assert made["one arena"].copied_bytes == 0
