"""Random networks of one to eight operators are exact, announced as inexact, or refused by name, each way to compile.

A fixed slice of what `python -m benchmarks.random_networks` runs.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from tests.support.random_networks import FIRST_BRANCHING, FIRST_STRUCTURE, MOST_OPERATORS, draw, network
from tests.support.random_networks.reduction import part, reduced
from tests.support.random_networks.verdict import Trial, Verdict, ways
from tests.support.tflite_builder import ModelBuilder

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")


SANITIZED = RunOptions(sanitize=True)

REFERENCE_ABORTS = (11000,)  # TFLite Micro's interpreter ends the process; campaigns run it in one of its own
CHECKED = [(1000 * number, how) for number, how in enumerate(ways(0)) if 1000 * number not in REFERENCE_ABORTS]
# Each way has networks of its own; a campaign has more of them.
UNCHECKED = [
    *((seed + 1, how) for seed, how in CHECKED if how not in ("pool", "u65", "bytes")),
    *((FIRST_STRUCTURE + 15 + number, how) for number, how in enumerate(("default", "tvm", "none", "u85"))),
    *((FIRST_BRANCHING + number, how) for number, how in enumerate(("tvm", "none", "stripes", "stripes-bytes", "u85"))),
    (11001, "u85-stripes-bytes"),
]


@pytest.fixture(autouse=True)
def unsanitized_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compile's check runs the program that a trial then runs on other inputs: the trial has the sanitizers."""
    monkeypatch.delenv("NPU_MEMPLAN_SANITIZE")


@pytest.mark.parametrize(("seed", "how"), CHECKED, ids=str)
def test_right_or_announced_or_refused(seed: int, how: str) -> None:
    outcome = Trial(network(seed), seed).compile_and_run(ways(seed)[how], run_options=SANITIZED)
    assert outcome.verdict is not Verdict.FAULT, outcome.message


@pytest.mark.parametrize(("seed", "how"), UNCHECKED, ids=str)
def test_right_or_announced_without_a_check(seed: int, how: str) -> None:
    """A campaign does this: no other program replaces a wrong one."""
    outcome = Trial(network(seed), seed).try_unchecked(ways(seed)[how])
    assert outcome.verdict is not Verdict.FAULT, outcome.message


@pytest.mark.parametrize(
    ("seed", "how", "verdict"),
    [
        (6002, "tvm", Verdict.EXACT),
        (4000008, "tvm", Verdict.EXACT),
        (7000005, "u85", Verdict.EXACT),
        (9200014, "vela", Verdict.ANNOUNCED),
        (9300000, "vela", Verdict.ANNOUNCED),
        (9200033, "vela", Verdict.REFUSED),
        (9500001, "vela", Verdict.EXACT),
        (9500076, "stripes", Verdict.EXACT),
        (9500078, "vela", Verdict.REFUSED),
        (9500242, "vela", Verdict.REFUSED),
        (9500760, "none", Verdict.EXACT),
        (9500855, "stripes", Verdict.EXACT),
        (9510596, "tvm", Verdict.EXACT),
        (9501040, "none", Verdict.EXACT),
        (9501120, "none", Verdict.EXACT),
        (9511109, "vela", Verdict.REFUSED),
        (720042, "none", Verdict.EXACT),
        (700028, "u85", Verdict.EXACT),
        (9510756, "vela", Verdict.EXACT),
        (9510030, "u85", Verdict.EXACT),
        (9510036, "stripes", Verdict.EXACT),
        (20001002, "default", Verdict.EXACT),
        (20010018, "default", Verdict.EXACT),
    ],
)
def test_what_was_a_fault_once(seed: int, how: str, verdict: Verdict) -> None:
    """An NPU function that takes what folding has made a constant; such a result, and an input [].

    Those of 4000008: `TRANSPOSE` of a constant is an output. Of 7000005: a pool of Vela's has an input that it ignores.
    Of 9200014 and 9300000: what a `TRANSPOSE` moves on the way was taken for a wrong result, beside an operator a step
    away; of the second, the kernels behind it have no operator.
    Of 9200033: a transfer writes 16 bytes where a tensor has 6. Of 9500001 and 9500078: Vela's kernels write a part of
    what is read, in `MIRROR_PAD` of int32 and in `BATCH_MATMUL` of several batches. Of 9500076: a product of a tensor
    with itself. Of 9500242: Vela's legacy core computes in place of what the host reads later. Of 9510030: the host
    reads Vela's bools, where true is -1. Of 9510036: a buffer is written as one map and read as another with longer
    rows. Of 9500760 and 9510596: a result is a reshaped constant, or a part of one. Of 9500855: an operation of the NPU
    has constants alone. Of 9510756: REDUCE_MAX of a part. Of 9501040: the table of a LOG of int16
    starts below its type. Of 9501120: squares of int64 overflow, which C left undefined. Of 9511109: a kernel of Vela's
    reads nothing. Of 720042 and 700028: DIV of uint8, whose scales LiteRT divides in float32. Of 20001002: Vela reads
    through a PAD whose result is an output too, and leaves that out.
    """
    outcome = Trial(network(seed), seed).try_unchecked(ways(seed)[how])
    assert outcome.verdict is verdict, outcome.message


def test_what_is_drawn() -> None:
    """A seed is a network, and many of them have everything that is decided by them."""
    assert network(5) == network(5) != network(6)
    kinds: Counter[str] = Counter()
    types, ranks, zeros, fused, sizes, batches = (set[object]() for _ in range(6))
    decades = 0.0
    for seed in range(3000):
        b = draw(seed)
        kinds.update(operator[0] for operator in b.operators)
        sizes.add(len(b.operators))
        fused |= {operator[4].get("FusedActivationFunction") for operator in b.operators}
        for tensor in b.tensors:
            types.add(tensor.dtype)
            ranks.add(len(tensor.shape))
            zeros.add(tensor.zero_point)
            batches |= {tensor.shape[0]} if len(tensor.shape) == 4 else set()
            scales = np.atleast_1d(np.asarray(1 if tensor.scale is None else tensor.scale, float))
            decades = max(decades, float(np.log10(scales.max() / scales.min())))
    assert sizes >= set(range(1, MOST_OPERATORS + 1))
    assert types >= {"int8", "int16", "uint8", "float32", "int32", "int64", "bool"}
    assert ranks >= {1, 2, 3, 4, 5}
    assert zeros >= {-128, 0, 127, 255}
    assert fused >= {0, 1, 2, 3}
    assert batches >= {1, 2, 3, 4}
    assert decades > 5
    assert len(kinds) > 70


def test_structures_that_are_drawn() -> None:
    """What structures are recognised by, and the scales, extents and states that single operators seldom have."""
    assert network(FIRST_STRUCTURE + 5) == network(FIRST_STRUCTURE + 5)
    kinds: Counter[str] = Counter()
    fused: Counter[object] = Counter()
    near, powers, branches, deep, wide, returned = 0, 0, 0, 0, 0, 0
    for seed in range(FIRST_STRUCTURE, FIRST_STRUCTURE + 1000):
        b = draw(seed)
        kinds.update(operator[0] for operator in b.operators)
        fused.update(operator[4].get("FusedActivationFunction") for operator in b.operators)
        read = Counter(i for operator in b.operators for i in operator[1])
        branches += any(count > 1 and b.tensors[i].data is None for i, count in read.items())
        deep += any(tensor.shape and tensor.shape[-1] > 4096 for tensor in b.tensors)
        wide += any(len(tensor.shape) == 4 and max(tensor.shape[1:3]) > 2000 for tensor in b.tensors)
        returned += bool(set(b.inputs).intersection(b.outputs))
        scales = [float(np.atleast_1d(tensor.scale)[0]) for tensor in b.tensors if tensor.scale is not None]
        near += any(abs(6 / scale % 1 - 0.5) < 1e-4 for scale in scales)
        powers += any(math.frexp(scale)[0] == 0.5 for scale in scales)
    assert min(fused[kind] for kind in (1, 2, 3)) > 300
    assert min(near, powers, branches) > 300
    assert min(deep, wide, returned) > 30
    structures = ("BATCH_MATMUL", "SOFTMAX", "READ_VARIABLE", "SPACE_TO_BATCH_ND", "RESIZE_NEAREST_NEIGHBOR", "RSQRT")
    assert all(kinds[kind] > 20 for kind in structures), kinds


def test_a_hybrid_layer_of_a_constant_is_not_folded() -> None:
    """TVM folds by running, and the C that such a layer calls is in an artifact alone: it ended the process."""
    b, rng = ModelBuilder(), np.random.default_rng(3)
    x = b.tensor((1, 3), "float32")
    weights = b.constant(rng.integers(-127, 128, (3, 3)).astype(np.int8), 0.01)
    bias, start = (b.constant(rng.standard_normal(shape).astype(np.float32)) for shape in ((3,), (1, 3)))
    y, z = b.tensor((1, 3), "float32"), b.tensor((1, 3), "float32")
    b.operator("FULLY_CONNECTED", [start, weights, bias], [y], "FullyConnectedOptions", 5)
    b.operator("ADD", [x, y], [z], "AddOptions")
    outcome = Trial(b.made([x], [z]).finish()).try_unchecked(ways(0)["tvm"])
    assert outcome.verdict is Verdict.EXACT, outcome.message


def test_what_vela_takes_and_cannot_be_lifted_is_lowered() -> None:
    """In its stream, one byte of a tensor of the host is accessed together with others."""
    trial = Trial(network(70), 70)
    assert "accessed together with other tensors" in trial.compile_and_run(ways(70)["vela"]).message
    outcome = trial.compile_and_run(ways(70)["default"])
    assert outcome.verdict is Verdict.EXACT
    assert "Vela's stream was not taken, it was refused" in outcome.message


def test_what_differs_unannounced_is_a_fault() -> None:
    trial = Trial(draw(3).finish(), 3)
    trial.expected = [[np.zeros_like(array) + 1 for array in outputs] for outputs in trial.expected]
    outcome = trial.compile_and_run(ways(3)["none"])
    assert outcome.verdict is Verdict.FAULT
    assert "claimed exact" in outcome.message


def test_a_network_is_reduced_to_what_shows_the_same() -> None:
    b = next(draw(seed) for seed in range(100) if len({o[0] for o in draw(seed).operators}) > 4)
    kind = b.operators[2][0]

    def shown(smaller: ModelBuilder) -> str:
        return kind if kind in [operator[0] for operator in smaller.operators] else ""

    assert [operator[0] for operator in reduced(b, shown).operators] == [kind]
    assert part(b, range(len(b.operators))).finish() == b.finish()
