"""liveness, memory_pressure and conflict_graph: the numbers that earlier planners promised, and the right ones."""

from __future__ import annotations

import itertools

import pytest

pytest.importorskip("tvm")

from npu_memplan import analysis
from npu_memplan.extract import ExtractionError
from npu_memplan.problem import Lifetime
from npu_memplan.transform import PlanMemory

FLOATS = 4  # bytes


def test_liveness_of_a_small_network(zoo):
    found = analysis.liveness(zoo.ZOO["cnn_nhwc"]().module)
    assert found.points[0].startswith("0:conv2d.0")
    assert found.lifetimes["x"] == (Lifetime(0, 1),)  # dies where it is padded
    assert found.sizes_bytes["conv2d.pad_temp"] == 26 * 26 * 3 * FLOATS
    assert found.lifetimes["conv2d.pad_temp"] == (Lifetime(0, 2),)
    assert set(found.live_at(0)) == {"x", "w0", "w1", "conv2d.pad_temp"}


def test_pressure_is_the_largest_sum_of_live_bytes(zoo):
    module = zoo.ZOO["cnn_nhwc"]().module
    found = analysis.liveness(module)
    sums = [sum(found.sizes_bytes[n] for n in found.live_at(t)) for t in range(len(found.points))]
    pressure = analysis.memory_pressure(module)
    assert pressure.bytes_at == tuple(sums)
    assert pressure.peak_bytes == max(sums)
    assert pressure.peak_label == found.points[pressure.peak_point]
    assert set(pressure.buffers) == set(found.live_at(pressure.peak_point))


def test_conflict_graph_is_symmetric_and_exact(zoo):
    module = zoo.ZOO["nested_if"]().module
    found = analysis.liveness(module)
    graph = analysis.conflict_graph(module)
    at = {n: {p for x in lives for p in range(x.first, x.last)} for n, lives in found.lifetimes.items()}
    groups = [{n for n, _ in g.members} for g in analysis.problem(module).aliases]
    for a, b in itertools.combinations(at, 2):
        expected = bool(at[a] & at[b]) and not any({a, b} <= g for g in groups)
        assert (b in graph[a]) == expected, (a, b)
        assert (a in graph[b]) == expected, (a, b)


def test_branches_never_conflict(zoo):
    graph = analysis.conflict_graph(zoo.ZOO["nested_if"]().module)
    assert "s" not in graph["a"]


def test_a_planned_module_is_refused(zoo):
    planned = PlanMemory()(zoo.ZOO["mlp"]().module)
    with pytest.raises(ExtractionError, match="'main' is planned already; analyse the module as it was before"):
        analysis.liveness(planned)


def test_unknown_function_is_named_with_what_there_is(zoo):
    with pytest.raises(ExtractionError, match="the module has no Relax function 'nain'; it has: main"):
        analysis.liveness(zoo.ZOO["mlp"]().module, function="nain")
