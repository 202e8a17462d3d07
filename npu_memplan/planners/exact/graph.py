"""Sections as the compiled searches see them.

Invariant: `Graph` has the members of `Graph` in fill.h, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate, chain
from typing import ClassVar

from ..compiled import Struct, int32s, int64s, laid_out
from .sections import Sections


@laid_out
class Graph(Struct):
    """`Graph` of fill.h."""

    members: ClassVar[dict[str, str]] = {
        "items": "q",
        "sections": "q",
        "size": "q*",
        "align": "q*",
        "cover_at": "i*",
        "cover": "i*",
        "member_at": "i*",
        "member": "i*",
        "twin": "i*",
    }


def starts(lengths: Iterable[int]) -> list[int]:
    """Where each of some lists begins when they are joined, and where the last one ends."""
    return list(accumulate(lengths, initial=0))


def graph_of(sections: Sections) -> Graph:
    """The arrays of `sections`."""
    return Graph(
        items=len(sections.sizes),
        sections=len(sections.members),
        size=int64s(sections.sizes),
        align=int64s(sections.aligns),
        cover_at=int32s(starts(map(len, sections.covers))),
        cover=int32s(chain.from_iterable(sections.covers)),
        member_at=int32s(starts(map(len, sections.members))),
        member=int32s(chain.from_iterable(sections.members)),
        twin=int32s(_twins(sections)),
    )


def _twins(sections: Sections) -> Iterable[int]:
    """For each item the last equal one before it, -1 where there is none."""
    last: dict[tuple[object, ...], int] = {}
    for k, kind in enumerate(zip(sections.sizes, sections.aligns, map(tuple, sections.covers), strict=True)):
        yield last.get(kind, -1)
        last[kind] = k
