"""The order with the fewest live bytes, against all orders of small graphs and a plain dynamic program of others."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from npu_memplan.problem.operator_order import GraphOperator, GraphStorage, InPlace, OperatorGraph


def drawn(count: int, seed: int, reach: int) -> OperatorGraph:
    """Operators that read what up to three of the last `reach` ones made, or the input, some in place."""
    random = Random(seed)
    storages = [GraphStorage(random.randrange(1, 64), given=True, kept=random.random() < 0.1)]
    operators = []
    for index in range(count):
        read = {random.choice([-1, *range(max(0, index - reach), index)]) for _ in range(random.randrange(1, 4))}
        storages.append(GraphStorage(random.randrange(1, 64), kept=random.random() < 0.05))
        names = [source + 1 for source in sorted(read)]
        made = index + 1
        shared = tuple(
            InPlace(name, made, min(storages[name].size_bytes, storages[made].size_bytes))
            for name in names
            if random.random() < 0.6
        )
        scratch = random.randrange(10) if random.random() < 0.3 else 0
        after = tuple(sorted(source for source in read if source >= 0))
        operators.append(GraphOperator((*names, made), after, scratch, shared))
    return OperatorGraph(tuple(operators), tuple(storages))


def ladder(blocks: int, seed: int) -> OperatorGraph:
    """Blocks of three branches of two operators each, one behind the other."""
    random = Random(seed)
    storages, operators, last = [GraphStorage(8, given=True)], [], -1
    for _ in range(blocks):
        ends = []
        for _ in range(3):
            source = last
            for _ in range(2):
                storages.append(GraphStorage(random.randrange(1, 64)))
                operators.append(GraphOperator((source + 1, len(operators) + 1), (source,) if source >= 0 else ()))
                source = len(operators) - 1
            ends.append(source)
        storages.append(GraphStorage(random.randrange(1, 64)))
        operators.append(GraphOperator((*(end + 1 for end in ends), len(operators) + 1), tuple(ends)))
        last = len(operators) - 1
    return OperatorGraph(tuple(operators), tuple(storages))


def peak_of(graph: OperatorGraph, order: tuple[int, ...]) -> int:
    """Most bytes alive, from the set of operators that have run before each."""
    return max(_during(graph, frozenset(order[:position]), index) for position, index in enumerate(order))


def _during(graph: OperatorGraph, done: frozenset[int], index: int) -> int:
    """Bytes alive while operator `index` runs behind those in `done`."""
    users = {
        name: {i for i, o in enumerate(graph.operators) if name in o.storages} for name in range(len(graph.storages))
    }
    after = done | {index}
    before = {n for n, s in enumerate(graph.storages) if (s.given or users[n] & done) and (s.kept or users[n] - done)}
    now = before | set(graph.operators[index].storages)
    dying = {n for n in now if not graph.storages[n].kept and users[n] <= after}
    pairs = graph.operators[index].in_place
    saved = max((p.shared_bytes for p in pairs if p.dying in dying and p.born in now - before), default=0)
    return sum(graph.storages[n].size_bytes for n in now) + graph.operators[index].scratch_bytes - saved


def orders(graph: OperatorGraph, done: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """All orders."""
    if len(done) == len(graph.operators):
        yield done
    for index, operator in enumerate(graph.operators):
        if index not in done and set(operator.after) <= set(done):
            yield from orders(graph, (*done, index))


def least_peak(graph: OperatorGraph) -> int:
    """Of all orders, by a plain dynamic program over sets of operators that have run."""
    front = {frozenset[int](): 0}
    for _ in graph.operators:
        following: dict[frozenset[int], int] = {}
        for done, peak in front.items():
            for index, operator in enumerate(graph.operators):
                if index not in done and done.issuperset(operator.after):
                    reached = max(peak, _during(graph, done, index))
                    following[done | {index}] = min(following.get(done | {index}, reached), reached)
        front = following
    (peak,) = front.values()
    return peak


@pytest.mark.parametrize("seed", range(40))
def test_no_order_of_a_small_graph_has_a_lower_peak(seed: int) -> None:
    graph = drawn(3 + seed % 6, seed, 4)
    found = graph.best_order()
    assert found.is_optimal
    assert found.peak_bytes == min(peak_of(graph, order) for order in orders(graph)) == peak_of(graph, found.operators)
    assert found.given_peak_bytes == peak_of(graph, tuple(range(len(graph.operators))))


@pytest.mark.parametrize("blocks", [1, 2, 4, 8])
def test_no_order_of_up_to_sixty_operators_has_a_lower_peak(blocks: int) -> None:
    graph = ladder(blocks, blocks)
    found = graph.best_order()
    assert found.is_optimal
    assert found.peak_bytes == least_peak(graph) == peak_of(graph, found.operators)


@pytest.mark.parametrize("seed", range(20))
def test_an_order_is_topological_and_the_given_one_where_none_is_better(seed: int) -> None:
    graph = drawn(40, seed, 8)
    found = graph.best_order()
    place = {index: position for position, index in enumerate(found.operators)}
    assert sorted(place) == list(range(40))
    assert all(place[a] < place[i] for i, operator in enumerate(graph.operators) for a in operator.after)
    assert found.peak_bytes == graph.peak_bytes(found.operators) <= found.given_peak_bytes
    assert found.peak_bytes < found.given_peak_bytes or found.operators == tuple(range(40))


@pytest.mark.parametrize("seed", range(10))
def test_a_beam_is_never_worse_than_the_given_order(seed: int) -> None:
    graph = drawn(60, seed, 20)
    beam, exact = graph.best_order(steps=0, beam=4), graph.best_order()
    assert exact.peak_bytes <= beam.peak_bytes == graph.peak_bytes(beam.operators) <= beam.given_peak_bytes


def test_what_an_operator_writes_in_place_counts_once() -> None:
    """Two maps of 10 bytes, the second written over the first, beside an input of 3."""
    storages = (GraphStorage(3, given=True), GraphStorage(10), GraphStorage(10, kept=True))
    operators = (GraphOperator((0, 1)), GraphOperator((1, 2), (0,), in_place=(InPlace(1, 2, 10),)))
    assert OperatorGraph(operators, storages).best_order().peak_bytes == 13
    apart = (GraphOperator((0, 1)), GraphOperator((1, 2), (0,)))
    assert OperatorGraph(apart, storages).best_order().peak_bytes == 20


def test_parts_that_do_not_make_the_peak_keep_the_given_order() -> None:
    low, high = ladder(1, 1), ladder(1, 3)
    shift, first = len(low.operators), len(low.storages)
    names = {0: first - 1} | {i: first + i - 1 for i in range(1, len(high.storages))}
    moved = tuple(
        GraphOperator(tuple(names[n] for n in o.storages), tuple(a + shift for a in o.after) or (shift - 1,))
        for o in high.operators
    )
    larger = tuple(GraphStorage(s.size_bytes * 100) for s in high.storages[1:])
    graph = OperatorGraph(low.operators + moved, low.storages + larger)
    found = graph.best_order()
    assert found.operators[:shift] == tuple(range(shift))
    assert found.peak_bytes == least_peak(graph)
