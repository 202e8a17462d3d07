"""Figures, text and files, on tables small enough to check by hand."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from npu_memplan.commands.sweep import report_text
from npu_memplan.sweep import Outcome, Result, Swept
from npu_memplan.sweep.case import Shortage
from npu_memplan.sweep.table import Table, csv_of, html_page, json_of

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
    assert both.range_milliseconds == (20.0002, 20.0002)
    wide = replace(both, result=replace(both.result, host_cycles=2_500_000, least_cycles=50, most_cycles=1_000_000))
    assert (wide.milliseconds, wide.range_milliseconds) == (10.0002, (10.0001, 12.0))
    assert (both.range_text, wide.range_text, no.range_text) == ("20.000", "10.000 to 12.000", "-")
    unknown = replace(fits, result=result(1, 100, host_cycles=5_000_000))
    assert (unknown.host_milliseconds, unknown.milliseconds) == (None, None)
    both = replace(fits, result=result(1, 1, pools={"sram": 5, "dram": 7}))
    assert (both.sram_bytes, both.ram_bytes) == (5, 12)


def test_the_text(table: Table) -> None:
    text = report_text(Swept((), {}, 8), table)
    assert text.splitlines()[0] == "8 cases: 7 fits, 1 no room; 8 computed now"
    assert text.splitlines()[1] == "1 NOT exact against their reference"
    assert text.splitlines()[2].startswith("results of 5 are claims, not checked: --run local")
    assert [row.exactness for row in table.rows[:3]] == ["claimed exact, not run"] * 2 + ["exact, 2 runs"]


def test_the_page_has_every_row_and_mark(table: Table) -> None:
    page = html_page(table)
    data = json.loads(re.search(r'id="data">(.*?)</script>', page, re.DOTALL)[1])  # type: ignore[index]
    (results,) = data["tables"]
    assert [row[:4] for row in results["rows"][2:6:3]] == [["a", LARGE, "fits", 1000], ["b", KEEPING, "no room", 9000]]
    assert results["numeric"][3:11] == [True] * 5 + [False, False, True]
    assert len(data["plots"][0]["marks"]) == 5, "of the host alone there is no time"


def test_files_for_other_programs_say_the_same(table: Table) -> None:
    written = list(csv.DictReader(io.StringIO(csv_of(table))))
    document = json.loads(json_of(table))
    assert len(written) == len(document["results"]) == 8
    for text, values in zip(written, document["results"], strict=True):
        assert text == {name: "" if values[name] is None else str(values[name]) for name in text}
    assert (document["networks"], document["targets"]) == (["a", "b"], [SMALL, KEEPING, LARGE, HOST])


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
