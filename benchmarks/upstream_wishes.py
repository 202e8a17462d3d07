"""What users wished for from TVM's memory planning, each wish with a program that shows it, and its figures.

Usage: python -m benchmarks.upstream_wishes

Invariant: every figure is computed here, and docs/upstream.md has this table (a test compares them).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R
from tvm.script import tirx as T

from npu_memplan import analysis
from npu_memplan.problem import Pool
from npu_memplan.transform import PlanMemory, pool_sizes
from npu_memplan.vocabulary import CONSTANT_POOLS
from tests.support.relax_programs import Convolutions
from tests.support.zoo import ZOO


@I.ir_module
class InPlace:
    """Element-wise, of any height and width."""

    @R.function
    def main(x: R.Tensor((1, 8, "h", "w"), "float32")):
        a = R.exp(x)
        b = R.tanh(a)
        c = R.add(b, b)
        d = R.nn.relu(c)
        return R.exp(d)


@I.ir_module
class LateUse:
    """All allocations of a kernel stand at its beginning, and the last one is used when the first are dead."""

    @T.prim_func(s_tir=True)
    def stages(a: T.Buffer((1024,), "float32"), b: T.Buffer((1024,), "float32")):
        first = T.alloc_buffer((1024,), "float32")
        second = T.alloc_buffer((1024,), "float32")
        third = T.alloc_buffer((1024,), "float32")
        for i in range(1024):
            first[i] = a[1023 - i]
        for i in range(1024):
            second[i] = first[1023 - i]
        for i in range(1024):
            third[i] = second[1023 - i]
        for i in range(1024):
            b[i] = third[1023 - i]

    @R.function
    def main(x: R.Tensor((1024,), "float32")):
        y = R.call_tir(LateUse.stages, (x,), out_ty=R.Tensor((1024,), "float32"))
        return R.exp(y)


@I.ir_module
class TwoDevices:
    """Softmax on the second device, with what it allocates itself."""

    I.module_global_infos({"vdevice": [I.vdevice({"kind": "llvm"}, 0), I.vdevice({"kind": "llvm"}, 1)]})

    @R.function
    def main(x: R.Tensor((4, 16), "float32", "llvm:0")):
        y: R.Tensor((4, 16), "float32", "llvm:0") = R.add(x, x)
        z: R.Tensor((4, 16), "float32", "llvm:1") = R.to_vdevice(y, "llvm:1")
        w: R.Tensor((4, 16), "float32", "llvm:1") = R.nn.softmax(z)
        u: R.Tensor((4, 16), "float32", "llvm:0") = R.to_vdevice(w, "llvm:0")
        return R.add(u, y)


def many_internals(count: int = 100) -> Any:
    """A kernel with that many allocations, each read by the next statement and by the seventh behind it."""
    lines = [f"        t{i} = T.alloc_buffer((32, 32), 'float32')" for i in range(count)]
    lines.append("        for i, j in T.grid(32, 32): t0[i, j] = a[j, i]")
    lines += [
        f"        for i, j in T.grid(32, 32): t{k}[i, j] = t{k - 1}[j, i] + t{max(0, k - 7)}[i, j]"
        for k in range(1, count)
    ]
    lines.append(f"        for i, j in T.grid(32, 32): b[i, j] = t{count - 1}[j, i]")
    text = "\n".join(lines)
    source = f"""
@I.ir_module
class Module:
    @T.prim_func(s_tir=True)
    def stages(a: T.Buffer((32, 32), 'float32'), b: T.Buffer((32, 32), 'float32')):
{text}
    @R.function
    def main(x: R.Tensor((32, 32), 'float32')):
        y = R.call_tir(Module.stages, (x,), out_ty=R.Tensor((32, 32), 'float32'))
        return R.exp(y)
"""
    return tvm.script.from_source(source, extra_vars={"I": I, "R": R, "T": T})


def sides(module: Any, **symbols: int) -> str:
    """Bytes of TVM's plan and of what its kernels allocate, and of ours."""
    row = analysis.compare(module, symbols).rows[0]
    return f"{row.tvm_bytes + row.tvm_internal_bytes:,} bytes, {row.planned_bytes:,} here"


def in_place() -> str:
    """Two tensors of 224 x 224 with TVM, one here."""
    return sides(InPlace, h=224, w=224)


def in_two_pools() -> str:
    """What lies in a first pool that is too small, and in the second."""
    module = ZOO["cnn_nhwc"]().module
    sizes = pool_sizes(PlanMemory([Pool("sram", 24 * 1024), Pool("dram")])(module))
    return ", ".join(f"{name} {size:,}" for name, size in sizes.items()) + " bytes"


def first_and_last_use() -> str:
    """When the allocations of a kernel live."""
    lives = analysis.liveness(LateUse).lifetimes
    text = ", ".join(
        f"{n} [{lives[f'stages.{n}'][0].first}, {lives[f'stages.{n}'][0].last})" for n in ("first", "third")
    )
    return f"{text}: {sides(LateUse)}"


def by_device() -> str:
    """Pools of two devices."""
    sizes = pool_sizes(PlanMemory()(TwoDevices))
    return ", ".join(f"{name} {size:,}" for name, size in sizes.items()) + " bytes"


def by_type() -> str:
    """Constants in a pool of their own, which is read-only."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((8, 64), "float32"))
    weights = relax.const(np.eye(64, dtype="float32"))
    with builder.function("main", [x]):
        a = builder.emit(relax.op.matmul(x, weights))
        builder.emit_func_output(builder.emit(relax.op.tanh(relax.op.matmul(a, weights))))
    planned = PlanMemory([Pool("sram")], constant_pools=[Pool("flash", read_only=True)])(builder.get())
    ((name, size),) = planned["main"].attrs[CONSTANT_POOLS]
    pools = {**pool_sizes(planned), str(name): int(size)}
    return ", ".join(f"{name} {size:,}" for name, size in pools.items()) + " bytes"


WISHES: tuple[tuple[str, str, Callable[[], str]], ...] = (
    ("height and width are dynamic, and operators work in place", "`InPlace`, 224 x 224", in_place),
    (
        "one plan for all heights and widths, with the size that a picture needs",
        "`Convolutions`, 1080 x 1920",
        lambda: sides(Convolutions, h=1080, w=1920),
    ),
    ("pools by name, filled in their order", "`cnn_nhwc`, sram of 24 KiB, then dram", in_two_pools),
    (
        "the whole program in TIR: what kernels allocate is planned with the tensors",
        "`attention`",
        lambda: sides(ZOO["attention"]().module),
    ),
    ("lifetimes from first to last use, not from where the allocation stands", "`LateUse`", first_and_last_use),
    (
        "several allocations in one kernel share bytes",
        "a kernel with 100 of 4,096 bytes",
        lambda: sides(many_internals()),
    ),
    ("regions by device", "`TwoDevices`", by_device),
    ("regions by type", "two products with one constant matrix of 64 x 64", by_type),
    ("offsets: small tensors in what a large one left", "`cnn_nhwc`", lambda: sides(ZOO["cnn_nhwc"]().module)),
)


def table() -> str:
    """Markdown."""
    lines = ["| wish | program | figures |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {wish} | {program} | {figures()} |" for wish, program, figures in WISHES)])


if __name__ == "__main__":
    print(table())
