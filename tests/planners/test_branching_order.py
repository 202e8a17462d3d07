"""Orders of networks with many branches, against a search over all sets of operators that may have run."""

from __future__ import annotations

import pytest

from benchmarks.branching import best_peak, graph_of
from npu_memplan.models.tflite import read_network
from tests.support.random_networks.branching import KINDS, branching


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("most", [12, 24])
def test_no_order_of_a_network_with_branches_has_a_lower_peak(kind: str, most: int) -> None:
    graph = graph_of(read_network(branching(kind, most, 7, 8).finish()))
    found, best = graph.best_order(), best_peak(graph)
    assert best is not None
    assert found.peak_bytes == best == graph.peak_bytes(found.operators)
    assert found.peak_bytes <= found.given_peak_bytes == graph.peak_bytes(range(len(graph.operators)))
