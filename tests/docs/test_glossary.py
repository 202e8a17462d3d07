"""Headings and `--help` use terms of docs/glossary.md and plain English.

Invariant: a word of a heading or of a help text is part of a glossary term, or in `plain_words.txt`, which has common
English words, names of products and formats, and no term of this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from npu_memplan.cli import cli

REPOSITORY = Path(__file__).resolve().parents[2]
GLOSSARY = REPOSITORY / "docs" / "glossary.md"
PLAIN = Path(__file__).with_name("plain_words.txt")
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md"))]
_WORD = re.compile(r"[a-z][a-z'-]+")


def words(text: str) -> set[str]:
    """The words of a text without code spans, links and URLs; of a possessive, its noun."""
    text = re.sub(r"`[^`]*`|\]\([^)]*\)|https?://\S+", " ", text)
    return {word.strip("'-").removesuffix("'s") for word in _WORD.findall(text.lower())} - {"c"}


@cache
def terms() -> list[str]:
    """The terms of the glossary, in its order."""
    return re.findall(r"^\| ([^|]+?) \| [^|]+ \|$", GLOSSARY.read_text(encoding="utf-8"), re.M)[1:]


@cache
def known() -> frozenset[str]:
    """Words of terms, plain words, and their plurals."""
    singular = words(" ".join(terms())) | words(PLAIN.read_text(encoding="utf-8"))
    return frozenset(singular | {word + "s" for word in singular} | {word + "es" for word in singular})


def headings(page: Path) -> list[str]:
    """All headings; of the page of generated tables, those above the tables."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.findall(r"^##? (.*)$" if page.name == "time_validation.md" else r"^#+ (.*)$", text, re.M)


def helps(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """(command or option, text) of a command and all below it."""
    yield name, command.help or ""
    for option in command.params:
        if isinstance(option, click.Option):
            yield f"{name} {option.opts[0]}", option.help or ""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from helps(found, f"{name} {below}")


def test_the_glossary_is_sorted_and_each_term_has_one_sentence() -> None:
    assert len(terms()) > 90
    assert [t.lower() for t in terms()] == sorted({t.lower() for t in terms()})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(REPOSITORY).as_posix())
def test_headings_use_its_terms(page: Path) -> None:
    unknown = {heading: words(heading) - known() for heading in headings(page)}
    assert {heading: sorted(new) for heading, new in unknown.items() if new} == {}


def test_help_texts_use_its_terms() -> None:
    unknown = {name: words(text) - known() for name, text in helps(cli, "npu-memplan")}
    assert {name: sorted(new) for name, new in unknown.items() if new} == {}


def test_plain_words_are_sorted_and_needed() -> None:
    listed = PLAIN.read_text(encoding="utf-8").split()
    assert listed == sorted(set(listed))
    used = {w for page in PAGES for heading in headings(page) for w in words(heading)}
    used |= {w for _, text in helps(cli, "npu-memplan") for w in words(text)}
    unused = [w for w in listed if not used & {w, w + "s", w + "es"}]
    assert unused == [], "in no heading and no help text any more"
    assert set(listed) & words(" ".join(terms())) == set(), "in the glossary"
