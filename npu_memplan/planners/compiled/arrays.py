"""Arrays and structures as C sees them, without numpy.

Invariant: a `Struct` keeps the arrays it points to alive, and refuses one whose elements are not what C expects.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Iterable
from typing import Any, ClassVar, TypeVar

_SCALARS: dict[str, Any] = {"q": ctypes.c_int64, "d": ctypes.c_double}
_BYTES = {"b": 1, "i": 4, "q": 8, "d": 8, "Q": 8}
_SAME = {"l": "q", "L": "Q"}  # numpy's names for integers of 8 bytes

_S = TypeVar("_S", bound="Struct")


def int32s(values: Iterable[int]) -> array[int]:
    """int32_t[]: indices."""
    return array("i", values)


def int64s(values: Iterable[int]) -> array[int]:
    """int64_t[]: bytes."""
    return array("q", values)


def floats(values: Iterable[float]) -> array[float]:
    """double[]."""
    return array("d", values)


def chances(seed: int) -> array[int]:
    """The state that `chance` of common.h begins with: one odd number of 64 bits."""
    return array("Q", [(seed * 0x9E3779B97F4A7C15 + 0x1234567) & ((1 << 64) - 1) | 1])


def address(values: Any, code: str) -> int | None:
    """Where the elements of a writable buffer stand, which must be of type `code` (of `array`); None without any."""
    view = memoryview(values)
    kind = view.format.lstrip("<@=")
    if _SAME.get(kind, kind) != code or view.itemsize != _BYTES[code] or not view.c_contiguous:
        raise TypeError(f"C expects elements of type {code!r}, not {view.format!r}")
    return ctypes.addressof(ctypes.c_char.from_buffer(view)) if view.nbytes else None


class Struct(ctypes.Structure):
    """A C structure. `members`, in C's order, are type codes of `array`: `q` and `d` alone, or `i*` for an array."""

    members: ClassVar[dict[str, str]] = {}

    def __init__(self, **values: Any) -> None:
        super().__init__()
        self.kept = values
        for name, value in values.items():
            code = self.members[name]
            setattr(self, name, address(value, code[0]) if code.endswith("*") else value)


def laid_out(kind: type[_S]) -> type[_S]:
    """Decorator of a `Struct`: its layout in memory."""
    kind._fields_ = [
        (name, ctypes.c_void_p if code.endswith("*") else _SCALARS[code]) for name, code in kind.members.items()
    ]
    return kind
