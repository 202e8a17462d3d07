"""Distances at which an output may trail through its input, against every distance tried."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from npu_memplan.ethosu.program.overlap import NOTHING, Span, span_distances

OLD, NEW = 40, 32  # bytes of the dying and of the new buffer


@dataclass(frozen=True)
class Use:
    """What one operation does with a dying buffer and with the one that is born meanwhile."""

    reads: Span | None  # of the dying buffer
    writes: Span | None  # of the new one
    in_place: int | None = None  # distance at which it may write over what it reads itself


def distances(uses: Sequence[Use], old_bytes: int, new_bytes: int) -> tuple[int | None, int | None] | None:
    """`span_distances` of operations in program order."""
    agreed = {use.in_place for use in uses if use.writes}
    reads, writes = (np.array([span or NOTHING for span in spans], np.int64)
                     for spans in ([use.reads for use in uses], [use.writes for use in uses]))  # fmt: skip
    return span_distances(reads, writes, agreed.pop() if len(agreed) == 1 else None, old_bytes, new_bytes)


def _random_uses(rng: random.Random) -> list[Use]:
    def span(size: int) -> Span:
        start = rng.randrange(size)
        return start, rng.randint(start + 1, size)

    uses = [Use(span(OLD) if rng.random() < 0.7 else None, span(NEW))]
    uses += [
        Use(span(OLD) if rng.random() < 0.7 else None, span(NEW) if rng.random() < 0.7 else None)
        for _ in range(rng.randrange(4))
    ]
    return [*uses, Use(span(OLD), None)]


def _rows(upwards: bool) -> list[Use]:
    """Eight stripes of 4 bytes, each made of 4 bytes and the 2 behind them in the order of work."""
    down = [Use((4 * i, min(4 * i + 6, OLD)), (4 * i, 4 * i + 4)) for i in range(8)]
    turned = [Use((OLD - u.reads[1], OLD - u.reads[0]), (NEW - u.writes[1], NEW - u.writes[0]))
              for u in down if u.reads and u.writes]  # fmt: skip
    return turned if upwards else down


def _safe(uses: list[Use], distance: int) -> bool:
    """No operation writes what it or a later one reads."""
    return not any(
        earlier.writes and later.reads
        and earlier.writes[0] + distance < later.reads[1] and later.reads[0] < earlier.writes[1] + distance
        for i, earlier in enumerate(uses)
        for later in uses[i:]
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(200))
def test_what_is_allowed_is_safe_and_one_byte_closer_is_not(seed: int) -> None:
    uses = _random_uses(random.Random(seed))
    found = distances(uses, OLD, NEW)
    if found is None:
        return
    lowest, highest = found
    allowed = range(-100 if lowest is None else lowest, 100 if highest is None else highest + 1)
    assert all(_safe(uses, distance) for distance in allowed)
    assert not _safe(uses, allowed.start - 1 if highest is None else allowed.stop)


@pytest.mark.parametrize("upwards", [False, True])
def test_stripes_trail_in_their_direction(upwards: bool) -> None:
    assert distances(_rows(upwards), OLD, NEW) == ((OLD - NEW + 4, None) if upwards else (None, -4))


def test_in_place_is_one_distance_and_only_where_all_agree() -> None:
    halves = [Use((0, 16), (0, 16), 0), Use((16, 32), (16, 32), 0)]
    assert distances(halves, NEW, NEW) == (0, 0)
    assert distances([halves[0], Use((16, 32), (16, 32), None)], NEW, NEW) == (None, -16)
    assert distances([*halves, Use((0, 4), None)], NEW, NEW) is None  # the first bytes are read once more


def test_every_distance_is_allowed_once_all_is_read() -> None:
    """An operation of a group may be the first that writes, and none behind it read."""
    assert distances([Use((0, OLD), None), Use(None, (0, NEW))], OLD, NEW) == (None, OLD)
