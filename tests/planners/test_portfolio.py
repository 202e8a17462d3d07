"""Which orders of filling are tried: learning, chance for all, and steps that no height can fall between."""

from __future__ import annotations

from random import Random

import pytest

from npu_memplan.planners.model import Model
from npu_memplan.planners.portfolio import FOLLOWING, OPEN, ORDERS, Portfolio
from npu_memplan.planners.sections import build
from npu_memplan.planners.small import SmallSearch
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem


def test_every_order_is_tried_once_before_any_is_preferred() -> None:
    portfolio = Portfolio(Random(0))
    assert tuple(portfolio.choose(k, False, True)[0] for k in range(len(ORDERS))) == ORDERS
    assert len(set(ORDERS + FOLLOWING)) == len(ORDERS) + len(FOLLOWING)


def test_the_order_that_got_furthest_comes_most_but_not_only() -> None:
    portfolio = Portfolio(Random(0))
    for k, order in enumerate(ORDERS):
        portfolio.learn(order, False, 0.9 if k == 7 else 0.5)
        portfolio.learn(order, True, 0.9 if k == 11 else 0.5)
    for tight, best in ((False, 7), (True, 11)):
        chosen = [portfolio.choose(1000, tight, False)[0] for _ in range(3000)]
        counts = {order: chosen.count(order) for order in ORDERS}
        assert max(counts, key=lambda order: counts[order]) == ORDERS[best]
        assert min(counts.values()) > 0
        assert sum(counts.values()) - counts[ORDERS[best]] > OPEN * 1000


def test_only_with_a_best_placement_is_one_followed() -> None:
    portfolio = Portfolio(Random(0))
    assert not any(portfolio.choose(1000, False, False)[0].follow for _ in range(300))
    assert any(portfolio.choose(1000, False, True)[0].follow for _ in range(300))


@pytest.mark.parametrize(
    ("sizes", "aligns", "grain"),
    [
        ((4096, 3072), (1, 1), 1024),  # nothing is aligned: sums of sizes
        ((4096, 3072), (16, 512), 1024),  # alignments that sums keep by themselves
        ((24, 40), (16, 1), 8),  # rounding up to 16 keeps a multiple of 8
        ((30, 30, 30), (6, 20, 1), 2),  # 20 leaves multiples of 10, which 6 breaks
        ((12, 9), (4, 1), 1),
    ],
)
def test_grain_divides_every_least_height(sizes: tuple[int, ...], aligns: tuple[int, ...], grain: int) -> None:
    random = Random(1)
    for _ in range(20):
        buffers = []
        for k in range(5):
            first = random.randint(0, 3)
            which = k % len(sizes)
            lives = (Lifetime(first, first + random.randint(1, 3)),)
            buffers.append(Buffer(f"b{k}", sizes[which], lives, aligns[which]))
        problem = Problem(tuple(buffers), (Pool("m"),))
        model = Model(problem)
        assert build(model, model.items).grain == grain
        small = SmallSearch.over(model, model.items, 100_000)
        least = next(height for height in range(grain, 1 << 16, grain) if small.below(height))
        assert small.below(least - 1) is False
