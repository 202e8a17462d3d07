"""What the words of a command line are read as: paths, names between commas, sizes by name.

Invariant: a value is read where its option is declared, so that a command is given what it works with.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from ..sizes import parse_named_size

PLACE = click.Path(path_type=Path)
FILE = click.Path(path_type=Path, dir_okay=False)
FOLDER = click.Path(path_type=Path, file_okay=False)


class RunnerName(click.Choice[str]):
    """One of the runners by name; `host`, the former name of `local`, is taken as well."""

    def __init__(self, *runners: str) -> None:
        super().__init__(runners)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert("local" if value == "host" else value, param, ctx)


def names(text: str) -> tuple[str, ...]:
    """`A,B`: the names between the commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def several(_: click.Context, parameter: click.Parameter, texts: Iterable[str]) -> str:
    """Callback of a list of names that may be given more than once: one text with commas between them all."""
    return ",".join(names(",".join(texts)))


def name_and_size(text: str) -> tuple[str, int | None]:
    """`NAME=SIZE`, or `NAME` without a size."""
    return parse_named_size(text) if "=" in text else (text, None)


def by_name(_: click.Context, __: click.Parameter, pairs: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """Callback of an option that is given once a name: the last size of a name counts."""
    return dict(pairs)
