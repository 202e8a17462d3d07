"""Orders of filling sections, and which to try next: those that got furthest on this problem so far.

Invariant: the choice depends on the seed and on what was learned only; every order keeps a
chance, so no placement and no proof is out of reach.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random


@dataclass(frozen=True, slots=True)
class Order:
    """Which section is filled next, and which of its items is tried first.

    An item's score is `duration * log(sections it covers) + size * log(bytes)`, high ones first; with
    `follow` items come as they are in the best placement so far, lowest first.
    """

    rule: int  # of `section_key` in choices.c
    duration: float = 0.0
    size: float = 0.0
    follow: bool = False


def _order(rule: int, size: float) -> Order:
    """The order whose weights are in the ratio 1 to `size`, as a vector of length 1."""
    length = (1.0 + size * size) ** 0.5
    return Order(rule, 1.0 / length, size / length)


RULES = (1, 5, 4, 3, 0, 2)  # of `section_key`, the most useful first
# what settles most instances within a few hundred choices: at heights known to be possible, and a little above a bound
TIGHT = (_order(2, 0.0), _order(4, 0.0), _order(2, -0.5))
LOOSE = (_order(4, 2.0), _order(0, 0.3), _order(3, 0.3))
ORDERS = tuple(_order(rule, size) for size in (4.0, 1.0, 0.6, 2.0, 64.0, 0.3, 0.0, -0.5) for rule in RULES)
FOLLOWING = tuple(Order(rule, follow=True) for rule in RULES)
NOISES = (0.1, 0.3, 0.6)  # amplitudes of chance added to scores; with little chance, the same nogoods are met again
ENTRANTS = 24  # orders and amplitudes drawn, of which the best so far is taken
EXPLORE = 0.5  # share of tries for an order not yet tried, while there is one
OPEN = 0.2  # later, share of tries in which any order may come
ANY = -1.0  # stands for all amplitudes together


@dataclass(slots=True)
class Portfolio:
    """What is known of each order: how far it got, at the bound and above it apart, and with which chance."""

    random: Random
    reached: dict[tuple[Order, bool, float], float] = field(default_factory=dict)  # largest share of items placed

    def choose(self, tight: bool, follow: bool) -> tuple[Order, float]:
        """The order to try and the amplitude of chance.

        `tight`: the height aimed at is the bound. `follow`: there is a best placement to be followed.
        """
        orders = ORDERS + FOLLOWING if follow else ORDERS
        noise = self.random.choice(NOISES)
        tried = [order for order in orders if (order, tight, ANY) in self.reached]
        if len(tried) < len(orders):
            if not tried or self.random.random() < EXPLORE:
                return next(order for order in orders if (order, tight, ANY) not in self.reached), noise
        elif self.random.random() < OPEN:
            return self.random.choice(orders), noise
        entrants = [(self.random.choice(tried), self.random.choice(NOISES)) for _ in range(ENTRANTS)]
        known = self.reached  # with this chance if that was tried
        return max(entrants, key=lambda of: known.get((of[0], tight, of[1]), known[of[0], tight, ANY]))

    def learn(self, order: Order, tight: bool, noise: float, reached: float) -> None:
        """`order` placed at most this share of the items at once."""
        for key in ((order, tight, noise), (order, tight, ANY)):
            self.reached[key] = max(self.reached.get(key, 0.0), reached)
