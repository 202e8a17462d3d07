"""The default compile of drawn networks: in all pools together no more bytes than Vela, nor more cycles by a model."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.default_compile import measure
from npu_memplan.options import CompileOptions
from tests.support.random_networks import draw

SEEDS = (
    9560013,  # a host operator: cycles are those of Vela's stream in the plan whose bytes are the limit
    9560039,  # native lowering would take SRAM that Vela's stream does not
    9560054,  # the same, in 16 bytes
    9560082,  # a program within 1 % of the fastest takes more cycles than Vela's stream
    9560088,
    9560119,
)


NPUS = ("ethos-u55-256", "ethos-u65-512", "ethos-u85-256")


@pytest.mark.parametrize(
    ("seed", "npu"),
    [
        *((seed, npu) for npu in NPUS for seed in SEEDS),
        (9560069, "ethos-u85-2048"),  # Vela's stream is slower in another plan than its own
    ],
)
def test_it_is_not_above_vela(seed: int, npu: str, tmp_path: Path) -> None:
    model = tmp_path / "network.tflite"
    model.write_bytes(draw(seed).finish())
    row = measure(model, str(seed), CompileOptions(npu, effort="quick"), windows=False)
    assert not row.above, row
    expected = ("UnsupportedModelError", "VelaError", "nothing of Vela's runs on the NPU")
    assert not row.message or row.message.startswith(expected), row
