"""Runs one-operator models on the host the whole way: lower, plan, print C, compile, run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from npu_memplan.artifact.model import TensorSlot
from npu_memplan.codegen.interface import Interface, PoolSpec
from npu_memplan.codegen.sources import print_sources
from npu_memplan.extract import STATES
from npu_memplan.frontend.host_ops import LoweredOperator, lower_operator
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import NO_NPU, CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import POISON, Agent, Pool
from npu_memplan.request import Loaded, Request
from npu_memplan.rewrite import rewrite
from npu_memplan.stages import extract_problem
from npu_memplan.verify import check
from npu_memplan.vocabulary import PLACED_INPUTS, PLACED_OUTPUTS, PLACED_STATES
from tests.support.built_c import Program


def module_of(network: Network, lowered: LoweredOperator) -> Any:
    """A Relax module whose main is one call of a lowered operator."""
    builder = relax.BlockBuilder()

    def tensor_type(index: int) -> Any:
        tensor = network.tensors[index]
        return relax.TensorType(tensor.shape or (1,), tensor.dtype)

    parameters = [relax.Var(network.tensors[i].name, tensor_type(i)) for i in lowered.inputs]
    with builder.function("main", parameters):
        with builder.dataflow():
            symbol = builder.add_func(lowered.primfunc, lowered.name)
            arguments = [*parameters, *(relax.const(c, c.dtype.name) for c in lowered.constants)]
            types = [tensor_type(i) for i in lowered.outputs]
            result = builder.emit(relax.call_tir(symbol, arguments, types if len(types) > 1 else types[0]))
            result = builder.emit_output(result)
        builder.emit_func_output(result)
    module = builder.finalize()
    states = [network.tensors[lowered.inputs[p]].name for p in lowered.states]
    module.update_func(module.get_global_var("main"), module["main"].with_attr(STATES, states))
    return module


class Compiled:
    """A one-operator model in this process; its states live in the pool between two runs."""

    def __init__(self, model: bytes, folder: Path) -> None:
        network = read_network(model)
        lowered = lower_operator(network, network.operators[0])  # type: ignore[arg-type]
        module = module_of(network, lowered)
        pools = (Pool("sram", None, agents=frozenset((Agent.HOST,))),)
        extracted = extract_problem(
            Loaded.from_module(Request(CompileOptions(NO_NPU, objective="bytes"), pools), module)
        )
        problem = extracted.problem
        placed = plan(problem)
        check(problem, placed)
        self.problem = problem
        planned = rewrite(module, problem, placed)
        main = planned["main"]
        zero_points = {t.name: t.zero_point for t in network.tensors}

        def slots(attribute: str) -> tuple[TensorSlot, ...]:
            return tuple(
                TensorSlot(
                    str(e["name"]), str(e["dtype"]), tuple(int(x) for x in e["shape"]), str(e["pool"]),
                    int(e["offset_bytes"]), int(e["size_bytes"]), 0.0, zero_points.get(str(e["name"]), 0),
                )
                for e in main.attrs[attribute]
            )  # fmt: skip

        self.inputs, self.outputs, self.states = slots(PLACED_INPUTS), slots(PLACED_OUTPUTS), slots(PLACED_STATES)
        height = placed.usage[0].used_bytes
        interface = Interface("op", (PoolSpec("sram", height),), self.inputs, self.outputs, self.states)
        self.sources = print_sources(planned, interface)
        self.sources.write(folder)
        self.pool = np.full(max(height, 1) + 64, POISON, np.uint8)
        self.base = -self.pool.ctypes.data % 16
        self.program = Program(folder, "op", extracted, placed, [self.pool[self.base : self.base + max(height, 1)]])
        for slot in self.states:
            self.view(slot)[...] = slot.zero_point
            self.program.define("sram", slot.offset_bytes, slot.size_bytes)

    def view(self, slot: TensorSlot) -> np.ndarray:
        start = self.base + slot.offset_bytes
        return self.pool[start : start + slot.size_bytes].view(slot.dtype).reshape(slot.shape)

    def run(self, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        for slot, values in zip(self.inputs, inputs, strict=True):
            self.view(slot)[...] = values.reshape(slot.shape)
            self.program.define("sram", slot.offset_bytes, slot.size_bytes)
        self.program.run()
        return [self.view(slot).copy() for slot in self.outputs]


@pytest.fixture
def compiled(tmp_path: Path) -> Callable[[bytes], Compiled]:
    """`compiled(model)` -> the operator, lowered, planned, compiled and loaded."""

    def make(model: bytes) -> Compiled:
        folder = tmp_path / f"m{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return Compiled(model, folder)

    return make


@pytest.fixture
def bit_exact(compiled: Callable[[bytes], Compiled]) -> Callable[..., Compiled]:
    """`bit_exact(model, runs=3)`: random inputs, every output element equal to TFLite Micro's."""
    from tests.support.single_op import reference

    def check_model(model: bytes, runs: int = 3, seed: int = 0) -> Compiled:
        operator = compiled(model)
        generator = np.random.default_rng(seed)
        data = [[_random(slot, generator) for slot in operator.inputs] for _ in range(runs)]
        expected = reference(model, data)
        for inputs, want in zip(data, expected, strict=True):
            for got, one in zip(operator.run(inputs), want, strict=True):
                np.testing.assert_array_equal(got, one.reshape(got.shape))
        return operator

    return check_model


def _random(slot: TensorSlot, generator: np.random.Generator) -> np.ndarray:
    if slot.dtype == "float32":
        return (generator.standard_normal(slot.shape) * 4).astype(np.float32)
    limits = np.iinfo(slot.dtype)
    values = generator.integers(limits.min, limits.max, slot.shape, slot.dtype, endpoint=True)
    if generator.random() < 0.3:  # also values near the middle
        values = values // 8
    return values.astype(slot.dtype)
