"""Functions that are linked from elsewhere: declared in the header, called by the host code, defined nowhere here.

Invariant: the header says of each all that its author has to know: prototype, shapes, quantisation, scratch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..vocabulary import EXTERNAL, EXTERNAL_PREFIX
from .c_array import c_type
from .c_names import comment
from .interface import Interface


@dataclass(frozen=True, slots=True)
class ExternalFunction:
    """One function: its prototype, and a line about each tensor."""

    symbol: str  # as the IR calls it
    prototype: str
    lines: tuple[str, ...]


def external_functions(primfuncs: Iterable[Any], interface: Interface) -> tuple[ExternalFunction, ...]:
    found: dict[str, ExternalFunction] = {}
    for primfunc in primfuncs:
        attributes = (primfunc.attrs or {}).get(EXTERNAL)
        if attributes is None:
            continue
        symbol = str(attributes["symbol"])
        names = [str(name) for name in attributes["parameters"]]
        kinds = [str(kind) for kind in attributes["types"]]
        arguments = (
            f"{'const ' if name.startswith('input') else ''}{c_type(kind)} *{name}"
            for name, kind in zip(names, kinds, strict=True)
        )
        prototype = f"void {renamed(symbol, interface)}({', '.join(arguments)});"
        found[symbol] = ExternalFunction(symbol, prototype, tuple(str(line) for line in attributes["tensors"]))
    return tuple(found.values())


def renamed(text: str, interface: Interface) -> str:
    """`text` with external functions called after the model."""
    return text.replace(EXTERNAL_PREFIX, f"{interface.name}_external_")


def declarations(functions: Iterable[ExternalFunction]) -> list[str]:
    lines: list[str] = []
    for function in functions:
        comments = (comment(line) for line in function.lines)
        lines += ["/* External: bring it along. It writes its outputs and its scratch, nothing else.", *comments]
        lines[-1] += " */"
        lines += [function.prototype, ""]
    return lines
