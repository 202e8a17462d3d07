"""Operators of one quantised value over pairs of (scale, zero point): all 256 inputs, or many of int16.

Invariant: the same kind, type and number give the same pairs; every element of every operator is compared with the
reference that its claim is of.
"""

from __future__ import annotations

import math
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.base import ReferenceRunError
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.lower import tables
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.exactness import Exactness
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.tflite_builder import ModelBuilder

WAYS = {
    "host": CompileOptions("none"),
    "lowered": CompileOptions(npu_compiler="tvm", objective="bytes"),
    "vela": CompileOptions(npu_compiler="vela", objective="bytes"),
}
TYPES = ("int8", "uint8", "int16")
AT_ONCE = 100  # operators of a model
Quantisation = tuple[float, int]


@dataclass(frozen=True, slots=True)
class Kind:
    """How an operator of one tensor is drawn."""

    function: Callable[[float], float]  # which says what its output's range may be
    options: str | None = None
    fields: Callable[[np.random.Generator], dict[str, Any]] = lambda rng: {}
    version: int = 2
    fixed: dict[str, Quantisation] = field(default_factory=dict)  # of outputs, where the reference wants it so
    alike: bool = False  # the output is quantised as the input
    from_zero: bool = False  # the reference takes no negative numbers
    widest: float = 30.0  # of the input's range


_SQUASHED = {"int8": (1 / 256, -128), "uint8": (1 / 256, 0), "int16": (1 / 32768, 0)}
_TANH = {"int8": (1 / 128, 0), "uint8": (1 / 128, 128), "int16": (1 / 32768, 0)}


def _alpha(rng: np.random.Generator) -> dict[str, Any]:
    usual = (0.0, 0.01, 0.1, 0.2, 0.3, 0.5, 1.0, 1.5, -0.2, -0.5, -1.0, rng.uniform(0, 1))
    return {"Alpha": float(np.float32(rng.choice(usual)))}


def _root(x: float) -> float:
    return 1 / math.sqrt(x) if x > 0 else 1.0


KINDS: dict[str, Kind] = {
    "ABS": Kind(abs, "AbsOptions"),
    "CONCATENATION": Kind(float, "ConcatenationOptions", lambda rng: {"Axis": 0}),
    "ELU": Kind(lambda x: x),
    "EXP": Kind(lambda x: math.exp(min(x, 20)), widest=5),  # beyond, results have more than 31 bits
    "GELU": Kind(float, "GeluOptions", lambda rng: {"Approximate": bool(rng.integers(2))}, version=1),
    "HARD_SWISH": Kind(float, "HardSwishOptions", version=1),
    "LEAKY_RELU": Kind(float, "LeakyReluOptions", _alpha),
    "LOG": Kind(lambda x: math.log(x) if x > 0 else 1.0),
    "LOGISTIC": Kind(float, fixed=_SQUASHED),
    "QUANTIZE": Kind(float, "QuantizeOptions"),
    "RELU": Kind(float),
    "RELU6": Kind(lambda x: min(x, 6.0)),
    "RELU_0_TO_1": Kind(lambda x: min(x, 1.0), version=1),
    "RELU_N1_TO_1": Kind(lambda x: min(x, 1.0), version=1),
    "RSQRT": Kind(_root, from_zero=True),
    "SOFTMAX": Kind(float, "SoftmaxOptions", lambda rng: {"Beta": float(rng.choice([1.0, 0.5, 2.0]))}, fixed=_SQUASHED),
    "TANH": Kind(float, fixed=_TANH),
}
STANDARD = (1 / 128, 1 / 256, 0.5, 1.0, 0.1, 0.05, 0.02, 8.0, 6 / 255)  # the usual scales first
RATIOS = (1.0, 0.5, 2.0, 0.25, 1.5, 0.75)  # of scales, that make ties


@dataclass(frozen=True, slots=True)
class Pair:
    """The quantisation of input and output, and the operator's options."""

    source: Quantisation
    made: Quantisation
    fields: dict[str, Any]


def pairs(kind: str, dtype: str, count: int) -> list[Pair]:
    """`count` pairs, those of usual scales first; int16 has no zero points."""
    how, limits = KINDS[kind], np.iinfo(dtype)
    steps = limits.max - limits.min
    rng = np.random.default_rng(zlib.crc32(f"{kind} {dtype}".encode()))

    def zero() -> int:
        if dtype == "int16":
            return 0
        drawn = int(rng.integers(limits.min, limits.max, endpoint=True))
        return int(rng.choice([limits.min, limits.max, (limits.min + limits.max + 1) // 2, drawn, drawn]))

    found = []
    for number in range(count):
        scale = float(10 ** rng.uniform(-3, 1)) * 30 / steps
        if number < len(STANDARD):
            scale = STANDARD[number] * (1 if dtype != "int16" else 2**-8)
        scale = float(np.float32(min(scale, how.widest / steps * 2)))
        source = (scale, zero())
        ends = [abs(how.function((end - source[1]) * scale)) for end in (limits.min, limits.max)]
        ratio = float(rng.choice(RATIOS)) if number % 3 == 0 else float(10 ** rng.uniform(-0.7, 0.7))
        span = scale * steps if number % 3 == 0 else max(*ends, scale)
        made = (float(np.float32(span / steps * ratio)), zero())
        if how.alike:
            made = source
        made = how.fixed.get(dtype, made)
        found.append(Pair(source, made, how.fields(rng)))
    return found


def model(kind: str, dtype: str, some: Sequence[Pair]) -> ModelBuilder:
    """An operator for each pair, on tensors of their own."""
    b, how = ModelBuilder(), KINDS[kind]
    shape = _shape(kind, dtype)
    for pair in some:
        x, y = b.tensor(shape, dtype, *pair.source), b.tensor(shape, dtype, *pair.made)
        if kind == "CONCATENATION":  # beside another tensor of the output's scale
            other = b.tensor(shape, dtype, *pair.made)
            whole = b.tensor((2 * shape[0], *shape[1:]), dtype, *pair.made)
            b.operator(kind, [x, other], [whole], how.options, how.version, **pair.fields)
            b.inputs += [x, other]
            b.outputs.append(whole)
            continue
        b.operator(kind, [x], [y], how.options, how.version, **pair.fields)
        b.inputs.append(x)
        b.outputs.append(y)
    return b


def _shape(kind: str, dtype: str) -> tuple[int, ...]:
    elements = 256 if dtype != "int16" else 1024
    return (elements // 16, 16) if kind == "SOFTMAX" else (elements,)


def values(kind: str, b: ModelBuilder) -> list[np.ndarray]:
    """All 256 values for each input; of int16 the least, the greatest 64, those around zero, and random ones."""
    found = []
    for number, index in enumerate(b.inputs):
        tensor = b.tensors[index]
        limits, rng = np.iinfo(tensor.dtype), np.random.default_rng(number)
        if tensor.dtype == "int16":
            drawn = rng.integers(limits.min, limits.max, 1024, endpoint=True)
            drawn[:129] = [limits.min, *range(limits.max - 63, limits.max + 1), *range(-32, 32)]
        else:
            drawn = np.arange(limits.min, limits.max + 1)
        drawn = rng.permutation(drawn) if kind == "SOFTMAX" else drawn
        drawn = np.maximum(drawn, tensor.zero_point) if KINDS[kind].from_zero else drawn
        found.append(drawn.astype(tensor.dtype).reshape(tensor.shape))
    return found


@dataclass(slots=True)
class Tally:
    """Of operators with one claim."""

    operators: int = 0
    elements: int = 0
    differing: int = 0  # elements
    operators_differing: int = 0
    largest: int = 0  # difference
    worst: Pair | None = None


def compare(kind: str, dtype: str, way: str, some: Sequence[Pair]) -> dict[tuple[str, str], Tally]:
    """(who runs it, what is claimed) -> what was found, of `some` pairs compiled in a way; "refused": by whom."""
    found: dict[tuple[str, str], Tally] = {}
    for first in range(0, len(some), AT_ONCE):
        for part, wanted, given in _referenced(kind, dtype, some[first : first + AT_ONCE]):
            _compared(model(kind, dtype, part), WAYS[way], part, wanted, given, found)
    return found


def _referenced(
    kind: str, dtype: str, some: Sequence[Pair]
) -> Iterator[tuple[Sequence[Pair], list[np.ndarray], list[np.ndarray]]]:
    """Those that the reference takes, with what it makes of them and of which inputs."""
    b = model(kind, dtype, some)
    given = values(kind, b)
    try:
        wanted = [np.asarray(array) for array in TFLiteReference(b.finish()).run(given)]
    except ReferenceRunError:
        if len(some) > 1:
            for half in (some[: len(some) // 2], some[len(some) // 2 :]):
                yield from _referenced(kind, dtype, half)
        return
    yield some, wanted, given


def _compared(
    b: ModelBuilder,
    options: CompileOptions,
    some: Sequence[Pair],
    wanted: list[np.ndarray],
    given: list[np.ndarray],
    found: dict[tuple[str, str], Tally],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.tflite"
        path.write_bytes(b.finish())
        artifact = compile_model(path, options, Path(folder) / "artifact")
        made = LocalRunner(Path(folder) / "artifact").run(given).outputs
    for operator, pair, ours, theirs in zip(artifact.operators, some, made, wanted, strict=True):
        runner = "npu" if operator.agent is Agent.NPU else "host"
        tally = found.setdefault((runner, operator.claim.exactness.value), Tally())
        _count(tally, pair, ours, theirs)


Table = Callable[[LayerTensor, LayerTensor, Pair], tuple[int, ...]]
TABLES: dict[str, Table] = {
    "EXP": lambda x, y, pair: tables.exponential_table(x, y),
    "HARD_SWISH": lambda x, y, pair: tables.hard_swish(x, y),
    "LEAKY_RELU": lambda x, y, pair: tables.leaky_relu(x, y, pair.fields["Alpha"]),
    "LOGISTIC": lambda x, y, pair: tables.sigmoid(x, y),
    "RSQRT": lambda x, y, pair: tables.rsqrt_table(x, y),
    "TANH": lambda x, y, pair: tables.tanh(x, y),
}


def compare_tables(kind: str, dtype: str, some: Sequence[Pair]) -> dict[tuple[str, str], Tally]:
    """The same of native lowering's tables themselves, without a compile or a run."""
    tally = Tally()
    for first in range(0, len(some), AT_ONCE):
        for part, wanted, given in _referenced(kind, dtype, some[first : first + AT_ONCE]):
            for pair, theirs, asked in zip(part, wanted, given, strict=True):
                x, y = (LayerTensor(name, (1,), dtype, *q) for name, q in (("x", pair.source), ("y", pair.made)))
                ours = np.array(TABLES[kind](x, y, pair))[asked.astype(np.int64) - np.iinfo(dtype).min]
                _count(tally, pair, ours, theirs)
    return {("npu", Exactness.EXACT.value): tally}


def _count(tally: Tally, pair: Pair, ours: np.ndarray, theirs: np.ndarray) -> None:
    apart = np.abs(ours.astype(np.int64) - theirs.reshape(ours.shape).astype(np.int64))
    tally.operators += 1
    tally.elements += apart.size
    tally.differing += int(np.count_nonzero(apart))
    tally.operators_differing += bool(apart.any())
    if int(apart.max()) > tally.largest:
        tally.largest, tally.worst = int(apart.max()), pair


def false_claims(found: dict[tuple[str, str], Tally]) -> list[str]:
    """What is claimed and not so."""
    most = {Exactness.EXACT.value: 0, Exactness.STEP.value: 1}
    return [
        f"{runner}, {claim}: {tally.differing} of {tally.elements} elements by {tally.largest}, as {tally.worst}"
        for (runner, claim), tally in found.items()
        if tally.largest > most.get(claim, 1 << 16)
    ]
