"""Partitioning: registered patterns, reasons kept in the IR, forms that survive TVMScript."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tvm
from tvm import ir, relax
from tvm.relax.backend.pattern_registry import get_patterns_with_prefix

import npu_memplan as nm
from npu_memplan.ethosu.arch import AcceleratorError
from npu_memplan.ethosu.layers import COMPOSITES
from npu_memplan.ethosu.layers.matrix import Conv
from npu_memplan.ethosu.layers.movement import Concat, Pad
from npu_memplan.ethosu.layers.softmax import Softmax
from npu_memplan.ethosu.reading.reader import bindings_of
from npu_memplan.ethosu.relax import partition
from npu_memplan.ethosu.relax.partition import npu_functions
from npu_memplan.vocabulary import is_npu
from tests.support.on_model import import_relax, npu_graph, only_graph
from tests.support.real_data import Models
from tests.support.single_operators import case
from tests.support.tflite_builder import ModelBuilder

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


def test_every_kind_is_registered_with_tvm() -> None:
    nm.relax.partition_for_ethosu(import_relax(concatenation_of(2)))
    kinds = {str(p.name).split(".")[1] for p in get_patterns_with_prefix("ethos-u")}
    assert kinds == {*COMPOSITES}


def concatenation_of(count: int) -> bytes:
    builder = ModelBuilder()
    inputs = [builder.tensor((1, 2, 2, 3), "int8", 0.05, -3) for _ in range(count)]
    made = builder.tensor((1, 2, 2, 3 * count), "int8", 0.05, -3)
    options = {"Axis": 3, "FusedActivationFunction": 0}
    builder.operator("CONCATENATION", inputs, [made], "ConcatenationOptions", 2, **options)
    return builder.made(inputs, [made]).finish()


def test_any_number_of_inputs_is_concatenated_on_the_npu() -> None:
    module = nm.relax.partition_for_ethosu(import_relax(concatenation_of(40)))
    assert nm.relax.host_operators(module) == ()
    (layer,) = only_graph(module).layers
    assert isinstance(layer, Concat)
    assert len(layer.inputs) == 40


def test_the_example_is_one_function_and_nothing_stays() -> None:
    module = nm.relax.partition_for_ethosu(import_relax(EXAMPLE.read_bytes()), accelerator="ethos-u55-256")
    assert nm.relax.host_operators(module) == ()
    graph = only_graph(module)
    assert any(isinstance(layer, Conv) for layer in graph.layers)
    assert any(isinstance(layer, Softmax) for layer in graph.layers)


def test_an_unknown_accelerator_is_refused() -> None:
    with pytest.raises(AcceleratorError):
        nm.relax.partition_for_ethosu(import_relax(EXAMPLE.read_bytes()), accelerator="ethos-u99")


def test_excluded_kinds_stay_on_the_host() -> None:
    module = nm.relax.partition_for_ethosu(import_relax(EXAMPLE.read_bytes()), exclude=("softmax",))
    assert [o.kind for o in nm.relax.host_operators(module)] == ["nn.softmax"]


@pytest.mark.parametrize(
    "name, kind, reason",
    [
        ("conv_d4x4", "nn.conv2d", "its dilation 4x4 is not 1 or 2"),
        ("add_both_broadcast", "add", "both operands, [1, 6, 1, 9] and [1, 1, 7, 1], would have to be broadcast"),
    ],
)
def test_reasons_are_kept_in_the_module(name: str, kind: str, reason: str) -> None:
    module = nm.relax.partition_for_ethosu(import_relax(case(name).build()))
    found = [o for o in nm.relax.host_operators(module) if o.kind == kind]
    assert [o.reason for o in found] == [reason]
    again = tvm.script.from_source(module.script(show_meta=True))
    assert nm.relax.host_operators(again) == nm.relax.host_operators(module)


def test_lowered_modules_survive_tvmscript() -> None:
    module = nm.relax.partition_for_ethosu(import_relax(EXAMPLE.read_bytes()))
    lowered = nm.relax.lower_for_ethosu(module)
    again = tvm.script.from_source(lowered.script(show_meta=True))
    ir.assert_structural_equal(again, lowered)
    npu = [f for f in lowered.functions.values() if is_npu(f)]
    assert len(npu) == 1
    assert not any("Codegen" in (f.attrs or {}) for f in lowered.functions.values() if isinstance(f, relax.Function))


def test_pads_are_folded_and_each_split_is_a_view(shared_model: Models) -> None:
    graph = npu_graph(shared_model("mobilenet_v2_pt2tflite_int8").read_bytes())
    assert sum(isinstance(layer, Pad) for layer in graph.layers) == 18
    from npu_memplan.ethosu.graph_rewrites import fold_pads

    assert not any(isinstance(layer, Pad) for layer in fold_pads(graph).layers)


def test_operators_of_the_source_are_listed_with_their_reasons() -> None:
    from npu_memplan.frontend.attributes import operators_of
    from npu_memplan.frontend.tflite.lowered import build_module

    imported = build_module(EXAMPLE, host_ops=("SOFTMAX",))
    operators = operators_of(imported.module["main"])
    assert [(o.kind, o.reason) for o in operators if not o.on_npu] == [("SOFTMAX", "kept on the CPU by --host-ops")]
    assert json.loads(json.dumps([o.name for o in operators]))


def composites(module: Any) -> list[tuple[list[str], int, int]]:
    """Of each function of the NPU the names of its composites in order, and how many parameters and results it has."""
    found = []
    for function in npu_functions(module).values():
        names = [str(b.value.attrs["Composite"]) for b in bindings_of(function) if isinstance(b.value, relax.Function)]
        result = function.ret_ty
        results = len(result.fields) if isinstance(result, relax.TupleType) else 1
        found.append((names, len(function.params), results))
    return sorted(found)


@pytest.mark.parametrize(
    "name",
    ["kws_ref_model", "str_ww_ref_model", "pretrainedResnet_quant"],
)
def test_groups_are_those_of_tvms_passes(name: str, shared_model: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    data = shared_model(name).read_bytes()
    keep = {str(bindings_of(import_relax(data)["main"])[5].var.name): "it stays"}
    for kept in ({}, keep):  # all on the NPU, and one call of the host in between
        ours = nm.relax.partition_for_ethosu(import_relax(data), keep=kept)
        with monkeypatch.context() as patch:
            patch.setattr(partition, "group_calls", lambda mod, patterns: None)
            theirs = nm.relax.partition_for_ethosu(import_relax(data), keep=kept)
        assert composites(ours) == composites(theirs) != []
        assert nm.relax.host_operators(ours) == nm.relax.host_operators(theirs)
