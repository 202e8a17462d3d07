"""Sums of products of inputs and weights: CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED.

Invariant: sums of float32 are made in the reference's order, and the bias is added to the finished sum. Those of int8
are int32; those of int16 as wide as the bias (int64 without one), because the two round differently.
"""

from __future__ import annotations

from collections.abc import Sequence

from .common import accumulator_type, as_it_is, bias_of, centred, channel_scales, clamp_to_activation, require_types
from .fixed_tir import multiply_rounded_once
from .operator import Lowering
from .plain.numbers import REAL, activated, same
from .tir import Expr, cast, load, number, raw_load


class Products:
    """One sum, of which an operator makes each element of its output; types and scales are checked here."""

    def __init__(
        self, work: Lowering, channels: int, *, data: int = 0, wide: bool = False, dense: bool = False
    ) -> None:
        """Weights are input 1, the bias (if any) the one behind the data and them; `wide`: int16 sums are int64."""
        self.work, self.dense = work, dense
        self.data, self.weights, self.output = work.tensor(data), work.tensor(1), work.output()
        bias = bias_of(work, max(data, 1) + 1, channels)
        self.kind, self.wide = "float32", False
        if not work.plain:
            self.kind = accumulator_type(self.data, bias)
            self.kind = "int64" if wide and self.data.dtype == "int16" else self.kind
            self.wide = self.kind == "int64"
            single = self.data.dtype == "uint8" and not dense
            self.scales = channel_scales(self.data, self.weights, self.output, channels, single=single)
        names = {data: "input", 1: "weights"} | ({max(data, 1) + 1: "bias"} if bias is not None else {})
        buffers = {name: work.read(position, name) for position, name in sorted(names.items())}
        self.source, self.matrix, self.bias = buffers["input"], buffers["weights"], buffers.get("bias")
        if not work.plain:
            tables = self.scales.tables(self.wide).items()
            self.tables = {name: work.table(name, values) for name, values in tables}
        self.total = work.function.local("sum", self.kind)

    def begin(self, channel: Expr) -> None:
        """An empty sum."""
        starts_as_bias = self.bias is not None and not self.work.plain
        self.total.set(cast(load(self.bias, channel), self.kind) if starts_as_bias else number(0, self.kind))

    def add(self, place: Sequence[Expr], weight: Sequence[Expr]) -> None:
        """The product of the input's element at `place` and of the one at `weight` of the weights."""
        take = as_it_is if self.work.plain else centred
        product = take(self.source, self.data, *place) * take(self.matrix, self.weights, *weight)
        self.total.add(cast(product, self.kind))

    def result(self, channel: Expr, activation: int) -> Expr:
        """What the output stores."""
        function, total = self.work.function, self.total.get()
        if self.work.plain:
            total = total if self.bias is None else total + raw_load(self.bias, [channel])
            return activated(function, total, activation, self.kind)
        if self.dense and self.data.dtype == "uint8":  # LiteRT's kernel rounds these once
            scaled = multiply_rounded_once(total, self.scales.multipliers[0], self.scales.shifts[0])
        else:
            scaled = self.scales.apply(function, total, self.tables, channel, self.wide)
        return clamp_to_activation(scaled, activation, self.output)


def check_weighted(work: Lowering, data: int = 0) -> None:
    """Refuses inputs, weights and outputs (and biases of float32) of types that do not go together."""
    found = work.tensor(data), work.tensor(1), work.output()
    if not work.plain:
        return require_types(*found)
    bias = work.optional(max(data, 1) + 1)
    same(found if bias is None else (*found, bias), REAL)
    return None
