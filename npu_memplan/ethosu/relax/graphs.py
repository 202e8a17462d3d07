"""A function for the NPU, as a graph of layers.

Invariant: a tensor has one scale and one zero point, in every operator; two operators that disagree make a
`LoweringError` instead of a wrong number.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from tvm import ir, relax

from ...names import node_of
from ...vocabulary import LAYER
from ..layers import parse
from ..lower.emit import LoweringError
from ..lower.graph import LayerGraph
from ..lower.layer import Layer
from ..lower.tensors import Arithmetic, LayerTensor
from ..reading.reader import Reader, bindings_of, shape_of
from .partition import arithmetic_of, kind_of


def build_graph(function: Any, name: str) -> LayerGraph:
    """Layers of a `Codegen = "ethos-u"` function, in program order."""
    return _Builder(name, arithmetic_of(function)).build(function)


class _Builder:
    def __init__(self, name: str, arithmetic: Arithmetic) -> None:
        self.name = name
        self.arithmetic = arithmetic
        self.tensors: dict[str, LayerTensor] = {}
        self.names: dict[Any, str] = {}  # Relax variable -> tensor name
        self.layers: list[Layer] = []

    def build(self, function: Any) -> LayerGraph:
        for parameter in function.params:
            self._declare(parameter, parameter.name)
        composites: dict[Any, Any] = {}
        result = function.body.body
        for binding in bindings_of(function):
            if isinstance(binding.value, relax.Function):
                composites[binding.var] = binding.value
            elif isinstance(binding.value, relax.Tuple) and binding.var.same_as(function.body.body):
                result = binding.value
            elif not isinstance(binding.value, relax.Tuple | relax.Var):
                self._layer(composites[binding.value.op], binding.value, binding.var)
        outputs = list(result.fields) if isinstance(result, relax.Tuple) else [result]
        inputs = tuple(self.names[p] for p in function.params)
        tensors = _share_scales(self.tensors, self.layers)
        results = tuple(self.names[v] for v in outputs)
        return LayerGraph(self.name, tensors, inputs, results, tuple(self.layers), self.arithmetic)

    def _declare(self, variable: Any, wanted: str) -> str:
        name, count = str(wanted), 1
        while name in self.tensors:
            name, count = f"{wanted}_{count}", count + 1
        self.names[variable] = name
        self.tensors[name] = LayerTensor(name, shape_of(variable.ty), str(variable.ty.dtype), math.nan)
        return name

    def _layer(self, composite: Any, call: Any, variable: Any) -> None:
        bindings = {b.var: b.value for b in bindings_of(composite)}
        reader = Reader(bindings, composite.attrs.get(LAYER), self.arithmetic)
        match = parse(kind_of(str(composite.attrs["Composite"])), reader, composite.body.body)
        arguments = dict(zip(composite.params, call.args, strict=True))
        output = self._declare(variable, _label(bindings, composite.body.body, str(variable.name)))
        names = {"out": output}
        for local, inner in zip(match.layer.inputs, match.variables, strict=True):
            if inner is None:
                constant = f"{output}_constant{local}"
                self.tensors[constant] = replace(match.tensors[local], name=constant)
                names[local] = constant
            else:
                names[local] = self.names[arguments[inner]]
        for local, name in names.items():
            self._state(name, match.tensors[local], match.layer)
        inputs = tuple(names[local] for local in match.layer.inputs)
        self.layers.append(replace(match.layer, name=f"{match.layer.name}:{output}", inputs=inputs, output=output))

    def _state(self, name: str, state: LayerTensor, layer: Layer) -> None:
        known = self.tensors[name]
        if math.isnan(state.scale):
            return
        if math.isnan(known.scale):
            self.tensors[name] = replace(known, scale=state.scale, zero_point=state.zero_point)
        elif (known.scale, known.zero_point) != (state.scale, state.zero_point):
            raise LoweringError(
                f"tensor {name} has scale {known.scale} and zero point {known.zero_point}, but {layer.name} reads it "
                f"with {state.scale} and {state.zero_point}; such a reinterpretation has no NPU operation"
            )


def _label(bindings: dict[Any, Any], result: Any, otherwise: str) -> str:
    """What to call a layer's output: as the real value that it stores, whose name fusion has left alone."""
    value = bindings.get(result)
    while isinstance(value, ir.Call) and value.op.name in ("relax.quantize", "relax.clip"):
        source = value.args[0]
        if source not in bindings:
            break
        otherwise, value = node_of(str(source.name)), bindings[source]
    return otherwise


def _share_scales(tensors: dict[str, LayerTensor], layers: list[Layer]) -> dict[str, LayerTensor]:
    """Give tensors that no operator describes the scale of those they are moved from or to; else 1 and 0."""
    tensors = dict(tensors)
    changed = True
    while changed:
        changed = False
        for layer in (*layers, *reversed(layers)):
            if not layer.storage(tensors).keeps_scale:
                continue
            group = (*layer.inputs, layer.output)
            known = next((tensors[n] for n in group if not math.isnan(tensors[n].scale)), None)
            if known is None:
                continue
            for name in group:
                if math.isnan(tensors[name].scale):
                    tensors[name] = replace(tensors[name], scale=known.scale, zero_point=known.zero_point)
                    changed = True
    return {n: replace(t, scale=1.0) if math.isnan(t.scale) else t for n, t in tensors.items()}
