"""`<name>_reset`: every state as it is before the first inference of a stream.

Invariant: a program with states has this function and needs nothing else to begin anew; one without has none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from .c_array import c_array
from .interface import Interface


def declaration(interface: Interface) -> list[str]:
    if not interface.states:
        return []
    return [
        "/* States as they are before the first run: call it once, and whenever a new stream of inputs begins. */",
        f"void {interface.name}_reset(uint8_t *const pools[]);",
        "",
    ]


def definition(interface: Interface, starts: Sequence[bytes]) -> list[str]:
    """Lines of the source; `starts[i]` are the bytes of state i, nothing where it is its zero point everywhere."""
    if not interface.states:
        return []
    arrays, lines = [], []
    for index, slot in enumerate(interface.states):
        given = starts[index] if index < len(starts) else b""
        start = np.frombuffer(given or _zero(slot.dtype, slot.zero_point, slot.size_bytes), np.uint8)
        prefix = f"{interface.name.upper()}_STATE_{index}"
        place = f"pools[{prefix}_POOL] + {prefix}_OFFSET"
        if np.all(start == start[:1]):
            lines.append(f"  memset({place}, {int(start[0]):#04x}, {prefix}_BYTES);")
        else:
            name = f"{interface.name}_state_{index}_start"
            arrays.append(c_array(name, start, qualifier="static NPU_MEMPLAN_CONSTANT"))
            lines.append(f"  memcpy({place}, {name}, {prefix}_BYTES);")
    return [*arrays, f"void {interface.name}_reset(uint8_t *const pools[]) {{", *lines, "}", ""]


def includes(interface: Interface) -> list[str]:
    """What the source includes for it."""
    return ['#include "npu_memplan_runtime.h"', "", "#include <string.h>"] if interface.states else []


def _zero(dtype: str, zero_point: int, size_bytes: int) -> bytes:
    element: npt.NDArray[np.generic] = np.array([zero_point]).astype(dtype)
    return element.tobytes() * (size_bytes // element.itemsize)
