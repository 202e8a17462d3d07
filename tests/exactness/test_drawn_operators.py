"""One table of operators, each exact in all ways: models of one operator, as random networks have them, on the host and
natively lowered for each kind of NPU, with the waits of a compile. What Vela's streams compute is in test_operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from npu_memplan.exactness import EXACT, Code, Exactness
from npu_memplan.frontend.tflite.description import host_reason, known_of
from npu_memplan.frontend.tflite.lowered import NpuGroup
from npu_memplan.models.tflite import read_network
from tests.exactness.test_host_operators import values
from tests.support.against_reference import equals_reference
from tests.support.many_operators import assert_equals_references
from tests.support.on_model import partition_model
from tests.support.random_networks import draw
from tests.support.random_networks.reduction import part

pytest.importorskip("tflite_micro")
pytest.importorskip("ai_edge_litert", reason="needs LiteRT as the reference (pip install npu_memplan[litert])")

NETWORKS, MODELS = 1200, 2  # models of each kind and type of operator
NPUS = ("ethos-u55-128", "ethos-u65-512", "ethos-u85-512")
Models = Mapping[tuple[str, str], Sequence[bytes]]  # by kind and type


@pytest.fixture(scope="module")
def drawn() -> Mapping[Code, Models]:
    """Operators of random networks, each as a model of its own, that are called exact where this code runs them."""
    found: dict[Code, dict[tuple[str, str], list[bytes]]] = {Code.HOST: {}, Code.LOWERED: {}}
    for seed in range(NETWORKS):
        network = draw(seed)
        for index, (kind, *_) in enumerate(network.operators):
            model = part(network, [index])
            dtype = network.tensors[model.inputs[0]].dtype if model.inputs else ""
            for code, models in found.items():
                if kind in EXACT[code].get(dtype, ()) and len(models.setdefault((kind, dtype), [])) < MODELS:
                    alone = read_network(file := model.finish(), f"{kind} of network {seed}")
                    operator = alone.cpu_operators[0]
                    claim = known_of(code, alone, operator)
                    if claim.exactness is Exactness.EXACT and host_reason(alone, operator) is None:
                        models[kind, dtype].append(file)
    return found


def group_of(models: Models, group: int, groups: int) -> dict[str, bytes]:
    """The models of one key in `groups`."""
    keys = sorted(models)[group::groups]
    return {f"{key} {number}": model for key in keys for number, model in enumerate(models[key])}


@pytest.mark.parametrize("group", range(36))
def test_the_host_computes_what_references_do(group: int, drawn, tmp_path: Path) -> None:
    assert_equals_references(group_of(drawn[Code.HOST], group, 36), values, tmp_path)


@pytest.mark.parametrize("npu", NPUS)
@pytest.mark.parametrize("group", range(12))
def test_native_lowering_computes_what_references_do(group: int, npu: str, drawn) -> None:
    models, ran = group_of(drawn[Code.LOWERED], group, 12), 0
    for model in models.values():
        steps = partition_model(model, npu).steps()
        if len(steps) == 1 and isinstance(steps[0], NpuGroup):  # views and parts: test_moves has them
            equals_reference(model, npu, ran, scheduled=True)
            ran += 1
    assert ran > len(models) // 8


def test_most_claims_are_tried(drawn) -> None:
    for code, models in drawn.items():
        claimed = [(kind, dtype) for dtype, kinds in EXACT[code].items() for kind in kinds]
        assert sum(bool(models.get(key)) for key in claimed) > 0.7 * len(claimed)
