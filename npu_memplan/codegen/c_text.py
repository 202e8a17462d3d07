"""C text: arrays, names, comments, and the sources as data.

Invariant: an array keeps its exact bytes, is 16-byte aligned and is in the section `.rodata.npu_memplan` (the macro
NPU_MEMPLAN_CONSTANT of npu_memplan_runtime.h) unless its qualifier says otherwise. A name ends no comment, begins none,
and has no trigraph, so that compilers with all their warnings take it.

Four megabytes of weights must stay quick to write and to compile, so long arrays of int8 and uint8 are string literals:
a C compiler reads them about eight times faster than lists of numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..names import c_identifier, printable_text
from . import CodegenError

if TYPE_CHECKING:
    pass


_C = """auto break case char const continue default do double else enum extern float for goto if inline int long
register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while NULL"""
_CPP = """alignas alignof and and_eq asm bitand bitor bool catch class compl constexpr const_cast decltype delete
dynamic_cast explicit export false friend mutable namespace new noexcept not not_eq nullptr operator or or_eq private
protected public reinterpret_cast static_assert static_cast template this thread_local throw true try typeid typename
using virtual wchar_t xor xor_eq"""  # which reads headers, too
_OF_HEADERS = re.compile(r"\w+_t|[A-Z0-9]+_[A-Z0-9_]*|NAN|INFINITY|I|EOF|errno|_+[A-Z_]\w*|npu_memplan_\w*")
_RESERVED = frozenset(f"{_C} {_CPP}".split())


def member_name(name: str) -> str:
    """`name` as an identifier that may stand alone: what C or C++ has a meaning for gets `_` after it."""
    text = c_identifier(name)
    return f"{text}_" if text in _RESERVED else text


def local_name(name: str) -> str:
    """`name` as a variable of a function that uses types of <stdint.h> and macros of <math.h>."""
    text = member_name(name)
    return f"{text}_" if _OF_HEADERS.fullmatch(text) else text


def comment_text(text: str) -> str:
    """`text` as a comment may contain it."""
    text = printable_text(text).replace("/*", "/ *").replace("*/", "* /")
    return re.sub(r"\?(?=\?)", "? ", text)


_STRING_FROM_BYTES = 512
_BYTES_A_LINE = 32
_LINES = 1 << 12  # at a time
_C_TYPES = {
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "uint16": "uint16_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "int64": "int64_t",
    "uint64": "uint64_t",
    "float32": "float",
    "float64": "double",
    "bool": "bool",
}
_ESCAPES = np.array([f"\\x{value:02x}".encode() for value in range(256)])


def c_type(dtype: str) -> str:
    """C type of a numpy dtype name; `CodegenError` when C has none."""
    try:
        return _C_TYPES[dtype]
    except KeyError:
        raise CodegenError(f"no C type for elements of type {dtype}; known: {', '.join(_C_TYPES)}") from None


LONG_STRINGS = """\
/* Long constants are string literals, which compilers read fastest. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Woverlength-strings"
#endif
"""
"""What precedes the first of them."""

OPAQUE = "NPU_MEMPLAN_OPAQUE"
OPAQUE_FUNCTIONS = f"""\
/* A function whose callers know nothing of what it does. GCC 12 takes stores through pointers into one pool, which its
 * loops compute from one another, for stores through a null pointer, and leaves calls of such a function out. */
#if defined(__GNUC__) && !defined(__clang__)
#define {OPAQUE} __attribute__((noipa))
#else
#define {OPAQUE}
#endif
"""
"""What precedes the first of them."""

QUALIFIER = "NPU_MEMPLAN_CONSTANT"


def c_array(
    name: str, values: npt.NDArray[np.generic], *, hexadecimal: bool = False, qualifier: str = QUALIFIER
) -> str:
    """Definition of a constant array `name`; the shape is flattened, an empty array has one zero."""
    flat = np.ascontiguousarray(values).reshape(-1)
    kind = c_type(flat.dtype.name)
    if flat.size == 0:
        flat = np.zeros(1, flat.dtype)
    if flat.dtype in (np.int8, np.uint8) and flat.size >= _STRING_FROM_BYTES:  # no array of bool may be a string
        # One byte more than the data: the literal's own terminating NUL.
        return _string_array(f"{qualifier} {kind} {name}[{flat.size + 1}] =", flat.view(np.uint8))
    digits = 2 * flat.itemsize
    token = (lambda value: f"0x{value:0{digits}x}") if hexadecimal else _TOKENS.get(kind, lambda value: str(int(value)))
    tokens = list(map(token, flat.tolist()))
    per_line = 8 if hexadecimal or flat.itemsize >= 4 else 16
    rows = [", ".join(tokens[at : at + per_line]) for at in range(0, len(tokens), per_line)]
    body = ",\n  ".join(rows)
    return f"{qualifier} {kind} {name}[{flat.size}] = {{\n  {body}\n}};\n"


def _string_array(head: str, values: npt.NDArray[np.uint8]) -> str:
    """`head`, and `values` as string literals, one a line; numpy lays the escapes out, as there are millions, in one
    place: the text of large constants is most of the memory of a compile.
    """
    whole = len(values) // _BYTES_A_LINE
    rest = _ESCAPES[values[whole * _BYTES_A_LINE :]].tobytes()
    begin, end = head.encode(), (b'\n"%b"' % rest if rest else b"") + b";\n"
    text = np.empty(len(begin) + whole * (4 * _BYTES_A_LINE + 3) + len(end), np.uint8)
    text[: len(begin)], text[-len(end) :] = np.frombuffer(begin, np.uint8), np.frombuffer(end, np.uint8)
    lines = text[len(begin) : -len(end)].reshape(whole, -1)
    lines[:, 0] = ord("\n")
    lines[:, 1] = lines[:, -1] = ord('"')
    for first in range(0, whole, _LINES):
        part = values[first * _BYTES_A_LINE : min(first + _LINES, whole) * _BYTES_A_LINE]
        lines[first : first + _LINES, 2:-1] = _ESCAPES[part].view(np.uint8).reshape(-1, 4 * _BYTES_A_LINE)
    return str(text.data, "ascii")


def c_int64(value: int) -> str:
    """A 64-bit integer constant; the smallest one has no literal of its own."""
    return "(-9223372036854775807ll - 1)" if value == -(1 << 63) else f"{value}ll"


def c_float(value: float, suffix: str) -> str:
    """An exact C99 constant: hexadecimal, or math.h's names for what has no literal."""
    if value != value:
        return "NAN"
    if value in (float("inf"), float("-inf")):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    return re.sub(r"\.?0*p", "p", value.hex(), count=1) + suffix


# By C type; of others: the number.
_TOKENS: dict[str, Callable[[Any], str]] = {
    "float": lambda value: c_float(value, "f"),
    "double": lambda value: c_float(value, ""),
    "int64_t": c_int64,
    "uint64_t": lambda value: f"{value}ull",
    "int32_t": lambda value: "(-2147483647 - 1)" if value == -(1 << 31) else str(value),
    "uint32_t": lambda value: f"{value}u",
}
