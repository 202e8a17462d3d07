"""Whose turn it is, the complete or the local search."""

from __future__ import annotations

import pytest

from npu_memplan.planners.exact.least_height import PART, PATIENCE, Alternation

TRIAL = 30_000


def played(turns: Alternation, calls: int, nodes: int = 1000, gains: str = "") -> list[bool]:
    """`calls` calls of `nodes` each; calls of the search named in `gains` (local, complete) gain each time."""
    who = []
    for _ in range(calls):
        local = turns.local_is_next()
        turns.note(local, nodes, ("local" if local else "complete") == gains)
        who.append(local)
    return who


def test_a_local_search_that_gains_leads_and_the_complete_one_keeps_its_part() -> None:
    who = played(Alternation(local_leads=True, trial=TRIAL), 1000, gains="local")
    assert who.count(False) == pytest.approx(PART * 1000, abs=2)


def test_a_local_search_without_a_gain_gives_way_after_a_trial() -> None:
    turns = Alternation(local_leads=True, trial=TRIAL)
    calls = int(TRIAL / 1000 / (1 - PART))
    who = played(turns, calls)
    assert who.count(True) > 0.8 * calls
    who = played(turns, 100)
    assert who.count(False) > 0.85 * 100


def test_the_complete_search_leads_for_longer_and_then_the_local_one_has_another_trial() -> None:
    turns = Alternation(local_leads=True, trial=TRIAL)
    who = played(turns, 4 * (PATIENCE + TRIAL) // 1000)
    assert 0.6 < who.count(False) / len(who) < 0.85
    late = who[-(PATIENCE + TRIAL) // 1000 :]
    assert {True, False} <= set(late)


def test_a_gain_takes_the_lead() -> None:
    turns = Alternation(local_leads=True, trial=TRIAL)
    played(turns, 50, gains="complete")
    assert not turns.local_leads
    played(turns, 50, gains="local")
    assert turns.local_leads


def test_where_the_complete_search_begins_the_local_one_waits_until_it_is_out_of_patience() -> None:
    turns = Alternation(local_leads=False, trial=TRIAL)
    assert not any(played(turns, PATIENCE // 1000))
    assert any(played(turns, 10))
