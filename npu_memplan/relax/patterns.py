"""Composite patterns of quantised operators, as TVM's frontends write them.

Invariant: a pattern only says which calls belong together; every number and every constraint is
judged by the parser of the same kind (`parsers`), so a pattern may match too much but never decides.
Later entries have priority over earlier ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tvm.relax.dpl import is_const, is_op, is_tuple, wildcard

PREFIX = "ethos-u"
_MAX_CONCAT = 8

Pattern = Any


def _dequantized(x: Pattern) -> Pattern:
    return is_op("relax.dequantize")(x, is_const(), is_const())


def _quantized(x: Pattern) -> Pattern:
    return is_op("relax.quantize")(x, is_const(), is_const())


def _moved(x: Pattern) -> Pattern:
    return is_op("relax.reshape")(x, wildcard()) | is_op("relax.permute_dims")(x)


def _weights() -> Pattern:
    constant = is_const()
    return _moved(_dequantized(constant)) | _dequantized(_moved(constant)) | _dequantized(constant)


def _bias() -> Pattern:
    constant = is_const()
    wide = is_op("relax.multiply")(is_op("relax.astype")(constant), is_const())  # relax.dequantize takes no int64
    bias = _dequantized(constant) | wide
    return is_op("relax.reshape")(bias, wildcard()) | bias


def _clip(x: Pattern) -> Pattern:
    return is_op("relax.clip")(x, wildcard(), wildcard())


def _finished(result: Pattern) -> Iterator[Pattern]:
    """`result`, activated, quantised and clipped in every combination; longest last."""
    for activated in (result, is_op("relax.nn.relu")(result), _clip(result)):
        stored = _quantized(activated)
        yield stored
        yield _clip(stored)


def _weighted(name: str) -> Iterator[Pattern]:
    bare = is_op(name)(_dequantized(wildcard()), _weights())
    yield from _finished(bare)
    yield from _finished(is_op("relax.add")(bare, _bias()))


def _fully_connected() -> Iterator[Pattern]:
    bare = is_op("relax.matmul")(_dequantized(wildcard()), _weights())
    yield from _finished(bare)
    yield from _finished(is_op("relax.add")(bare, _bias()))


def _binary(name: str) -> Callable[[], Iterator[Pattern]]:
    def make() -> Iterator[Pattern]:
        yield from _finished(is_op(f"relax.{name}")(_dequantized(wildcard()), _dequantized(wildcard())))

    return make


def _squared_difference() -> Iterator[Pattern]:
    difference = is_op("relax.subtract")(_dequantized(wildcard()), _dequantized(wildcard()))
    yield from _finished(is_op("relax.multiply")(difference, difference))


def _unary(name: str, arguments: int = 1) -> Callable[[], Iterator[Pattern]]:
    def make() -> Iterator[Pattern]:
        rest = [wildcard() for _ in range(arguments - 1)]
        stored = _quantized(is_op(f"relax.{name}")(_dequantized(wildcard()), *rest))
        yield stored
        yield _clip(stored)

    return make


def _hard_swish() -> Iterator[Pattern]:
    stored = wildcard()  # normalised graphs dequantise it once for each use
    gate = _clip(is_op("relax.add")(_dequantized(stored), is_const()))
    yield _quantized(is_op("relax.divide")(is_op("relax.multiply")(_dequantized(stored), gate), is_const()))


def _integer_average() -> Iterator[Pattern]:
    pooled = is_op("relax.nn.avg_pool2d")(is_op("relax.astype")(wildcard()))
    for result in (pooled, _clip(pooled)):
        stored = is_op("relax.astype")(result)
        yield stored
        yield _clip(stored)


def _real_pool(name: str) -> Callable[[], Iterator[Pattern]]:
    def make() -> Iterator[Pattern]:
        yield from _finished(is_op(f"relax.nn.{name}")(_dequantized(wildcard())))

    return make


def _max_pool() -> Iterator[Pattern]:
    pooled = is_op("relax.nn.max_pool2d")(wildcard())
    yield pooled
    yield _clip(pooled)
    yield from _finished(is_op("relax.nn.max_pool2d")(_dequantized(wildcard())))


def _concat() -> Iterator[Pattern]:
    for count in range(2, _MAX_CONCAT + 1):
        yield is_op("relax.concat")(is_tuple([wildcard() for _ in range(count)]))
        real = is_op("relax.concat")(is_tuple([_dequantized(wildcard()) for _ in range(count)]))
        yield from _finished(real)


def _alone(name: str, arguments: int = 1) -> Callable[[], Iterator[Pattern]]:
    def make() -> Iterator[Pattern]:
        yield is_op(f"relax.{name}")(wildcard(), *(wildcard() for _ in range(arguments - 1)))

    return make


def _slices() -> Iterator[Pattern]:
    for arguments in (4, 5):  # without steps, and with them
        yield from _alone("strided_slice", arguments)()


def _reshapes() -> Iterator[Pattern]:
    yield is_op("relax.reshape")(wildcard(), wildcard())
    yield is_op("relax.expand_dims")(wildcard())
    yield is_op("relax.squeeze")(wildcard())


def _resize_bilinear() -> Iterator[Pattern]:
    yield from _finished(is_op("relax.image.resize2d")(_dequantized(wildcard()), wildcard()))


def _requantize() -> Iterator[Pattern]:
    yield from _finished(_dequantized(wildcard()))


# kind of layer -> its patterns, lowest priority first
PATTERNS: dict[str, Callable[[], Iterator[Pattern]]] = {
    "reshape": _reshapes,
    "transpose": _alone("permute_dims"),
    "slice": _slices,
    "pad": _alone("nn.pad"),
    "resize_nearest": _alone("image.resize2d", 2),
    "resize_bilinear": _resize_bilinear,
    "requantize": _requantize,
    "concat": _concat,
    "sigmoid": _unary("sigmoid"),
    "tanh": _unary("tanh"),
    "exp": _unary("exp"),
    "rsqrt": _unary("rsqrt"),
    "leaky_relu": _unary("nn.leakyrelu"),
    "abs": _unary("abs"),
    "softmax": _unary("nn.softmax"),
    "mean": _unary("mean"),
    "sum": _unary("sum"),
    "reduce_max": _unary("max"),
    "hard_swish": _hard_swish,
    "max_pool": _max_pool,
    "average_pool": _integer_average,
    "real_average_pool": _real_pool("avg_pool2d"),
    "maximum": _binary("maximum"),
    "minimum": _binary("minimum"),
    "multiply": _binary("multiply"),
    "subtract": _binary("subtract"),
    "add": _binary("add"),
    "squared_difference": _squared_difference,
    "fully_connected": _fully_connected,
    "conv2d": lambda: _weighted("relax.nn.conv2d"),
    "transpose_conv": lambda: _weighted("relax.nn.conv2d_transpose"),
}
