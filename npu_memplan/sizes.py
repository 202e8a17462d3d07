"""Byte counts as text, read and written, and texts of other numbers.

Invariant: KiB are rounded for reading, so that `parse_size` of such a text may be another number; exact bytes always
stand next to them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection

from .errors import NpuMemplanError

_UNITS = {
    "": 1,
    "b": 1,
    "kib": 1024,
    "k": 1024,
    "kb": 1000,
    "mib": 1024**2,
    "m": 1024**2,
    "mb": 1000**2,
    "gib": 1024**3,
}
_TOO_LARGE = 1 << 53  # bytes: beyond it floats are not exact


class SizeError(NpuMemplanError):
    """A size on the command line cannot be read."""


def difference_text(ours: float, theirs: float) -> str:
    """The difference of `ours` from `theirs`: `"-2.7 %"`, `"the same"`; `-` when nothing is to be compared."""
    return "the same" if ours == theirs else f"{100 * (ours / theirs - 1):+.1f} %" if theirs else "-"


def count_text(count: int, noun: str) -> str:
    """A count with its noun: `"1 host call"`, `"1,024 host calls"`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def milliseconds_text(times: Collection[float]) -> str:
    """The least and the most of `times` as text: `0.093 to 0.104 ms`."""
    least, most = (f"{end(times):.3f}" for end in (min, max))
    return f"{least} ms" if least == most else f"{least} to {most} ms"


def parse_size(text: str) -> int:
    """The bytes of `"96KiB"`, `"0.5MiB"` or `"98304"`; kB and MB are decimal. `SizeError` for other texts."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise SizeError(f"cannot read the size {text!r}; write bytes or a unit, e.g. 98304, 96KiB or 1.5MiB")
    size = float(match[1]) * _UNITS[match[2].lower()]
    if size >= _TOO_LARGE:
        raise SizeError(f"the size {text[:40]!r} is {_TOO_LARGE:,} bytes or more: no memory has as many")
    if size != int(size):
        raise SizeError(f"the size {text!r} is {size} bytes: not a whole number")
    return int(size)


def parse_named_size(text: str) -> tuple[str, int]:
    """The name and the bytes of a text: `"sram=96KiB"` is `("sram", 98304)`."""
    name, equals, size = text.partition("=")
    if not equals or not name.strip():
        raise SizeError(f"cannot read the pool {text!r}; write NAME=SIZE, e.g. sram=96KiB")
    return name.strip(), parse_size(size)


def format_size(size_bytes: int) -> str:
    """Bytes with their KiB or MiB: `15.63 KiB (16000 bytes)`."""
    if size_bytes < 1024:
        return f"{size_bytes} bytes"
    unit, scale = ("MiB", 1024**2) if size_bytes >= 1024**2 else ("KiB", 1024)
    return f"{size_bytes / scale:.2f} {unit} ({size_bytes} bytes)"


def kib_text(size_bytes: float) -> str:
    """Bytes as KiB with two decimals, e.g. `54.00 KiB`."""
    return f"{size_bytes / 1024:,.2f} KiB"


def bytes_and_kib(size_bytes: int) -> str:
    """Bytes in both units, e.g. `55,296 bytes (54.00 KiB)`."""
    return f"{size_bytes:,} bytes ({kib_text(size_bytes)})"


def percent_text(part: float, whole: float) -> str:
    """`part` of `whole` as a percentage with one decimal; `-` when there is no whole."""
    return f"{100 * part / whole:.1f} %" if whole and math.isfinite(part) else "-"
