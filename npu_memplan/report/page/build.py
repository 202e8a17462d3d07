"""The frame that all pages have: head, heading, sections, light and dark, footer.

Invariant: a page is one file that fetches nothing (its Content-Security-Policy forbids it); texts that come from a
model or a file are escaped by the caller, data here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from importlib import metadata, resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Page:
    """What differs from page to page. All but `title` is HTML."""

    title: str  # of the window, plain text
    heading: str
    subtitle: str
    body: str
    footer: str  # after what made it
    sections: tuple[tuple[str, str], ...] = ()  # (id, label) of what the head links to
    styles: tuple[str, ...] = ()  # assets in addition to style.css
    scripts: tuple[str, ...] = ()  # assets that read `data`
    data: Mapping[str, Any] = field(default_factory=dict)

    def html(self) -> str:
        """The text of the page."""
        links = "".join(f'<a href="#{name}" id="to-{name}">{label}</a>' for name, label in self.sections)
        parts = {
            "@TITLE@": escape(self.title),
            "@STYLE@": "\n".join(map(asset, ("style.css", *self.styles))),
            "@HEADING@": self.heading,
            "@SUBTITLE@": self.subtitle,
            "@NAVIGATION@": links,
            "@BODY@": self.body,
            "@FOOTER@": f"Made by npu-memplan {metadata.version('npu_memplan')}. {self.footer}",
            "@DATA@": data_text(self.data),
            "@SCRIPT@": "\n".join(map(asset, ("theme.js", *self.scripts))),
        }
        return re.sub("|".join(parts), lambda found: parts[found[0]], asset("page.html"))


def data_text(data: Mapping[str, Any]) -> str:
    """The data of a page; "<" is escaped so that no name in the model or of a file can close the script element."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def asset(name: str) -> str:
    """The text of a file that the pages are made of."""
    return resources.files(__package__).joinpath("assets").joinpath(name).read_text(encoding="utf-8")
