"""Random programs of two symbols compute on poisoned pools what they compute without a plan, empty tensors included."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tvm")

import tvm
from tvm import relax
from tvm.relax import op

from npu_memplan.problem import Pool
from npu_memplan.transform import PlanMemory


def random_program(seed: int) -> Any:
    """Element-wise, transposed, reduced, sliced, joined, reshaped tensors of (n, m, 8), beside some of fixed size."""
    generator = random.Random(seed)
    builder = relax.BlockBuilder()
    n, m = tvm.tirx.Var("n", "int64"), tvm.tirx.Var("m", "int64")
    x = relax.Var("x", relax.TensorType((n, m, 8), "float32"))
    f = relax.Var("f", relax.TensorType((16, 8), "float32"))
    with builder.function("main", [x, f]):
        with builder.dataflow():
            emit = builder.emit
            values, fixed = [emit(op.exp(x))], [emit(op.exp(f))]

            def transposed(a: Any) -> Any:
                return emit(op.permute_dims(a, [1, 0, 2]))

            def joined(a: Any) -> Any:
                both = emit(op.concat([a, generator.choice(values)], axis=2))
                return op.add(emit(op.strided_slice(both, [2], [4], [12])), a)

            def square() -> Any:
                return emit(op.matmul(emit(op.permute_dims(fixed[-1])), fixed[-1]))

            producers = [
                lambda a: op.permute_dims(transposed(a), [1, 0, 2]),
                lambda a: op.add(a, generator.choice(values)),
                lambda a: op.nn.softmax(a, axis=generator.choice([0, 1, 2])),
                lambda a: op.multiply(a, emit(op.sum(a, axis=[1], keepdims=True))),
                joined,
                lambda a: op.reshape(emit(op.tanh(emit(op.reshape(a, (n * m, 8))))), (n, m, 8)),
                lambda a: op.astype(emit(op.astype(a, "float16")), "float32"),
                lambda a: op.add(a, emit(op.mean(square()))),
                lambda a: op.matmul(a, square()),
            ]
            for _ in range(generator.randint(5, 12)):
                values.append(emit(generator.choice(producers)(generator.choice(values[-3:]))))
                if generator.random() < 0.3:
                    fixed.append(emit(op.add(fixed[-1], generator.choice(fixed))))
            out = builder.emit_output(relax.Tuple([values[-1], fixed[-1]]))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_planned_equals_unplanned_at_every_size(seed, run):
    module = random_program(seed)
    pools = [Pool("ram")] if seed % 2 else [Pool("sram", 1024), Pool("dram")]
    generator = np.random.default_rng(seed)
    inputs = []
    for n, m in ((1, 1), (2, 7), (9, 3), (40, 33), (0, 3)):
        shapes = ((n, m, 8), (16, 8))
        inputs.append([(generator.standard_normal(shape) * 0.3).astype(np.float32) for shape in shapes])
    planned = PlanMemory(pools, poison=0xA5)(module)
    for want, got in zip(run(module, inputs), run(planned, inputs), strict=True):
        assert [a.tobytes() for a in want] == [b.tobytes() for b in got]
