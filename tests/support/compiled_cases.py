"""Helpers of the NPU model's tests: compiled models, compared with the reference."""

from __future__ import annotations

import functools

import numpy as np

from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, VelaResult, compile_tflite
from tests.support.single_operators import Case, all_cases

ACCELERATORS = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u65-512")


@functools.cache
def cases() -> dict[str, Case]:
    """All single-operator cases by name."""
    return {case.name: case for case in all_cases()}


@functools.cache
def compiled(name: str, accelerator: str = "ethos-u55-256", core: str = "regor") -> VelaResult:
    """A single-operator case, compiled by Vela."""
    return compile_tflite(cases()[name].build(), VelaOptions(accelerator, core=core), name)


def network(name: str, accelerator: str = "ethos-u55-256", core: str = "regor") -> Network:
    """The same, read back."""
    return read_network(compiled(name, accelerator, core).network, name)


def random_inputs(network: Network, seed: int = 1) -> list[np.ndarray]:
    """Inputs over the whole range of their types."""
    generator = np.random.default_rng(seed)
    found = []
    for index in network.inputs:
        tensor = network.tensors[index]
        bounds = np.iinfo(tensor.dtype)
        found.append(generator.integers(bounds.min, bounds.max, tensor.shape, tensor.dtype, endpoint=True))
    return found
