"""Arrays and structures as C sees them, without numpy.

Invariant: a `Struct` has the members that its C header declares; it keeps the arrays it points to alive, and refuses
one whose elements are not what C expects.
"""

from __future__ import annotations

import ctypes
import re
from array import array
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

_CODES = {"int8_t": "b", "int32_t": "i", "int64_t": "q", "uint64_t": "Q", "double": "d"}  # of `array`
_SCALARS: dict[str, Any] = {"q": ctypes.c_int64, "d": ctypes.c_double}
_SAME = {"l": "q", "L": "Q"}  # numpy's names for integers of 8 bytes


int32s: Callable[[Iterable[int]], array[int]] = partial(array, "i")  # int32_t[]: indices
int64s: Callable[[Iterable[int]], array[int]] = partial(array, "q")  # int64_t[]: bytes


def float_array(values: Iterable[float]) -> array[float]:
    """An array of C's `double`."""
    return array("d", values)


def random_state(seed: int) -> array[int]:
    """The state that `chance` of common.h begins with: one odd number of 64 bits."""
    return array("Q", [(seed * 0x9E3779B97F4A7C15 + 0x1234567) & ((1 << 64) - 1) | 1])


def array_address(values: Any, code: str) -> int | None:
    """The address of the elements of a writable buffer, which must be of type `code` (of `array`); None without any."""
    view = memoryview(values)
    kind = view.format.lstrip("<@=")
    if _SAME.get(kind, kind) != code or view.itemsize != array(code).itemsize or not view.c_contiguous:
        raise TypeError(f"C expects elements of type {code!r}, not {view.format!r}")
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else None


class Struct(ctypes.Structure):
    """A C structure of `header_structure`; `members` are type codes of `array` in C's order, `i*` an array of `i`."""

    members: ClassVar[dict[str, str]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.kept = values
        for name, value in values.items():
            code = self.members[name]
            setattr(self, name, array_address(value, code[0]) if code.endswith("*") else value)


def header_structure(header: str, name: str) -> type[Struct]:
    """The structure `name` of a header of this package; of single members only `int64_t` and `double` are known."""
    text = re.sub(r"/\*[\s\S]*?\*/", "", (Path(__file__).parent.parent / header).read_text(encoding="utf-8"))
    (body,) = re.findall(r"typedef struct \{([^{}]*)\} " + name + ";", text)
    members = {}
    for kind, declared in re.findall(r"(?:const )?(\w+) ([^;]+);", body):
        for star, member in re.findall(r"(\*?)(\w+)", declared):
            members[member] = _CODES[kind] + star
    fields = [(member, ctypes.c_void_p if code.endswith("*") else _SCALARS[code]) for member, code in members.items()]
    return type(name, (Struct,), {"members": members, "_fields_": fields})
