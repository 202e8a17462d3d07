"""Runs one-operator models on the host the whole way: lower, plan, print C, compile, run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.problem import Problem
from tests.support.many_operators import Running, Together, assert_equals_references


class Compiled:
    """A one-operator model in this process; its states live in the pool between two runs."""

    def __init__(self, model: bytes, folder: Path) -> None:
        network = read_network(model)
        given = [np.zeros(network.tensors[i].shape, network.tensors[i].dtype) for i in network.inputs]
        together = Together([network], [given], folder)
        self.problem, self.text = together.extracted.problem, (folder / "many_host.c").read_text()
        self._running = Running(together)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        return self._running.run([inputs])[0]


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[bytes], Compiled]:
    """`compiled(model)` -> the operator, lowered, planned, compiled and loaded."""

    def make(model: bytes) -> Compiled:
        folder = tmp_path / f"m{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return Compiled(model, folder)

    return make


@pytest.fixture
def bit_exact(tmp_path: Path) -> Callable[..., Problem]:
    """`bit_exact(models, runs=3)`: random inputs, every element of every output of each model equal to TFLite Micro's.

    The models are one program, whose problem is returned.
    """

    def check(models: Iterable[bytes], runs: int = 3) -> Problem:
        named = {f"model {number}": model for number, model in enumerate(models)}
        return assert_equals_references(named, draw_inputs, tmp_path, runs, "tflite-micro")

    return check


def draw_inputs(rng: np.random.Generator, network: Network) -> list[np.ndarray]:
    found = []
    for tensor in (network.tensors[i] for i in network.inputs):
        if tensor.dtype == "float32":
            found.append((rng.standard_normal(tensor.shape) * 4).astype(np.float32))
        else:
            limits = np.iinfo(tensor.dtype)
            values = rng.integers(limits.min, limits.max, tensor.shape, tensor.dtype, endpoint=True)
            middle = rng.random() < 0.3  # also values near the middle
            found.append((values // 8 if middle else values).astype(tensor.dtype))
    return found
