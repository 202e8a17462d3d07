"""Streams that others made and ship: no check may cry wolf at them, and what is wrong with one is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.npu_model.network import NetworkModel, NetworkRun
from npu_memplan.models.tflite import read_network


def run(path: Path) -> NetworkRun:
    data = path.read_bytes()
    network = read_network(data, path.name)
    generator = np.random.default_rng(3)
    inputs = [network.tensors[i] for i in network.inputs]
    given = [generator.integers(-128, 128, t.shape, np.int64).astype(t.dtype) for t in inputs]
    return NetworkModel(network, data).run(given, fuzz_schedules=1)


@pytest.mark.parametrize("name", ["ad_imu_u55_256_vela", "rnnoise_u55_256_vela"])
def test_no_false_alarm(name: str, foreign_stream: Callable[[str], Path]) -> None:
    """Part-kernel-first convolutions behind kernels of several blocks; DMA lengths rounded up behind an input."""
    (stats,) = run(foreign_stream(name)).stats
    assert stats.operations > 15
    assert stats.timing == ()


def test_a_kernel_that_only_a_transfer_from_flash_keeps_from_reading_too_early(
    foreign_stream: Callable[[str], Path],
) -> None:
    (stats,) = run(foreign_stream("face_detect_u55_64_vela")).stats
    assert stats.operations == 611
    (message,) = stats.timing
    assert message.startswith("relies on timing: operation 526 (DEPTHWISE at stream offset 0x6208) has BLOCKDEP 3")
    assert "before operation 524 (POOL at stream offset 0x6154) has written it, unless that ends during" in message
    assert "the wait for operation 525 (DMA_START at stream offset 0x6174) between them (1,040 bytes)" in message
