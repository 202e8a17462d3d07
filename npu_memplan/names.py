"""Names for variables, functions and storages: readable, unique in one module, the same on every run.

Invariant: a name depends only on the names requested before it. A name from a file has, after `printable_text`, no
control characters, no characters that change the direction of text and no ends of lines: it can stand in a terminal, a
table, a log or a CSV file and change nothing around it.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable

_MAX_LENGTH = 48


def legal_name(wanted: str) -> str:
    """A name that is legal in Python and C: the last part of `wanted`, when that is a path or a list of fused names."""
    tail = wanted.split(";")[-1].strip("/")
    name = re.sub(r"[^0-9A-Za-z_]+", "_", tail).strip("_")
    if len(name) > _MAX_LENGTH:  # its end, from the start of a word on, as far as there is one
        name = name[-_MAX_LENGTH - 1 :]
        name = name[name.find("_") :] if "_" in name else name[1:]
    name = name.lstrip("_0123456789")
    return "tensor" if not name or keyword.iskeyword(name) else name


def c_identifier(name: str) -> str:
    """`name` as a C identifier: every other character becomes `_`, a leading digit gets one in front."""
    text = re.sub(r"[^A-Za-z0-9_]", "_", name) or "_"
    return f"_{text}" if text[0].isdigit() else text


_HEADERS = re.compile(
    "assert|complex|ctype|errno|fenv|float|inttypes|iso646|limits|locale|math|setjmp|signal|std(align|arg|atomic|bool|def"
    "|int|io|lib|noreturn)|string|tgmath|threads|time|uchar|wchar|wctype|ethosu_driver|npu_memplan_(runtime|arm_driver)",
    re.IGNORECASE,
)  # of C, of Arm's driver, and those next to a model's own
_LONGEST_MODEL = 100  # characters; file systems have 255, and functions are called after it


def model_name(wanted: str) -> str:
    """`wanted` as the name of a model in C, whose files and functions begin with it: no header of C has its name."""
    name = c_identifier(wanted)[:_LONGEST_MODEL]
    return f"{name}_" if _HEADERS.fullmatch(name) else name


_IN_C = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")


def unusable_in_c(names: Iterable[str]) -> str:
    """Why not all of `names` can be in C, in sections and in names of files; "" if they can."""
    seen: dict[str, str] = {}
    for name in names:
        if not _IN_C.fullmatch(name):
            return (
                f"{name[:_LONGEST_MODEL]!r} is not a letter and at most 63 letters, digits, '_', '.' and '-' behind it"
            )
        other = seen.setdefault(c_identifier(name).upper(), name)
        if other != name:
            return f"{other!r} and {name!r} are the same in C"
    return ""


class Names:
    """Unique names: a name that is requested again gets `_1`, `_2`, ... appended."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._next = dict.fromkeys(taken, 1)

    def unique_name(self, wanted: str) -> str:
        """`wanted` itself, or the first free `wanted_N`."""
        if wanted not in self._next:
            self._next[wanted] = 1
            return wanted
        while True:
            name = f"{wanted}_{self._next[wanted]}"
            self._next[wanted] += 1
            if name not in self._next:
                self._next[name] = 1
                return name


_STEP = re.compile(r"_step(_\d+)?$")


def node_of(variable: str) -> str:
    """The name of the node that a variable of an imported model is a step of (see `frontend/graph.py`)."""
    return _STEP.sub("", variable)


_HIDDEN = re.compile(r"[^\n\t -~]")  # what may be; most texts have none


def printable_text(text: str | bytes, keep: str = "") -> str:
    """`text` with every character that has no shape of its own (control characters, marks of direction, separators of
    lines) as Python would write it in a literal; those in `keep` stay."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escape_character(c) for c in text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, which may have tabs."""
    return printable_text(text, "\n\t") if _HIDDEN.search(text) else text


def _escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def split_names(text: str) -> tuple[str, ...]:
    """`A,B`: the names between the commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
