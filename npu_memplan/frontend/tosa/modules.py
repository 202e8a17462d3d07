"""A TOSA file to one IRModule with one NPU call: Vela's stream of the whole graph, lifted, or native lowering without
Vela.

Invariant: inputs and outputs are those of the file, in its order, with its names and types; nothing runs on the host.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import RefusalError
from ...ethosu.arch import Language
from ...ethosu.arch import accelerator as find_accelerator
from ...ethosu.lowering import LoweringTarget, lower
from ...ethosu.program.primfunc import to_primfunc
from ...exactness import tosa_claim, tosa_layer_claim
from ...models.network import CpuOperator, Network
from ...models.tosa import read_tosa, read_tosa_graph
from ...models.vela import NpuCall
from ...vela.compiler import VelaOptions, VelaResult, compile_tosa
from ..attributes import SourceOperator
from ..tflite.description import network_attributes
from ..tflite.lifted import add_npu_call
from ..tflite.main_builder import MainBuilder
from .layers import build_layers


class TosaError(RefusalError):
    """A TOSA file cannot be compiled for these options."""


def import_tosa(data: bytes, options: VelaOptions, name: str) -> tuple[Any, VelaResult]:
    """The TOSA flatbuffer `data`, compiled by Vela, as an IRModule, and what Vela made of it.

    Raises `NetworkError` (no sound TOSA file), `UnsupportedModelError`, `VelaError`, `LiftError`.
    """
    source = read_tosa(data, name)
    vela = compile_tosa(data, options, name)
    network = vela.parsed
    if not any(call.outputs for call in network.npu_calls):
        raise TosaError(f"{network.name} computes nothing: Vela made no stream of it")
    builder = MainBuilder(network)
    operators = tuple(_describe_operator(source, operator, vela) for operator in source.cpu_operators)
    place = {operator.index: position for position, operator in enumerate(source.cpu_operators)}
    served = {offset: place.get(index, -1) for offset, index in (vela.operators or ({},))[0].items()}
    attributes = network_attributes(network, builder.states, operators)

    def emit(call: NpuCall | CpuOperator) -> None:
        assert isinstance(call, NpuCall)
        add_npu_call(builder, call, served)

    return builder.build(emit, attributes), vela


def _describe_operator(source: Network, operator: CpuOperator, vela: VelaResult) -> SourceOperator:
    tensors = [source.tensors[i] for i in (*operator.outputs, *operator.inputs)]
    claim = tosa_claim(operator.name, {tensor.dtype for tensor in tensors}, vela.accelerator.language is Language.U85)
    return SourceOperator(tensors[0].name if operator.outputs else operator.name, operator.name, True, "", claim)


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
