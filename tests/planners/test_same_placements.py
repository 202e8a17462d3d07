"""The compiled searches place the same bytes as ever: a seed and a node budget decide, no clock and no machine.

The golden file was made when the searches were Python compiled by numba.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.planner_cases import Case, digest, drawn, filed

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "planner_placements.json"


def compare(cases: list[Case], request: pytest.FixtureRequest) -> None:
    found = {name: digest(make(), planner, seed, nodes) for name, make, planner, seed, nodes in cases}
    known = json.loads(GOLDEN.read_text(encoding="utf-8"))
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(json.dumps({**known, **found}, indent=0) + "\n", encoding="utf-8")
        return
    assert found == {name: known[name] for name in found}


def test_random_problems_are_placed_as_ever(request: pytest.FixtureRequest) -> None:
    compare(list(drawn()), request)


def test_challenging_instances_are_placed_as_ever(
    request: pytest.FixtureRequest, shared_instances: Callable[[str], Path]
) -> None:
    compare(list(filed(shared_instances("minimalloc_challenging"))), request)
