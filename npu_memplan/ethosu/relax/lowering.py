"""Functions for the NPU become graphs of layers, and these PrimFuncs; the rest of main stays Relax.

Invariant: afterwards no function has a `Codegen` attribute; each NPU function is one PrimFunc in the same
form as a lifted stream, called with its constants as one Relax constant. In a graph a tensor has one scale and one zero
point, in every operator; two operators that disagree make a `LoweringError` instead of a wrong number.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import ir, relax

from ...names import node_of
from ...vocabulary import ORDER_PEAKS
from ..arch import accelerator as find_accelerator
from ..layers import parse_composite
from ..lower.emit import LoweringError
from ..lower.layer import Layer, LayerGraph
from ..lower.operands import Arithmetic, LayerTensor
from ..lowering import FEW_BYTES, LoweringTarget, OperatorOf, lower
from ..program.primfunc import cache_program, to_primfunc
from ..reading.reader import Reader, bindings_of, shape_of
from .partition import arithmetic_of, kind_of, npu_functions


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
        reader = Reader(bindings, self.arithmetic)
        match = parse_composite(kind_of(str(composite.attrs["Composite"])), reader, composite.body.body)
        arguments = dict(zip(composite.params, call.args, strict=True))
        output = self._declare(variable, _label(bindings, composite.body.body, str(variable.name)))
        names = {"out": output}
        for local, inner in zip(match.layer.inputs, match.variables, strict=True):
            if isinstance(inner, relax.Var):
                names[local] = self.names[arguments[inner]]
                continue
            constant = f"{output}_constant{local}"
            self.tensors[constant] = replace(match.tensors[local], name=constant)
            names[local] = constant
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
    """The name of a layer's output: that of the real value that it stores, whose name fusion has left alone."""
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


@relax.expr_functor.mutator
class _CallNpu(relax.PyExprMutator):  # type: ignore[misc]
    """Calls of lowered functions become call_tir."""

    def __init__(self, mod: Any, lowered: dict[str, tuple[Any, bytes]]) -> None:
        super().__init__(mod)
        self.lowered = lowered

    def visit_call_(self, call: Any) -> Any:
        if not isinstance(call.op, ir.GlobalVar) or call.op.name_hint not in self.lowered:
            return super().visit_call_(call)
        primfunc, constants = self.lowered[call.op.name_hint]
        arguments = [self.visit_expr(a) for a in call.args]
        if constants:
            arguments.append(relax.const(np.frombuffer(constants, np.uint8)))
        variable = self.builder_.add_func(primfunc, str(primfunc.attrs["global_symbol"]))
        made = list(call.ty.fields) if isinstance(call.ty, relax.TupleType) else call.ty
        return relax.call_tir(variable, relax.Tuple(arguments), made)


def lower_for_ethosu(
    mod: Any,
    accelerator: str = "ethos-u55-256",
    lowering_target: LoweringTarget = FEW_BYTES,
    operators: OperatorOf | None = None,
) -> Any:
    """Lower every `Codegen = "ethos-u"` function of a module; `operators` gives a layer's operator (see `lower`)."""
    target = find_accelerator(accelerator)
    lowered: dict[str, tuple[Any, bytes]] = {}
    peaks: dict[str, list[int]] = {}
    for number, (variable, function) in enumerate(
        sorted(npu_functions(mod).items(), key=lambda item: item[0].name_hint)
    ):
        name = f"ethosu_{number}"
        result = lower(build_graph(function, name), target, lowering_target, operators)
        primfunc = cache_program(to_primfunc(result.program), result.program)
        if result.order_peaks is not None:
            peaks[name] = list(result.order_peaks)
        lowered[variable.name_hint] = (primfunc, result.constants)
    mutator = _CallNpu(mod, lowered)
    main = mutator.visit_expr(mod["main"])
    mutator.builder_.update_func(mod.get_global_var("main"), main.with_attr(ORDER_PEAKS, peaks) if peaks else main)
    result_mod = mutator.builder_.finalize()
    functions = {gv: f for gv, f in result_mod.functions.items() if gv.name_hint not in lowered}
    return tvm.IRModule(functions, result_mod.attrs)
