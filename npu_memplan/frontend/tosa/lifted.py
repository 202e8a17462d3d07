"""A TOSA file to one IRModule: one NPU call, Vela's stream of the whole graph, lifted.

Invariant: inputs and outputs are those of the file, in its order, with its names and types.
"""

from __future__ import annotations

from typing import Any

from ...errors import RefusalError
from ...ethosu.arch import Language
from ...exactness import tosa_claim
from ...models.network import CpuOperator, Network
from ...models.tosa import read_tosa
from ...models.vela import NpuCall
from ...vela.compiler import VelaOptions, VelaResult, compile_tosa
from ..attributes import SourceOperator
from ..tflite.described import network_attributes
from ..tflite.lifted import add_npu_call
from ..tflite.main_builder import MainBuilder


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
    operators = tuple(_described(source, operator, vela) for operator in source.cpu_operators)
    place = {operator.index: position for position, operator in enumerate(source.cpu_operators)}
    served = {offset: place.get(index, -1) for offset, index in (vela.operators or ({},))[0].items()}
    attributes = network_attributes(network, builder.states, operators)

    def emit(call: NpuCall | CpuOperator) -> None:
        assert isinstance(call, NpuCall)
        add_npu_call(builder, call, served)

    return builder.build(emit, attributes), vela


def _described(source: Network, operator: CpuOperator, vela: VelaResult) -> SourceOperator:
    tensors = [source.tensors[i] for i in (*operator.outputs, *operator.inputs)]
    claim = tosa_claim(operator.name, {tensor.dtype for tensor in tensors}, vela.accelerator.language is Language.U85)
    return SourceOperator(tensors[0].name if operator.outputs else operator.name, operator.name, True, "", claim)
