"""Random Relax programs of shape symbols, and random sizes for them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import tvm
from tvm import relax
from tvm.relax import op


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


def random_products(seed: int, count: int, symbols: Sequence[str] = ("n", "m")) -> Any:
    """Products of matrices whose sides are two or three symbols, with what is element-wise and by rows between them."""
    generator = random.Random(seed)
    builder = relax.BlockBuilder()
    n, m, k = (tvm.tirx.Var(name, "int64") for name in (*symbols, "k")[:3])
    x = relax.Var("x", relax.TensorType((n, m), "float32"))
    w = relax.Var("w", relax.TensorType((m, k if len(symbols) > 2 else m), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            emit = builder.emit
            values = [emit(op.exp(x)), emit(op.exp(w))]

            def joined(a: Any) -> Any:
                alike = [b for b in values[-10:] if str(b.ty) == str(a.ty)]
                factors = [b for b in values[-12:] if str(b.ty.shape[0]) == str(a.ty.shape[1])]
                if factors and generator.random() < 0.5:
                    return op.matmul(a, generator.choice(factors))
                return op.add(a, generator.choice(alike))

            producers = [
                op.tanh,
                lambda a: op.multiply(a, emit(op.sum(a, axis=[1], keepdims=True))),
                op.nn.softmax,
                op.permute_dims,
                lambda a: op.matmul(a, emit(op.permute_dims(a))),
                joined,
                joined,
            ]
            for _ in range(count):
                values.append(emit(generator.choice(producers)(generator.choice(values[-5:]))))
            out = builder.emit_output(relax.Tuple(values[-2:]))
        builder.emit_func_output(out)
    return builder.get()


def symbolic_programs() -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """20 programs: name, module, its symbols."""
    for seed in range(10):
        yield f"rows {seed}", random_program(seed), ("n", "m")
    for seed in range(10):
        symbols = ("n", "m", "k") if seed % 2 else ("n", "m")
        yield f"products {seed}", random_products(seed, 12 + 8 * seed, symbols), symbols


def random_sizes(seed: int, symbols: Sequence[str], count: int) -> list[dict[str, int]]:
    """Values from 1 to 4096, small ones as often as large ones."""
    generator = random.Random(seed)
    return [{name: round(4096 ** generator.random()) for name in symbols} for _ in range(count)]
