"""Programs of every kind the planner must serve, written for it."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.testing import nn
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from tests.support.zoo.entries import Entry, entry, for_parameters, random

# -- straight lines ------------------------------------------------------------------------------


@entry
def mlp() -> Entry:
    builder = relax.BlockBuilder()
    with builder.function("main"):
        model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU(), nn.LogSoftmax())
        data = nn.Placeholder((8, 64), name="data")
        output = model(data)
        builder.emit_func_output(output, params=[data, *model.parameters()])
    module = builder.get()
    return Entry(module, for_parameters(module))


@entry
def attention() -> Entry:
    from tvm.relax.testing import get_relax_attention_module

    shape = (2, 16, 4, 8)
    module = get_relax_attention_module(shape, shape, shape, dtype="float32", causal_mask="TopLeft")
    return Entry(module, for_parameters(module))


@entry
def matmul_residual() -> Entry:
    from tvm.relax.testing import get_relax_matmul_module

    module = get_relax_matmul_module((16, 32), (32, 16), "float32", "float32", bias_shape=(16,), activation=R.nn.relu)
    return Entry(module, for_parameters(module))


@entry
def cnn_nhwc() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((1, 24, 24, 3), "float32"),
            w0: R.Tensor((3, 3, 3, 8), "float32"),
            w1: R.Tensor((3, 3, 8, 8), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, w0, padding=1, data_layout="NHWC", kernel_layout="HWIO")
                b = R.nn.relu(a)
                c = R.nn.conv2d(b, w1, padding=1, data_layout="NHWC", kernel_layout="HWIO")
                d = R.add(c, b)
                e = R.nn.avg_pool2d(d, pool_size=(2, 2), strides=(2, 2), layout="NHWC")
                f = R.mean(e, axis=[1, 2])
                g = R.nn.softmax(f)
                R.output(g)
            return g

    return Entry(Module, for_parameters(Module))


@entry
def cnn_nchw_branchy() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((1, 8, 16, 16), "float32"), w: R.Tensor((8, 8, 3, 3), "float32")):
            with R.dataflow():
                a = R.nn.conv2d(x, w, padding=1)
                left = R.nn.conv2d(a, w, padding=1)
                right = R.nn.max_pool2d(a, pool_size=(3, 3), strides=(1, 1), padding=(1, 1))
                both = R.concat([left, right], axis=1)
                parts = R.split(both, 2, axis=1)
                s = R.subtract(parts[0], parts[1])
                t = R.nn.gelu(s)
                R.output(t, s)
            return (t, s)

    return Entry(Module, for_parameters(Module))


@entry
def casts_and_views() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 6, 5), "int8")):
            with R.dataflow():
                a = R.astype(x, "int32")
                b = R.multiply(a, R.const(3, "int32"))
                c = R.reshape(b, (24, 5))
                d = R.expand_dims(c, axis=0)
                e = R.squeeze(d, axis=[0])
                f = R.permute_dims(e)
                g = R.astype(f, "float32")
                h = R.flatten(g)
                i = R.astype(R.clip(h, -128, 127), "int8")
                R.output(i, c)
            return (i, c)

    return Entry(Module, for_parameters(Module))


# -- control flow, calls, tuples -----------------------------------------------------------------


@entry
def nested_if() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((32,), "float32"), c: R.Tensor((), "bool"), d: R.Tensor((), "bool")):
            y = R.add(x, x)
            z = R.multiply(x, y)
            if c:
                a = R.add(y, z)
                if d:
                    b = R.multiply(a, a)
                    r = R.subtract(b, z)
                else:
                    r = y
                q = R.exp(r)
            else:
                s = R.subtract(y, z)
                q = R.nn.softmax(s)
            w = R.add(q, x)
            return (w, z)

    x = random((32,))
    return Entry(Module, [[x, np.array(c), np.array(d)] for c in (True, False) for d in (True, False)])


@entry
def tuple_if() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), c: R.Tensor((), "bool")):
            if c:
                a = R.exp(x)
                b = R.nn.relu(a)
                t = (b, a)
            else:
                e = R.negative(x)
                t = (e, e)
            p = t[0]
            q = t[1]
            r = R.add(p, q)
            return (r, p)

    x = random((4, 8))
    return Entry(Module, [[x, np.array(c)] for c in (True, False)])


@entry
def issue_20191() -> Entry:
    """apache/tvm #20191: storage of one branch used in the other."""

    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((4, 8), "float32"), cond: R.Tensor((), "bool")):
            if cond:
                flat = R.reshape(x, R.shape([32]))
                y = R.reshape(flat, R.shape([4, 8]))
            else:
                flat2 = R.reshape(x, R.shape([32]))
                y = R.reshape(flat2, R.shape([4, 8]))
            return y

    x = random((4, 8))
    return Entry(Module, [[x, np.array(c)] for c in (True, False)], notes="identity")


@entry
def condition_computed() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((16,), "float32")):
            s = R.sum(x)
            c = R.greater(s, R.const(0.0, "float32"))
            y = R.exp(x)
            if c:  # noqa: SIM108
                z = R.add(y, x)
            else:
                z = R.subtract(y, x)
            return z

    return Entry(Module, [[random((16,))], [-np.abs(random((16,)))], [np.abs(random((16,)))]])


@entry
def relax_calls() -> Entry:
    @I.ir_module
    class Module:
        @R.function(private=True)
        def block(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            y = R.matmul(x, w)
            z = R.nn.softmax(y)
            return z

        @R.function
        def shared(x: R.Tensor((8, 8), "float32")) -> R.Tensor((8, 8), "float32"):
            y = R.exp(x)
            z = R.add(y, x)
            return z

        @R.function
        def main(x: R.Tensor((8, 8), "float32"), w: R.Tensor((8, 8), "float32")):
            cls = Module
            a = cls.block(x, w)
            b = cls.block(a, w)
            c = cls.shared(b)
            d = R.add(c, a)
            return d

    return Entry(Module, for_parameters(Module))


@entry
def packed_calls() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor((6, 7), "float32")):
            y = R.nn.relu(x)
            s = R.sort(y, axis=-1)
            t = R.topk(s, k=3, axis=-1)
            v = t[0]
            w = R.call_dps_packed("npu_memplan.zoo.double", (v,), out_ty=R.Tensor((6, 3), "float32"))
            u = R.add(w, v)
            return (u, t[1])

    return Entry(Module, for_parameters(Module))


@tvm.register_global_func("npu_memplan.zoo.double", override=True)
def _double(source: Any, target: Any) -> None:
    target.copyfrom(source.numpy() * 2)


@entry
def in_place_call() -> Entry:
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def accumulate(x: T.Buffer((16,), "float32"), total: T.Buffer((16,), "float32")):
            for i in range(16):
                with T.sblock("add"):
                    v = T.axis.spatial(16, i)
                    total[v] = total[v] + x[15 - v]

        @R.function
        def main(x: R.Tensor((16,), "float32")):
            cls = Module
            a = R.exp(x)
            b = R.call_tir_inplace(cls.accumulate, (x, a), inplace_indices=[1], out_ty=R.Tensor((16,), "float32"))
            c = R.call_tir_inplace(cls.accumulate, (x, b), inplace_indices=[1], out_ty=R.Tensor((16,), "float32"))
            d = R.multiply(c, x)
            return d

    return Entry(Module, for_parameters(Module))


@entry
def many_outputs() -> Entry:
    @I.ir_module
    class Module:
        @T.prim_func(s_tir=True)
        def divmod(
            a: T.Buffer((12,), "int32"),
            b: T.Buffer((12,), "int32"),
            q: T.Buffer((12,), "int32"),
            r: T.Buffer((12,), "int32"),
        ):
            for i in range(12):
                with T.sblock("both"):
                    v = T.axis.spatial(12, i)
                    q[v] = T.floordiv(a[v], T.max(b[v], 1))
                    r[v] = T.floormod(a[v], T.max(b[v], 1))

        @R.function
        def main(x: R.Tensor((12,), "int32"), y: R.Tensor((12,), "int32")):
            cls = Module
            t = R.call_tir(cls.divmod, (x, y), out_ty=[R.Tensor((12,), "int32"), R.Tensor((12,), "int32")])
            u = R.call_tir(cls.divmod, (t[1], t[0]), out_ty=[R.Tensor((12,), "int32"), R.Tensor((12,), "int32")])
            v = R.add(u[0], u[1])
            return (v, u[0], x, R.const([1, 2], "int32"))

    return Entry(Module, for_parameters(Module))


# -- dynamic shapes ------------------------------------------------------------------------------


@entry
def dynamic_convs() -> Entry:
    """The example of the first Relax memory planning threads: symbolic h, w through two convolutions."""

    @I.ir_module
    class Module:
        @R.function
        def main(
            x: R.Tensor((1, 4, "h", "w"), "float32"),
            w0: R.Tensor((8, 4, 3, 3), "float32"),
            w1: R.Tensor((8, 8, 3, 3), "float32"),
        ):
            with R.dataflow():
                a = R.nn.conv2d(x, w0, padding=1)
                b = R.nn.leakyrelu(a, 0.1)
                c = R.permute_dims(b, axes=[0, 2, 3, 1])
                d = R.permute_dims(c, axes=[0, 3, 1, 2])
                e = R.nn.conv2d(d, w1, padding=1)
                f = R.nn.leakyrelu(e, 0.1)
                g = R.nn.avg_pool2d(f, pool_size=(2, 2), strides=(1, 1))
                R.output(g)
            return g

    weights = [random((8, 4, 3, 3), seed=1), random((8, 8, 3, 3), seed=2)]
    shapes = [(3, 5), (8, 8), (2, 2), (7, 16)]
    return Entry(Module, [[random((1, 4, h, w)), *weights] for h, w in shapes], bounds={"h": 16, "w": 16})


@entry
def dynamic_match_cast() -> Entry:
    @I.ir_module
    class Module:
        @R.function
        def main(x: R.Tensor(("n", 4), "float32"), y: R.Tensor(ndim=2, dtype="float32")):
            n = T.int64()
            z = R.match_cast(y, R.Tensor((n, 4), "float32"))
            a = R.add(x, z)
            b = R.exp(a)
            c = R.reshape(b, R.shape([n * 4]))
            d = R.add(c, c)
            e = R.nn.softmax(d)
            return (e, b)

    return Entry(Module, [[random((n, 4)), random((n, 4), seed=9)] for n in (1, 3, 7)], bounds={"n": 8})
