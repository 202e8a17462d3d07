"""Training steps of decoder-only transformers, and small ones of other kinds: loss and gradients by TVM's own pass.

Invariant: weights are parameters, so a network of a billion of them costs no memory to build; what a step computes is
plain Relax, made by `relax.transform.Gradient` and legalised by TVM alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import ir, relax
from tvm.relax import op


@dataclass(frozen=True, slots=True)
class Network:
    """A decoder-only transformer. `gated`: the norms, rotary positions and feed-forward part of Llama, else GPT-2's."""

    layers: int
    hidden: int
    heads: int
    groups: int  # heads of keys and values
    inner: int
    vocabulary: int
    gated: bool = False


TINY = Network(2, 32, 2, 2, 64, 50)
TINY_GATED = Network(1, 16, 4, 2, 48, 20, gated=True)
GPT2 = Network(12, 768, 12, 12, 3072, 50257)
"""GPT-2 of 124 million weights, as its published configuration has it."""
LLAMA_1B = Network(16, 2048, 32, 8, 8192, 128256, gated=True)
"""Llama 3.2 of a billion weights, as its published configuration has it."""


def training_step(network: Network, tokens: int) -> Any:
    """A module whose main gives the loss of a row of `tokens`, and the gradient of each weight."""
    forward = _Forward(network, tokens)
    module = forward.module()
    weights = [module["main"].params[i] for i in forward.weights]
    adjoint = relax.transform.Gradient("main", require_grads=weights)(module)
    step = adjoint["main_adjoint"].with_attr("global_symbol", "main")
    return ir.IRModule({"main": step})


def step_arguments(network: Network, module: Any, seed: int = 0) -> list[Any]:
    """Random arrays for the parameters of `module`'s main: tokens within the vocabulary, numbers for the rest."""
    generator, found = np.random.default_rng(seed), []
    for parameter in module["main"].params:
        shape = [int(extent) for extent in parameter.ty.shape.values]
        if str(parameter.ty.dtype) == "int32":
            found.append(generator.integers(0, network.vocabulary, shape).astype("int32"))
        else:
            found.append(generator.standard_normal(shape).astype("float32"))
    return found


class _Forward:
    def __init__(self, network: Network, tokens: int) -> None:
        self.network, self.tokens = network, tokens
        self.builder = relax.BlockBuilder()
        self.emit = self.builder.emit
        self.parameters: list[Any] = []
        self.weights: list[int] = []  # which parameters are

    def given(self, name: str, extents: Any, dtype: str = "float32", *, weight: bool = True) -> Any:
        self.parameters.append(relax.Var(name, relax.TensorType(extents, dtype)))
        if weight:
            self.weights.append(len(self.parameters) - 1)
        return self.parameters[-1]

    def module(self) -> Any:
        """`main`: tokens and targets (int32), a causal mask, positions, weights; the loss."""
        net, s, emit = self.network, self.tokens, self.emit
        width = net.hidden // net.heads
        tokens = self.given("tokens", (s,), "int32", weight=False)
        targets = self.given("targets", (s,), "int32", weight=False)
        self.mask = self.given("mask", (1, 1, s, s), weight=False)
        if net.gated:
            self.turns = [self.given(name, (1, 1, s, width), weight=False) for name in ("cosines", "sines")]
        table = self.given("table", (net.vocabulary, net.hidden))
        positions = None if net.gated else self.given("positions", (s, net.hidden))
        layers = [self._layer_weights(i) for i in range(net.layers)]
        final, head = self.given("final", (net.hidden,)), self.given("head", (net.hidden, net.vocabulary))
        with self.builder.function("main", self.parameters):
            with self.builder.dataflow():
                x = emit(op.take(table, tokens, axis=0))
                if positions is not None:
                    x = emit(op.add(x, positions))
                x = emit(op.reshape(x, (1, s, net.hidden)))
                for weights in layers:
                    x = self._layer(x, weights)
                logits = emit(op.matmul(self._norm(x, final), head))
                logits = emit(op.nn.log_softmax(emit(op.reshape(logits, (s, net.vocabulary))), axis=-1))
                loss = self.builder.emit_output(op.nn.nll_loss(logits, targets))
            self.builder.emit_func_output(loss)
        return self.builder.get()

    def _layer_weights(self, i: int) -> dict[str, Any]:
        net = self.network
        n, kv = net.hidden, net.hidden // net.heads * net.groups
        shapes = {"q": (n, n), "k": (n, kv), "v": (n, kv), "o": (n, n), "n1": (n,), "n2": (n,)}
        shapes |= {"up": (n, net.inner), "down": (net.inner, n)}
        if net.gated:
            shapes["gate"] = (n, net.inner)
        return {name: self.given(f"{name}_{i}", shape) for name, shape in shapes.items()}

    def _norm(self, x: Any, weight: Any) -> Any:
        """Of operators that have gradients: TVM has none for its own norms."""
        emit, small = self.emit, relax.const(1e-5, "float32")
        if not self.network.gated:
            x = emit(op.subtract(x, emit(op.mean(x, [-1], keepdims=True))))
        squares = emit(op.mean(emit(op.multiply(x, x)), [-1], keepdims=True))
        return emit(op.multiply(emit(op.divide(x, emit(op.sqrt(emit(op.add(squares, small)))))), weight))

    def _heads(self, x: Any, count: int) -> Any:
        split = self.emit(op.reshape(x, (1, self.tokens, count, self.network.hidden // self.network.heads)))
        return self.emit(op.permute_dims(split, [0, 2, 1, 3]))

    def _turned(self, x: Any) -> Any:
        """Rotary positions."""
        emit = self.emit
        halves = emit(op.split(x, 2, axis=-1))
        low, high = emit(relax.TupleGetItem(halves, 0)), emit(relax.TupleGetItem(halves, 1))
        other = emit(op.concat([emit(op.negative(high)), low], axis=-1))
        cosines, sines = self.turns
        return emit(op.add(emit(op.multiply(x, cosines)), emit(op.multiply(other, sines))))

    def _repeated(self, x: Any) -> Any:
        """Keys or values of each group for all of its heads."""
        net, s = self.network, self.tokens
        width, each = net.hidden // net.heads, net.heads // net.groups
        if each == 1:
            return x
        x = self.emit(op.reshape(x, (1, net.groups, 1, s, width)))
        x = self.emit(op.broadcast_to(x, (1, net.groups, each, s, width)))
        return self.emit(op.reshape(x, (1, net.heads, s, width)))

    def _layer(self, x: Any, w: dict[str, Any]) -> Any:
        net, emit, s = self.network, self.emit, self.tokens
        a = self._norm(x, w["n1"])
        q = self._heads(emit(op.matmul(a, w["q"])), net.heads)
        k, v = (self._heads(emit(op.matmul(a, w[n])), net.groups) for n in "kv")
        if net.gated:
            q, k = self._turned(q), self._turned(k)
        k, v = self._repeated(k), self._repeated(v)
        scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
        scores = emit(op.multiply(scores, relax.const((net.hidden // net.heads) ** -0.5, "float32")))
        scores = emit(op.nn.softmax(emit(op.add(scores, self.mask)), axis=-1))
        y = emit(op.permute_dims(emit(op.matmul(scores, v)), [0, 2, 1, 3]))
        x = emit(op.add(x, emit(op.matmul(emit(op.reshape(y, (1, s, net.hidden))), w["o"]))))
        b = self._norm(x, w["n2"])
        up = emit(op.matmul(b, w["up"]))
        if net.gated:
            up = emit(op.multiply(emit(op.nn.silu(emit(op.matmul(b, w["gate"])))), up))
        else:  # GELU by tanh, of operators that have gradients
            cube = emit(op.multiply(emit(op.multiply(up, up)), up))
            inner = emit(op.add(up, emit(op.multiply(cube, relax.const(0.044715, "float32")))))
            turned = emit(op.tanh(emit(op.multiply(inner, relax.const(0.7978845608, "float32")))))
            half = emit(op.multiply(up, relax.const(0.5, "float32")))
            up = emit(op.multiply(half, emit(op.add(turned, relax.const(1.0, "float32")))))
        return emit(op.add(x, emit(op.matmul(up, w["down"]))))
