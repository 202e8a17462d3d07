"""Which orders of filling are tried: learning, chance for all, and steps that no height can fall between."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from npu_memplan.planners.exact import FOLLOWING, NOISES, OPEN, ORDERS, Portfolio, build
from npu_memplan.planners.general import SmallSearch
from npu_memplan.planners.model import Model
from npu_memplan.problem import Buffer, Lifetime, Pool, Problem


def learned(best: int, tight: bool, portfolio: Portfolio) -> None:
    """Every order was tried with every chance; the one at `best` got furthest, with the second chance."""
    for k, order in enumerate(ORDERS):
        for noise in NOISES:
            portfolio.learn(order, tight, noise, 0.5 + 0.2 * (k == best) + 0.2 * (k == best and noise == NOISES[1]))


def test_every_order_is_tried_in_turn_while_the_promising_ones_come_again() -> None:
    portfolio = Portfolio(Random(0))
    first: list[object] = []
    again = 0
    for _ in range(4 * len(ORDERS)):
        order, noise = portfolio.choose(False, False)
        if order in first:
            again += 1
        else:
            first.append(order)
        portfolio.learn(order, False, noise, 0.9 if order == ORDERS[2] else 0.5)
        if len(first) == len(ORDERS):
            break
    assert tuple(first) == ORDERS
    assert len(ORDERS) * 0.5 < again < len(ORDERS) * 2
    assert len(set(ORDERS + FOLLOWING)) == len(ORDERS) + len(FOLLOWING)


def test_the_order_and_the_chance_that_got_furthest_come_most_but_not_only() -> None:
    portfolio = Portfolio(Random(0))
    learned(7, False, portfolio)
    learned(11, True, portfolio)
    for tight, best in ((False, 7), (True, 11)):
        chosen = [portfolio.choose(tight, False) for _ in range(3000)]
        counts = Counter(order for order, _ in chosen)
        assert counts.most_common(1)[0][0] == ORDERS[best]
        assert Counter(noise for order, noise in chosen if order == ORDERS[best]).most_common(1)[0][0] == NOISES[1]
        assert set(counts) == set(ORDERS)
        assert sum(counts.values()) - counts[ORDERS[best]] > OPEN * 1000


def test_only_with_a_best_placement_is_one_followed() -> None:
    portfolio = Portfolio(Random(0))
    learned(3, False, portfolio)
    assert not any(portfolio.choose(False, False)[0].follow for _ in range(300))
    assert any(portfolio.choose(False, True)[0].follow for _ in range(300))


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
