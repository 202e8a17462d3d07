"""Texts of others in C: as identifiers, and in comments.

Invariant: a name ends no comment, begins none, and has no trigraph, so that compilers with all their warnings take it.
"""

from __future__ import annotations

import re

from ..names import identifier, printable

_C = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while NULL"""
_CPP = """alignas alignof and and_eq asm bitand bitor bool catch class compl constexpr const_cast decltype delete
dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public reinterpret_cast static_assert static_cast template this thread_local throw true try typeid typename
using virtual wchar_t xor xor_eq"""  # which reads headers, too
_OF_HEADERS = re.compile(r"\w+_t|[A-Z0-9]+_[A-Z0-9_]*|NAN|INFINITY|I|EOF|errno|_+[A-Z_]\w*|npu_memplan_\w*")
_RESERVED = frozenset(f"{_C} {_CPP}".split())


def member(name: str) -> str:
    """`name` as an identifier that may stand alone: what C or C++ has a meaning for gets `_` after it."""
    text = identifier(name)
    return f"{text}_" if text in _RESERVED else text


def local(name: str) -> str:
    """`name` as a variable of a function that uses types of <stdint.h> and macros of <math.h>."""
    text = member(name)
    return f"{text}_" if _OF_HEADERS.fullmatch(text) else text


def comment(text: str) -> str:
    """`text` as a comment may contain it."""
    text = printable(text).replace("/*", "/ *").replace("*/", "* /")
    return re.sub(r"\?(?=\?)", "? ", text)
