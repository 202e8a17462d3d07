"""SOFTMAX, LOG_SOFTMAX and L2_NORMALIZATION of float32, over the last axis.

Invariant: a row is read from its first to its last element in each pass, as the reference does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

from ..operator import Lowering, lowering, require
from ..tir import Buffer, Expr, LocalScalar, library, raw_load, real, row_indices
from .numbers import REAL, largest_of, least, same


@contextmanager
def _rows(work: Lowering) -> Iterator[tuple[Buffer, Buffer, Expr, tuple[int, ...], int]]:
    """(input, output, row, shape, depth) inside of a loop over rows."""
    data, output = work.tensor(0), work.output()
    same((data, output), REAL)
    fits = data.shape == output.shape != ()
    require(fits, f"its input is {list(data.shape)}, its output {list(output.shape)}")
    depth = data.shape[-1]
    source, target = work.read(0, "input"), work.write()
    with work.function.loop(math.prod(data.shape) // max(depth, 1), "row") as row:
        yield source, target, row, data.shape, depth


def _peak(work: Lowering, source: Buffer, row: Expr, shape: tuple[int, ...]) -> LocalScalar:
    peak = work.function.local("peak", "float32")
    peak.set(real(least("float32")))
    with work.function.loop(shape[-1], "c") as c:
        peak.set(largest_of(work.function, peak.get(), raw_load(source, row_indices(row, c, shape)), "float32"))
    return peak


@lowering("SOFTMAX", plain=True)
def softmax(work: Lowering) -> None:
    """exp(beta (x - largest)), divided by the sum."""
    beta = real(work.options("SoftmaxOptions").Beta())
    function = work.function
    total = function.local("total", "float32")
    with _rows(work) as (source, target, row, shape, depth):
        peak = _peak(work, source, row, shape)
        total.set(real(0))
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            power = library("expf", (raw_load(source, place) - peak.get()) * beta)
            power = function.bind(power, "power", "float32")
            function.store(target, power, *place)
            total.add(power)
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            function.store(target, raw_load(target, place) / total.get(), *place)


@lowering("LOG_SOFTMAX", plain=True)
def log_softmax(work: Lowering) -> None:
    """x - largest - log of the sum of exp(x - largest)."""
    function = work.function
    total = function.local("total", "float32")
    with _rows(work) as (source, target, row, shape, depth):
        peak = _peak(work, source, row, shape)
        total.set(real(0))
        with function.loop(depth, "c") as c:
            total.add(library("expf", raw_load(source, row_indices(row, c, shape)) - peak.get()))
        logarithm = function.bind(library("logf", total.get()), "logarithm", "float32")
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            function.store(target, raw_load(source, place) - peak.get() - logarithm, *place)


@lowering("L2_NORMALIZATION", plain=True)
def l2_normalization(work: Lowering) -> None:
    """x / sqrt(sum of x squared); a length below 1e-6 counts as that."""
    options = work.operator.options("L2NormOptions")
    activation = 0 if options is None else options.FusedActivationFunction()
    require(activation == 0, "the reference refuses its fused activation")
    function = work.function
    total = function.local("total", "float32")
    with _rows(work) as (source, target, row, shape, depth):
        total.set(real(0))
        with function.loop(depth, "c") as c:
            x = function.bind(raw_load(source, row_indices(row, c, shape)), "x", "float32")
            total.add(x * x)
        length = largest_of(function, library("sqrtf", total.get()), real(1e-6), "float32")
        length = function.bind(length, "length", "float32")
        with function.loop(depth, "c") as c:
            place = row_indices(row, c, shape)
            function.store(target, raw_load(source, place) / length, *place)
