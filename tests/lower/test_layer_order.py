"""Layers and calls of networks with many branches in another order: fewer bytes in the plan, and the same results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.frontend.load import read
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import build, extract_problem, lower, plan
from npu_memplan.request import Loaded, request
from npu_memplan.stages import Planned
from npu_memplan.vocabulary import ORDER_PEAKS
from tests.support.random_networks.branching import KINDS, branching

NATIVE = CompileOptions(npu_compiler="tvm", objective="bytes")
HOST = CompileOptions("none")


def peaks(loaded: Loaded) -> dict[str, list[int]]:
    """Bytes in the model's order and in the one taken, by function."""
    found = loaded.module["main"].attrs.get(ORDER_PEAKS) or {}
    return {str(name): [int(n) for n in both] for name, both in found.items()}


def planned(loaded: Loaded) -> Planned:
    return plan(extract_problem(loaded))


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A network of a kind."""
    (tmp_path / "net.tflite").write_bytes(branching(request.param, 30, 1, 16).finish())
    return tmp_path / "net.tflite"


@pytest.mark.parametrize("model", ["randwire", "darts", "nasnet", "inception"], indirect=True)
def test_layers_need_what_their_order_says(model: Path) -> None:
    loaded = read(model, request(NATIVE))
    found = peaks(loaded)
    made = planned(loaded)
    (usage,) = made.plan.usage
    for before, after in found.values():
        assert usage.used_bytes <= after < before


@pytest.mark.parametrize("model", ["randwire", "darts"], indirect=True)
def test_another_order_of_layers_is_found_and_said(model: Path) -> None:
    loaded = read(model, request(NATIVE))
    ((name, (before, after)),) = peaks(loaded).items()
    made = planned(loaded)
    (note,) = [note for note in build(made).artifact.notes if "another order" in note]
    assert f"of {name} " in note
    assert note.endswith(f"which saves {before - after:,} of {before:,} bytes")


@pytest.mark.parametrize("model", [*KINDS], indirect=True)
def test_calls_of_the_host_never_need_more_in_another_order(model: Path) -> None:
    loaded = read(model, request(HOST))
    (given,) = planned(lower(replace(loaded, request=replace(loaded.request, reorder=False)))).plan.usage
    ordered = lower(loaded)
    (usage,) = planned(ordered).plan.usage
    assert usage.used_bytes <= given.used_bytes
    assert (usage.used_bytes < given.used_bytes) == bool(peaks(ordered))


@pytest.mark.parametrize("model", ["randwire"], indirect=True)
def test_calls_of_the_host_need_fewer_bytes_in_another_order(model: Path) -> None:
    ((before, after),) = peaks(lower(read(model, request(HOST)))).values()
    assert after < before
