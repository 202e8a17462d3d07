"""What the site makes of the pages: a start page, titles, a page a board; all of it says what stands elsewhere."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from npu_memplan.target_data import board_names, load_board

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def site() -> Any:
    spec = importlib.util.spec_from_file_location("site_hooks", DOCS / "hooks" / "site.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_start_page_leads_to_pages_that_are_there(site: Any) -> None:
    text = site.start_page((DOCS / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [link for link in links if not (DOCS / link).exists()] == []
    assert text.startswith("# npu_memplan\n")
    assert "images/report-mobilenet.png" in links
    assert re.findall(r"\[([\w/-]+\.md)\]", text) == [], "titles, not file names"


@pytest.mark.parametrize("name", board_names())
def test_a_board_has_a_page(site: Any, name: str) -> None:
    board, text = load_board(name), site.board_page(load_board(name))
    assert text.startswith(f"# {name}\n")
    for memory in board.memories:
        assert f"{memory.name:8} {memory.base:#010x}" in text
    for remark in (*board.sources, *board.unknown):
        assert remark in text
    table = (DOCS / "boards.md").read_text(encoding="utf-8").splitlines()
    heads = next(line for line in table if line.startswith("| network")).split("|")
    (kws,) = (line.split("|") for line in table if line.startswith("| kws_ref_model "))
    assert f"| kws_ref_model | {kws[heads.index(f' {name} ')].strip()} |" in text
    (row,) = (line for line in site.by_board("\n".join(table)).splitlines() if f"[{name}](boards/{name}.md)" in line)
    assert row.count("|") == len([line for line in table if line.startswith("|")])  # board, networks
    assert row.split("|")[5].strip() == kws[heads.index(f" {name} ")].strip()


def pages_of(part: Any) -> Iterator[str]:
    """The pages of a part of the navigation; every name has a page or a list."""
    if isinstance(part, str):
        yield part
        return
    for entry in part:
        ((_, below),) = entry.items()
        assert below
        yield from pages_of(below)


def test_the_table_of_boards_says_what_a_column_is(site: Any) -> None:
    text = site.by_board((DOCS / "boards.md").read_text(encoding="utf-8"))
    assert "A column is `npu-memplan compile" in text
    assert "on its side" not in text


def test_the_page_of_python_has_whole_docstrings(site: Any) -> None:
    text = site.whole_docstrings((DOCS / "api.md").read_text(encoding="utf-8"))
    assert "\n::: npu_memplan.compile\n\n::: npu_memplan.explore\n" in text
    assert "\n- `" not in text


def test_light_and_dark_can_be_chosen() -> None:
    """Without a toggle Material ignores what the reader's system prefers."""
    text = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    palettes = yaml.safe_load(text)["theme"]["palette"]
    assert [(p["scheme"], "toggle" in p) for p in palettes] == [("default", True), ("slate", True)]


def test_every_page_is_in_the_navigation() -> None:
    text = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    named = set(pages_of(yaml.safe_load(text)["nav"]))
    assert {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")} == named
