"""Models of one operator that keeps a state: LSTM, SVDF."""

from __future__ import annotations

import numpy as np

from tests.support.tflite_builder import ModelBuilder


def lstm_layer(
    b: ModelBuilder,
    x: int,
    time_major: bool = False,
    batches: int = 1,
    units: int = 5,
    clip: float = 0.0,
    cell_scale: float = 2.0**-12,
    hidden_scale: float = 0.008,
    dtype: str = "int8",
    elements: int | None = None,
) -> int:
    """Add an LSTM that reads `x`; its gates reach far beyond +-8, where their functions are flat.

    With `elements` it has intermediate tensors of so many; tflite-micro refuses what has more than none.
    """
    rng = np.random.default_rng(units)
    shape, depth = b.tensors[x].shape[:2], b.tensors[x].shape[2]

    def weights(columns: int) -> int:
        return b.constant(rng.integers(-127, 128, (units, columns)).astype(np.int8), float(rng.uniform(0.01, 0.05)))

    matrices = [weights(depth) for _ in range(4)] + [weights(units) for _ in range(4)]
    wide = dtype == "int16"
    most, kind, scale = (200_000, np.int64, 1e-6) if wide else (2000, np.int32, 1e-4)
    biases = [b.constant(rng.integers(-most, most, units).astype(kind), scale) for _ in range(4)]
    zero, hidden_scale = (0, 1 / 32768) if wide else (-6, hidden_scale)
    states = [
        b.tensor((batches, units), dtype, hidden_scale, zero, is_variable=True),
        b.tensor((batches, units), "int16", cell_scale, is_variable=True),
    ]
    y = b.tensor((*shape, units), dtype, hidden_scale if wide else 0.008, zero)
    if elements is not None:
        kept = [b.tensor((elements,), "int16", 2.0**-12) for _ in range(4)]
        b.intermediates[len(b.operators)] = [*kept, b.tensor((elements,), "int8", hidden_scale, zero)]
    inputs = [x, *matrices, -1, -1, -1, *biases, -1, -1, *states, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": clip, "TimeMajor": time_major}
    b.operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [y], "UnidirectionalSequenceLSTMOptions", **options)
    return y


def svdf(rng: np.random.Generator) -> ModelBuilder:
    """SVDF of int8 with a state of int16."""
    b = ModelBuilder()
    depth, units, rank, memory = 9, 6, 2, 5
    x = b.tensor((1, depth), "int8", 0.03, 4)
    features = b.constant(rng.integers(-127, 128, (units * rank, depth)).astype(np.int8), 0.02)
    times = b.constant(rng.integers(-3000, 3000, (units * rank, memory)).astype(np.int16), 0.001)
    bias = b.constant(rng.integers(-200, 200, units).astype(np.int32), 0.0002 * 0.001)
    state = b.tensor((1, units * rank * memory), "int16", 0.0002, is_variable=True)
    y = b.tensor((1, units), "int8", 0.02, -5)
    b.operator("SVDF", [x, features, times, bias, state], [y], "SVDFOptions", 3, Rank=rank)
    return b.made([x], [y])
