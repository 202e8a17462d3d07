"""Models that Vela compiled, run on the NPU model and compared with their references."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from fvp_runner.npu_model.network import NetworkModel
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, VelaResult, compile_tflite
from tests.support.single_operators import Case, case

ACCELERATORS = ("ethos-u55-32", "ethos-u55-64", "ethos-u55-128", "ethos-u55-256", "ethos-u65-256", "ethos-u65-512")


@dataclass(frozen=True)
class Trial:
    """What came out. `wrong` elements of `elements`; `on_cpu` names operators that Vela did not take."""

    elements: int
    wrong: int
    on_cpu: tuple[str, ...]
    npu_operations: int
    messages: tuple[str, ...]  # what no reference confirms
    timing: tuple[str, ...]  # what is right only because something else takes its time

    @property
    def exact(self) -> bool:
        """True when something ran on the NPU and every element was right."""
        return self.wrong == 0 and self.npu_operations > 0


def try_model(
    result: VelaResult,
    reference: TFLiteReference,
    inputs: list[np.ndarray],
    expected: tuple[np.ndarray, ...],
    fuzz: int = 0,
) -> Trial:
    """Run a compiled model with all checks and compare every element; without `expected` there is none."""
    network = read_network(result.network, reference.name)
    ran = NetworkModel(network, result.network).run(inputs, fuzz_schedules=fuzz)
    wrong = 0
    for got, want in zip(ran.outputs, expected, strict=bool(expected)):
        assert got.size == want.size  # the legacy core keeps reduced axes
        assert got.dtype == want.dtype
        wrong += int(np.count_nonzero(got.reshape(-1) != want.reshape(-1)))
    return Trial(
        elements=sum(e.size for e in expected),
        wrong=wrong,
        on_cpu=tuple(operator.name for operator in network.cpu_operators),
        npu_operations=sum(stats.operations for stats in ran.stats),
        messages=tuple(message for stats in ran.stats for message in stats.messages),
        timing=tuple(message for stats in ran.stats for message in stats.timing),
    )


def random_inputs(network: Network, seed: int = 1) -> list[np.ndarray]:
    """Inputs over the whole range of their types."""
    generator = np.random.default_rng(seed)
    found = []
    for tensor in (network.tensors[index] for index in network.inputs):
        if np.dtype(tensor.dtype).kind == "f":
            found.append(generator.uniform(-1, 1, tensor.shape).astype(tensor.dtype))
            continue
        bounds = np.iinfo(tensor.dtype)
        found.append(generator.integers(bounds.min, bounds.max, tensor.shape, tensor.dtype, endpoint=True))
    return found


def try_case(tried: Case, accelerator: str, core: str = "regor", seed: int = 1, fuzz: int = 0) -> Trial:
    """One single-operator case on one configuration."""
    model = tried.build()
    reference = TFLiteReference(model, tried.name)
    inputs = random_inputs(reference.network, seed)
    result = compile_tflite(model, VelaOptions(accelerator, core=core), tried.name)
    return try_model(result, reference, inputs, reference.run(inputs), fuzz)


@functools.cache
def compiled(name: str, accelerator: str = "ethos-u55-256", core: str = "regor") -> VelaResult:
    """A single-operator case, compiled by Vela."""
    return compile_tflite(case(name).build(), VelaOptions(accelerator, core=core), name)


def network(name: str, accelerator: str = "ethos-u55-256", core: str = "regor") -> Network:
    """The same, read back."""
    return read_network(compiled(name, accelerator, core).network, name)
