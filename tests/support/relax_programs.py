"""Relax programs of real shapes with symbolic sizes: transformers, and the convolutions that began the discussion.

Invariant: weights are parameters, so that a 7B network costs no memory to build; what a program computes is
plain Relax, legalised and fused by TVM alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import relax
from tvm.relax import op
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder-only transformer. `gated`: the feed-forward part and norms of Llama, otherwise those of GPT-2."""

    layers: int
    hidden: int
    heads: int
    inner: int
    vocabulary: int
    dtype: str = "float32"
    gated: bool = False


GPT2_LIKE = Shape(12, 256, 4, 1024, 1000)
LLAMA_SMALL = Shape(3, 256, 4, 688, 1000, gated=True)
LLAMA_7B = Shape(32, 4096, 32, 11008, 32000, "float16", gated=True)


def transformer(shape: Shape, *, new: int | None = None, cached: bool = False) -> Any:
    """A module whose main takes `new` tokens (None: symbolic `s`) and, if `cached`, keys and values of `t` others.

    It returns the logits of the last token, and the caches with the new tokens.
    """
    builder = relax.BlockBuilder()
    parameters: list[Any] = []

    def given(name: str, extents: Any, dtype: str = shape.dtype) -> Any:
        parameters.append(relax.Var(name, relax.TensorType(extents, dtype)))
        return parameters[-1]

    s: Any = tvm.tirx.Var("s", "int64") if new is None else new
    t: Any = tvm.tirx.Var("t", "int64") if cached else 0
    tokens = given("tokens", (1, s), "int32")
    caches = [
        (given(f"k{i}", (1, t, *_heads(shape))), given(f"v{i}", (1, t, *_heads(shape))))
        for i in range(shape.layers if cached else 0)
    ]
    mask = given("mask", (1, 1, s, s + t))
    table = given("table", (shape.vocabulary, shape.hidden))
    layers = [_weights(shape, i, given) for i in range(shape.layers)]
    final, head = given("final", (shape.hidden,)), given("head", (shape.hidden, shape.vocabulary))
    with builder.function("main", parameters):
        with builder.dataflow():
            emit = builder.emit
            x = emit(op.take(table, emit(op.reshape(tokens, (s,))), axis=0))
            x = emit(op.reshape(x, (1, s, shape.hidden)))
            results = []
            for i, weights in enumerate(layers):
                x, kept = _layer(shape, emit, x, weights, mask, caches[i] if cached else None, s, t)
                results += kept
            x = emit(_norm(shape, x, final))
            last = emit(op.strided_slice(x, [1], [s - 1], [s]))
            logits = emit(op.matmul(last, head))
            out = builder.emit_output(relax.Tuple([logits, *results]))
        builder.emit_func_output(out)
    return builder.get()


def _heads(shape: Shape) -> tuple[int, int]:
    return shape.heads, shape.hidden // shape.heads


def _weights(shape: Shape, layer: int, given: Any) -> dict[str, Any]:
    n, m = shape.hidden, shape.inner
    found = {k: given(f"{k}{layer}_w", (n, n)) for k in ("q", "k", "v", "o")}
    found |= {"n1": given(f"n1_{layer}", (n,)), "n2": given(f"n2_{layer}", (n,))}
    found |= {"up": given(f"up{layer}", (n, m)), "down": given(f"down{layer}", (m, n))}
    return found | ({"gate": given(f"gate{layer}", (n, m))} if shape.gated else {})


def _norm(shape: Shape, x: Any, weight: Any) -> Any:
    if shape.gated:
        return op.nn.rms_norm(x, weight, axes=[-1])
    return op.nn.layer_norm(x, weight, weight, axes=[-1])


def _layer(
    shape: Shape, emit: Any, x: Any, weights: dict[str, Any], mask: Any, cache: Any, s: Any, t: Any
) -> tuple[Any, list[Any]]:
    heads, width = _heads(shape)
    a = emit(_norm(shape, x, weights["n1"]))
    q, k, v = (emit(op.reshape(emit(op.matmul(a, weights[n])), (1, s, heads, width))) for n in "qkv")
    kept = []
    if cache is not None:
        k, v = (emit(op.concat([old, new], axis=1)) for old, new in zip(cache, (k, v), strict=True))
        kept = [k, v]
    q, k, v = (emit(op.permute_dims(y, [0, 2, 1, 3])) for y in (q, k, v))
    scores = emit(op.matmul(q, emit(op.permute_dims(k, [0, 1, 3, 2]))))
    scores = emit(op.multiply(scores, relax.const(width**-0.5, shape.dtype)))
    scores = emit(op.nn.softmax(emit(op.add(scores, mask)), axis=-1))
    y = emit(op.permute_dims(emit(op.matmul(scores, v)), [0, 2, 1, 3]))
    y = emit(op.matmul(emit(op.reshape(y, (1, s, shape.hidden))), weights["o"]))
    x = emit(op.add(x, y))
    b = emit(_norm(shape, x, weights["n2"]))
    up = emit(op.matmul(b, weights["up"]))
    if shape.gated:
        up = emit(op.multiply(emit(op.nn.silu(emit(op.matmul(b, weights["gate"])))), up))
    else:
        up = emit(op.nn.gelu(up))
    return emit(op.add(x, emit(op.matmul(up, weights["down"])))), kept


@I.ir_module
class Convolutions:
    """Two fused library convolutions with a workspace, and a pool with a buffer of its own, on any picture."""

    @R.function
    def main(
        x: R.Tensor((1, 3, "h", "w"), "float16"),
        w0: R.Tensor((64, 3, 3, 3), "float16"),
        w1: R.Tensor((64, 3, 3, 64), "float16"),
    ):
        h, w = T.int64(), T.int64()
        workspace = R.builtin.alloc_tensor(R.shape([h * w * 36]), R.dtype("uint8"), R.prim_value(0))
        a = R.permute_dims(x, axes=[0, 2, 3, 1])
        b = R.call_dps_packed(
            "npu_memplan.programs.conv_add_leaky", (a, w0, workspace), out_ty=R.Tensor((1, h, w, 64), "float16")
        )
        c = R.call_dps_packed(
            "npu_memplan.programs.conv_add_leaky", (b, w1, workspace), out_ty=R.Tensor((1, h, w, 64), "float16")
        )
        d = R.nn.avg_pool2d(c, pool_size=(2, 2), strides=(2, 2), layout="NHWC")
        e = R.permute_dims(d, axes=[0, 3, 1, 2])
        return e


@tvm.register_global_func("npu_memplan.programs.conv_add_leaky", override=True)
def _conv_add_leaky(x: Any, weights: Any, workspace: Any, out: Any) -> None:
    """A stand-in for a library: 3x3 convolution (summed taps through the workspace), + 1, leaky ReLU."""
    import numpy as np

    source, taps = x.numpy().astype(np.float32), weights.numpy().astype(np.float32)
    if taps.shape[-1] != source.shape[-1]:
        taps = taps.reshape(taps.shape[0], 3, 3, source.shape[-1])
    padded = np.pad(source, ((0, 0), (1, 1), (1, 1), (0, 0)))
    height, width = source.shape[1:3]
    total = np.zeros((1, height, width, taps.shape[0]), np.float32)
    for i in range(3):
        for j in range(3):
            total += padded[:, i : i + height, j : j + width] @ taps[:, i, j].T
    rubbish = np.full(workspace.shape[0], 0xEE, np.uint8)
    workspace.copyfrom(rubbish)
    total += 1
    out.copyfrom(np.where(total > 0, total, total * 0.1).astype(np.float16))
