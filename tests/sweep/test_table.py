"""Fronts, the cheapest target, differences and files, on tables small enough to check by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from random import Random

import pytest

from npu_memplan.commands.sweep import report_text
from npu_memplan.sweep import Outcome, Result, Swept
from npu_memplan.sweep.case import Runs, Shortage
from npu_memplan.sweep.table import Table, cheapest_targets, compare_rows, csv_of, front, html_page, json_of

from .conftest import result

SMALL, LARGE, HOST = "ethos-u55-128", "ethos-u55-256", "none"
KEEPING = f"{SMALL} --resident inputs"
Make = Callable[..., Table]


@pytest.fixture
def table(made_table: Make) -> Table:
    """Two networks on three targets, one with an option."""
    return made_table(
        {
            ("a", SMALL): result(1000, 500_000),
            ("a", KEEPING): result(900, 600_000),
            ("a", LARGE): result(1000, 250_000, runs=2),
            ("a", HOST): result(800, None, host_operations=4),
            ("b", SMALL): result(5000, 1_000_000),
            ("b", KEEPING): Result("", Outcome.NO_ROOM, "why", shortage=Shortage("sram", 9000, 8192)),
            ("b", LARGE): result(6000, 400_000, runs=1),
            ("b", HOST): result(4000, None, host_operations=9),
        }
    )


def test_a_front_is_what_nothing_beats(table: Table) -> None:
    assert table.fronts == {"a": (HOST, KEEPING, SMALL, LARGE), "b": (HOST, SMALL, LARGE)}


def test_a_front_is_that_of_all_pairs(made_table: Make) -> None:
    random = Random(7)
    targets = [f"{name} --pool sram={n}" for name, n in product((SMALL, LARGE), range(30))]
    rows = made_table(
        {
            ("a", t): result(random.randint(1, 6), random.randint(1, 6), host_operations=random.randint(0, 2))
            for t in targets
        }
    ).rows

    def beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
        return one != other and all(x <= y for x, y in zip(one, other, strict=True))

    wanted = {row.label.target for row in rows if not any(beats(other.price, row.price) for other in rows)}
    assert {row.label.target for row in front(rows)} == wanted
    assert 1 < len(wanted) < len(rows)


def test_the_cheapest_fits_all_and_keeps_the_deadline(table: Table) -> None:
    assert [c.target for c in cheapest_targets(table)] == [HOST, SMALL, LARGE]
    assert [c.target for c in cheapest_targets(table, 2.0)] == [SMALL, LARGE], (
        "of the host alone there is no time to hold to it"
    )
    assert [c.target for c in cheapest_targets(table, 1.9)] == [LARGE]
    assert cheapest_targets(table, 0.5) == []
    first = cheapest_targets(table)[1]
    assert (first.multipliers, first.sram_bytes, first.flash_bytes, first.milliseconds) == (128, 5000, 2048, 2.0)


def test_figures_of_a_row(table: Table) -> None:
    rows = {(row.label.network, row.label.target): row for row in table.rows}
    fits, no = rows["a", LARGE], rows["b", KEEPING]
    assert (fits.sram_bytes, fits.ram_bytes, fits.flash_bytes, fits.milliseconds) == (1000, 1000, 1024, 0.5)
    assert (fits.exact, fits.exactness) == (True, "exact, 2 runs")
    assert rows["b", LARGE].exactness == "differs in 1 of 2"
    assert (no.fits, no.sram_bytes, no.ram_bytes, no.milliseconds, no.exactness) == (False, 9000, None, None, "")
    assert rows["a", HOST].milliseconds is None
    assert fits.host_milliseconds is None
    both = replace(fits, result=result(1, 100, host_cycles=5_000_000, host_clock_hz=2.5e8))
    assert (both.host_milliseconds, both.npu_milliseconds, both.milliseconds) == (20.0, 0.0002, 20.0002)
    unknown = replace(fits, result=result(1, 100, host_cycles=5_000_000))
    assert (unknown.host_milliseconds, unknown.milliseconds) == (None, None)
    both = replace(fits, result=result(1, 1, pools={"sram": 5, "dram": 7}))
    assert (both.sram_bytes, both.ram_bytes) == (5, 12)


WORSE = [
    ({"pools": {"sram": 1001}}, "sram_bytes", 1000, 1001),
    ({"pools": {"sram": 1000, "dram": 16}}, "ram_bytes", 1000, 1016),
    ({"stream_bytes": 40}, "flash_bytes", 1024, 1040),
    ({"cycles": 250_001}, "npu_cycles", 250_000, 250_001),
    ({"host_operations": 1}, "host_operations", 0, 1),
    ({"operators": {"exact": 2, "unproven": 1}}, "inexact_operators", 0, 1),
    ({"runs": Runs("local", 2, 1)}, "exact runs", "2 of 2", "1 of 2"),
    ({"outcome": Outcome.CRASHED, "reason": "by SIGSEGV"}, "outcome", "fits", "crashed"),
    ({"outcome": Outcome.NO_ROOM}, "outcome", "fits", "no room"),
]


def rows_of(table: Table) -> list[dict[str, object]]:
    return [row.values() for row in table.rows]


@pytest.mark.parametrize(("change", "what", "before", "after"), WORSE, ids=[what for _, what, _, _ in WORSE])
def test_what_is_worse_is_a_regression_and_the_other_way_it_is_none(
    change: dict[str, object], what: str, before: object, after: object, table: Table
) -> None:
    rows = list(table.rows)
    place = next(i for i, row in enumerate(rows) if (row.label.network, row.label.target) == ("a", LARGE))
    rows[place] = replace(rows[place], result=replace(rows[place].result, **change))  # type: ignore[arg-type]
    changed = Table(tuple(rows), table.versions)
    found = {one.what: one for one in compare_rows(rows_of(table), changed)}
    one = found[what]
    assert (one.network, one.target, one.before, one.after, one.worse) == ("a", LARGE, before, after, True)
    assert not any(d.worse for d in compare_rows(rows_of(changed), table))
    assert compare_rows(rows_of(table), table) == []


def test_only_the_same_model_on_the_same_target_is_compared(made_table: Make, table: Table) -> None:
    other = made_table({("a", SMALL): result(9999, 1), ("c", SMALL): result(1, 1)}, models="2")
    assert compare_rows(rows_of(table), other) == []
    waits = made_table({("a", SMALL): Result("", Outcome.NOT_TRIED)})
    assert compare_rows(rows_of(table), waits) == []


def test_the_text(table: Table, made_table: Make) -> None:
    worse = made_table({("a", SMALL): result(1100, 500_000)})
    text = report_text(Swept((), {}, 8), table, compare_rows(rows_of(worse), table), 2.0)
    assert text.splitlines()[0] == "8 cases: 7 fits, 1 no room; 8 computed now"
    assert text.splitlines()[1] == "1 NOT exact against their reference"
    assert text.splitlines()[2].startswith("results of 5 are claims, not checked: --run local")
    assert [row.exactness for row in table.rows[:3]] == ["claimed exact, not run"] * 2 + ["exact, 2 runs"]
    assert "at 2 ms" in text
    assert f"  better: a on {SMALL}: sram_bytes 1,100 -> 1,000" in text.splitlines()


def test_the_page_has_every_row_and_mark(table: Table) -> None:
    page = html_page(table, [], 2.0)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    against, fits_all, results = data["tables"]
    assert against["rows"] == []
    assert [row[0] for row in fits_all["rows"]] == [SMALL, LARGE]
    assert [row[:5] for row in results["rows"][2:6:3]] == [
        ["a", LARGE, "fits", "yes", 1000],
        ["b", KEEPING, "no room", "", 9000],
    ]
    assert results["numeric"][4:11] == [True] * 5 + [False, True]
    assert len(data["plots"][0]["marks"]) == 5, "of the host alone there is no time"


def test_files_for_other_programs_say_the_same(table: Table) -> None:
    written = list(csv.DictReader(io.StringIO(csv_of(table))))
    document = json.loads(json_of(table, None, 2.0))
    assert len(written) == len(document["results"]) == 8
    for text, values in zip(written, document["results"], strict=True):
        assert text == {name: "" if values[name] is None else str(values[name]) for name in text}
    assert document["fronts"]["b"] == [HOST, SMALL, LARGE]
    assert [c["target"] for c in document["fits_all"]] == [SMALL, LARGE]


def test_faults_and_fallbacks_stand_in_the_row(made_table: Make) -> None:
    lines = ("internal fault: native lowering: KeyError: 'x'", "Vela's stream was not taken")
    told = made_table({("a", SMALL): result(1, 1, incidents=lines), ("b", SMALL): result(1, 1, incidents=lines[1:])})
    assert report_text(Swept((), {}, 0), told).splitlines()[2] == "1 with an internal fault"
    rows = list(csv.DictReader(io.StringIO(csv_of(told))))
    assert [row["incidents"] for row in rows] == ["; ".join(lines), lines[1]]
    assert [row["incidents"] for row in json.loads(json_of(told))["results"]] == ["; ".join(lines), lines[1]]


def test_names_of_files_are_no_formulas(made_table: Make) -> None:
    text = csv_of(made_table({("=cmd()", SMALL): result(1, 1)}))
    assert text.splitlines()[1].startswith("'=cmd(),")


def test_the_benchmarks_table_is_of_a_sweep(made_table: Make) -> None:
    from benchmarks.arena_bytes import COLUMNS, table
    from npu_memplan.sweep.case import target_name

    names = [target_name(options) for options in COLUMNS.values()]
    found = {
        (net, name): result(1000 * i, 1, vela_bytes=7)
        for net in ("kws_ref_model", "own")
        for i, name in enumerate(names)
    }
    found["own", names[1]] = Result("", Outcome.REFUSED, "why")
    rows = {(row.label.network, row.label.target): row for row in made_table(found).rows}
    assert table(rows).splitlines()[2:] == [
        "| kws_ref_model | 22,080 | 7 | 0 | 1,000 | 2,000 | 3,000 |",
        "| own | - | 7 | 0 | - | 2,000 | 3,000 |",
    ]
