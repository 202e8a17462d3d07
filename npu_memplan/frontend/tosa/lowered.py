"""A TOSA file to one IRModule by native lowering: one NPU call, without Vela.

Invariant: inputs and outputs are those of the file, in its order, with its names and types; nothing runs on the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...ethosu.arch import accelerator as find_accelerator
from ...ethosu.lower.lower import LoweringTarget, lower
from ...ethosu.program.primfunc import to_primfunc
from ...exactness import tosa_layer_claim
from ...models.network import CpuOperator
from ...models.tosa_graph import read_tosa_graph
from ...models.vela import NpuCall
from ..attributes import SourceOperator
from ..tflite.described import network_attributes
from ..tflite.main_builder import MainBuilder
from .layers import build_layers


def build_tosa_module(data: bytes, accelerator: str, lowering_target: LoweringTarget, name: str) -> Any:
    """The TOSA flatbuffer `data`, lowered for `accelerator`.

    Raises `NetworkError`, `UnsupportedModelError`, `TosaLayersError`, `LoweringError`.
    """
    from tvm import relax

    target = find_accelerator(accelerator)
    graph = read_tosa_graph(data, name)
    layers, operator_of = build_layers(graph, target, "ethosu_0")
    network = graph.network
    place = {operator.index: position for position, operator in enumerate(network.cpu_operators)}

    def operator_behind(output: str, inputs: tuple[int, ...]) -> int:
        return place.get(operator_of.get(output, -1), max(inputs, default=-1))

    lowered = lower(layers, target, lowering_target, operator_behind)
    described = tuple(
        SourceOperator(network.tensors[o.outputs[0]].name, o.name, True, "", tosa_layer_claim(o.name))
        for o in network.cpu_operators
        if o.outputs
    )
    whole = CpuOperator(0, "TOSA", 0, network.inputs, network.outputs)
    builder = MainBuilder(replace(network, operators=(whole,)))

    def emit(operator: NpuCall | CpuOperator) -> None:
        given = [builder.value(index) for index in network.inputs]
        if lowered.constants:
            given.append(relax.const(np.frombuffer(lowered.constants, np.uint8)))
        builder.call(to_primfunc(lowered.program), builder.function_name("ethosu_0"), given, network.outputs)

    return builder.build(emit, network_attributes(network, builder.states, described))
