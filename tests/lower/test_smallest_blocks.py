"""Operators of which only the smallest blocks fit an NPU equal tflite-micro: equal shares of them are too large.

Invariant: every configuration, and every element type that operators of the kind have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.lower.emit import LayerRefusedError
from npu_memplan.ethosu.lowering import lower
from npu_memplan.ethosu.relax.partition import partition_for_ethosu
from tests.support.arithmetic_models import VALID, binary, convolution, pool, unary
from tests.support.on_model import only_graph
from tests.support.relax_import import import_relax
from tests.support.single_operators import Case

pytest.importorskip("tflite_micro")
from tests.support.against_reference import equals_reference

U85_256 = "ethos-u85-256"
NPUS = ["ethos-u55-128", *(a.name for a in ETHOS_U85)]


def _softmax(dtype: str, *shape: int) -> Callable[..., Any]:
    zero = -128 if dtype == "int8" else 0
    return partial(
        unary, name="SOFTMAX", dtype=dtype, shape=shape, out=(1 / 256, zero), in_scale=0.05, options="SoftmaxOptions",
        Beta=1.0,
    )  # fmt: skip


def _rows(dtype: str, rows: int, columns: int, depth: int) -> Callable[..., Any]:
    return partial(binary, dtype=dtype, first=(1, rows, columns, depth), second=(1, 1, columns, depth))


MODELS = {
    "softmax_48x16": _softmax("int8", 1, 48, 16),
    "softmax_96x32": _softmax("int8", 1, 96, 32),
    "softmax_49x64_uint8": _softmax("uint8", 1, 49, 64),
    "add_rows_int8": _rows("int8", 3, 97, 1001),
    "add_rows_int16": _rows("int16", 3, 64, 1001),
    "max_pool_int8": partial(pool, kernel=(7, 7), stride=(3, 3), shape=(22, 31, 1001)),
    "max_pool_int16": partial(pool, kernel=(7, 3), stride=(2, 3), shape=(22, 31, 1001), dtype="int16"),
    "depthwise_k8_int16": partial(
        convolution, kernel=(8, 8), stride=(1, 3), shape=(16, 31, 1000), dtype="int16", depthwise=True, padding=VALID
    ),
    "depthwise_k7_int16": partial(
        convolution, kernel=(7, 7), stride=(3, 3), shape=(22, 13, 1001), dtype="int16", depthwise=True, padding=VALID
    ),
}


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("name", MODELS)
def test_equals_the_reference(name: str, npu: str) -> None:
    equals_reference(Case(name, "smallest_blocks", MODELS[name]), npu, 3)


def test_what_fits_nothing_is_reported() -> None:
    graph = only_graph(partition_for_ethosu(import_relax(Case("any", "", MODELS["softmax_48x16"]).build()), U85_256))
    target = accelerator(U85_256)
    assert target.rams is not None
    with pytest.raises(LayerRefusedError, match="no block of an element-wise operation with kernel 1x1"):
        lower(graph, replace(target, rams=replace(target.rams, output_bytes=8)))
