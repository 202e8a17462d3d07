"""Symbolic shapes through two convolutions: one pool whose size is a formula, or one of constant size.

    python examples/relax_dynamic_shapes.py

Plans the same program twice - for any h, w and for h, w up to 32 - prints the pools, and runs both on
the Relax VM. `benchmarks/relax.py --dynamic` compares the bytes with TVM's own planner.
"""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax
from tvm.script import ir as I
from tvm.script import relax as R

import npu_memplan as nm


@I.ir_module
class Model:
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


def vm(module: tvm.IRModule) -> relax.VirtualMachine:
    """The module on the Relax VM, with nothing planned but what PlanMemory planned."""
    passes = nm.transform.pipeline(plan=False)
    return relax.VirtualMachine(tvm.compile(module, target="llvm", relax_pipeline=passes), tvm.cpu())


def main() -> None:
    generator = np.random.default_rng(0)
    any_size = nm.transform.PlanMemory()(Model)
    up_to_32 = nm.transform.PlanMemory(bounds={"h": 32, "w": 32}, worst_case=True)(Model)
    for title, module in (("any h, w", any_size), ("h, w <= 32", up_to_32)):
        sizes = [nm.transform.pool_sizes(module, {"h": n, "w": n})["workspace"] for n in (2, 8, 32)]
        print(f"{title}: pool of {sizes} bytes for 2 x 2, 8 x 8 and 32 x 32")
    machines = [vm(Model), vm(any_size), vm(up_to_32)]
    weights = [generator.standard_normal((8, n, 3, 3)).astype("float32") for n in (4, 8)]
    for h, w in ((2, 2), (5, 9), (32, 32)):
        arguments = [generator.standard_normal((1, 4, h, w)).astype("float32"), *weights]
        results = [m["main"](*[tvm.runtime.tensor(a) for a in arguments]).numpy() for m in machines]
        equal = all(r.tobytes() == results[0].tobytes() for r in results)
        print(f"h={h} w={w}: planned results {'equal the unplanned ones bit for bit' if equal else 'DIFFER'}")
        if not equal:
            raise SystemExit(1)


if __name__ == "__main__":
    main()
