"""`memory_planning` on tensor specs made here, without ExecuTorch: what a plan must keep, whatever its version."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from npu_memplan.executorch import BankError, ExecutorchPlanner, memory_planning, planning


@dataclass(eq=False)
class Spec:
    allocated_memory: int
    lifetime: list[int]
    mem_id: int | None = None
    storage_base: Spec | None = None
    storage_base_offset: int = 0
    mem_offset: int | None = None
    mem_obj_id: int | None = None


@dataclass
class Graph:
    """A graph of 20 nodes, the first body of control flow at node `start`."""

    input_mem_buffer_sizes: list[int] = field(default_factory=list)
    start: int = 0
    graph: Any = field(default_factory=lambda: SimpleNamespace(nodes=range(20)))


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Spec, Spec]]:
    """In place of ExecuTorch: a greedy planner that puts tensors one behind another, and the pairs of the list."""
    pairs: list[tuple[Spec, Spec]] = []

    def greedy(
        alignment: int, specs: Sequence[Spec], graph: Graph, signature: object, padding: int
    ) -> planning.GreedyPlan:
        ends = {memory: size for memory, size in enumerate(graph.input_mem_buffer_sizes) if size}
        places = []
        for spec in specs:
            memory = spec.mem_id or 1
            places.append((memory, ends.get(memory, 0)))
            ends[memory] = ends.get(memory, 0) + spec.allocated_memory
        sizes = [ends[m] + padding if m in ends else 0 for m in range(max(ends, default=0) + 1)]
        return planning.GreedyPlan(sizes, places)

    def result(specs: Sequence[Spec], places: Sequence[tuple[int, int]], sizes: list[int]) -> SimpleNamespace:
        placed = [SimpleNamespace(mem_id=m, mem_obj_id=0, mem_offset=o) for m, o in places]
        return SimpleNamespace(spec_dict=dict(zip(specs, placed, strict=True)), bufsizes=sizes)

    monkeypatch.setattr(planning, "greedy_plan", greedy)
    monkeypatch.setattr(planning, "algorithm_result", result)
    monkeypatch.setattr(planning, "first_control_flow", lambda graph: graph.start)
    monkeypatch.setattr(planning, "in_place_pairs", lambda graph: iter(pairs))
    return pairs


def planned(specs: Sequence[Spec], graph: Graph | None = None, padding: int = 0, **how: Any) -> list[int]:
    return memory_planning(**how)(16, specs, graph or Graph(), None, padding)


def places(*specs: Spec) -> list[tuple[int | None, int | None]]:
    return [(spec.mem_id, spec.mem_offset) for spec in specs]


def test_lifetimes_include_their_last_node() -> None:
    """A tensor that ends where another begins is still there; one node later its bytes are free."""
    assert planned([Spec(64, [0, 3]), Spec(64, [3, 5])]) == [0, 128]
    assert planned([Spec(64, [0, 3]), Spec(64, [4, 5])]) == [0, 64]


def test_the_plan_is_written_to_the_specs() -> None:
    specs = [Spec(64, [0, 1]), Spec(32, [1, 2]), Spec(96, [2, 3]), Spec(0, [0, 9])]
    sizes = planned(specs)
    assert sizes == [0, 128]
    assert [spec.mem_id for spec in specs] == [1, 1, 1, 1]
    first, second, third, _ = (spec.mem_offset or 0 for spec in specs)
    assert second + 32 <= first or first + 64 <= second
    assert third + 96 <= second or second + 32 <= third


def test_views_lie_in_their_storage() -> None:
    base = Spec(64, [0, 5])
    inner = Spec(32, [2, 5], storage_base=base, storage_base_offset=16)
    innermost = Spec(16, [3, 5], storage_base=inner, storage_base_offset=16)
    other = Spec(64, [4, 6])
    assert planned([innermost, other, inner, base]) == [0, 128]
    start = base.mem_offset or 0
    assert [inner.mem_offset, innermost.mem_offset] == [start + 16, start + 32]


def test_a_circle_of_storages_is_an_error() -> None:
    one, two = Spec(16, [0, 1]), Spec(16, [0, 1])
    one.storage_base, two.storage_base = two, one
    with pytest.raises(planning.ExirError, match="goes in a circle"):
        planned([one, two])


def test_preset_memories_are_kept() -> None:
    slow, fast, other = Spec(64, [0, 5]), Spec(64, [0, 5], mem_id=3), Spec(16, [1, 2])
    assert planned([slow, fast, other]) == [0, 80, 0, 64]
    assert [spec.mem_id for spec in (slow, fast, other)] == [1, 3, 1]


def test_banks_have_capacities_and_spill_to_the_next() -> None:
    specs = [Spec(64, [0, 5]), Spec(64, [0, 5]), Spec(32, [0, 5])]
    sizes = planned(specs, banks={2: 96, 1: None})
    assert sizes == [0, 64, 96]
    assert sorted(spec.mem_id or 0 for spec in specs) == [1, 2, 2]


def test_what_fits_no_bank_is_an_error_with_the_numbers() -> None:
    with pytest.raises(BankError, match=r"the tensors of the graph do not fit the banks: .*128"):
        planned([Spec(64, [0, 5]), Spec(64, [0, 5])], banks={1: 96})


@pytest.mark.parametrize("banks", [{0: 16}, {1: 0}, {1: -4}, {}, {"sram": 16}, {1: 1.5}])
def test_banks_that_mean_nothing_are_refused(banks: Any) -> None:
    with pytest.raises(BankError):
        memory_planning(banks)


def test_padding_is_added_to_every_buffer_in_use_and_kept_within_banks() -> None:
    specs = [Spec(64, [0, 5]), Spec(64, [0, 5], mem_id=2)]
    assert planned(specs, padding=64) == [0, 128, 128]
    assert planned([Spec(64, [0, 5])], padding=64, banks={1: 128}) == [0, 128]
    with pytest.raises(BankError):
        planned([Spec(64, [0, 5])], padding=64, banks={1: 112})


def test_bodies_of_control_flow_keep_the_start_of_the_buffer_from_the_first_on() -> None:
    before, during, after = Spec(96, [0, 4]), Spec(32, [4, 6]), Spec(32, [8, 9])
    assert planned([before, during, after], Graph([0, 96], start=6)) == [0, 128]
    assert before.mem_offset == 0
    assert (during.mem_offset or 0) >= 96
    assert (after.mem_offset or 0) >= 96, "the body's result may still lie at the start"


def test_bodies_alone_are_bytes_too() -> None:
    assert planned([], Graph([0, 48], start=2)) == [0, 48]


def test_outputs_lie_on_inputs_where_that_is_proven(stand_in: list[tuple[Spec, Spec]]) -> None:
    def pair() -> list[Spec]:
        specs = [Spec(64, [0, 3]), Spec(64, [2, 5])]
        stand_in[:] = [(specs[0], specs[1])]
        return specs

    specs = pair()
    assert planned(specs) == [0, 64]
    assert specs[1].storage_base is specs[0]
    specs = pair()
    assert planned(specs, in_place=False) == [0, 128]
    assert specs[1].storage_base is None
    specs = pair()
    view = Spec(32, [2, 6], storage_base=specs[0])
    assert planned([*specs, view]) == [0, 128], "something else lies in the input"


def test_greedy_is_kept_where_it_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [Spec(64, [0, 3]), Spec(64, [3, 5])]
    greedy = planning.GreedyPlan([0, 100], [(1, 0), (1, 36)])
    monkeypatch.setattr(planning, "greedy_plan", lambda *_: greedy)
    one = memory_planning()
    assert one(16, specs, Graph(), None) == [0, 100]
    assert places(*specs) == [(1, 0), (1, 36)]
    report = one.reports[0]
    assert (report.planned_bytes, report.greedy_bytes, report.bound_bytes, report.greedy_kept) == (100, 100, 128, True)


def test_a_greedy_plan_outside_of_the_banks_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "greedy_plan", lambda *_: planning.GreedyPlan([0, 100], [(1, 0), (1, 36)]))
    assert planned([Spec(64, [0, 3]), Spec(64, [3, 5])], banks={1: 80, 2: 80}) == [0, 64, 64]
    assert planned([Spec(64, [0, 3]), Spec(64, [3, 5])], banks={2: None}) == [0, 0, 128]


def test_the_algorithm_changes_no_spec() -> None:
    specs = [Spec(64, [0, 3]), Spec(64, [4, 5])]
    one: ExecutorchPlanner = memory_planning()
    assert one.algorithm(16, specs, Graph(), None, 0).bufsizes == [0, 64]
    assert places(*specs) == [(None, None)] * 2


def test_the_planner_imports_neither_tvm_nor_torch() -> None:
    code = (
        "import sys; from npu_memplan.executorch import memory_planning; memory_planning(); "
        "print([m for m in ('tvm', 'tvm_ffi', 'torch', 'executorch', 'numpy', 'ethosu') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
