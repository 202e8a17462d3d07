"""Every operator of TFLite and tflite-micro: what has code for it, of which types, and against which reference.

Invariant: a cell is a row of `exactness`, which tests hold to the reference; nothing is printed twice.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...exactness import EXACT, EXACT_AS_A_WHOLE, LIBRARY, LITERT, STEP, Code, Exactness, claim

_ORDER = ("int8", "int16", "uint8", "float32", "int32", "int64", "uint32", "bool")
MARKS = {Exactness.EXACT: "", Exactness.ULPS: "~", Exactness.STEP: "±", Exactness.UNPROVEN: "?", Exactness.DIFFERS: "!"}
LEGEND = (
    "A type alone: exact against tflite-micro's reference kernels; with L: against LiteRT's; ±: within a step of the "
    "reference; ~: the reference's float operations with a function of the C library, equal with the same library. "
    "`all`: whatever types the operator has."
)


def kinds() -> tuple[str, ...]:
    """Operators with code of some kind, by name, those of TFLite first."""
    claimed = {kind for table in EXACT.values() for found in table.values() for kind in found}
    return tuple(sorted(claimed | {kind for _, kind, _ in STEP} | EXACT_AS_A_WHOLE | set(LIBRARY)))


def without_code() -> tuple[str, ...]:
    """Built-in operators of the schema that nothing here has code for."""
    import tflite

    names = {n for n, v in vars(tflite.BuiltinOperator).items() if isinstance(v, int) and not n.startswith("_")}
    names -= {"CUSTOM", "PLACEHOLDER_FOR_GREATER_OP_CODES"}
    return tuple(sorted(names - set(kinds())))


def cell(code: Code, kind: str) -> str:
    """The types for which `code` has the operator, each with its mark; empty without any."""
    if code is Code.HOST and kind in EXACT_AS_A_WHOLE:
        return "all"
    return " ".join(_types(code, kind))


def _types(code: Code, kind: str) -> Iterator[str]:
    for dtype in _ORDER:
        known = claim(code, kind, dtype)
        if known.exactness is not Exactness.UNPROVEN:
            yield dtype + MARKS[known.exactness] + ("L" if known.reference == LITERT else "")


def table() -> Iterator[tuple[str, str, str, str]]:
    """(operator, NPU lifted, NPU lowered, host) for each operator with code."""
    for kind in kinds():
        yield kind, cell(Code.LIFTED, kind), cell(Code.LOWERED, kind), cell(Code.HOST, kind)
