"""JSON from files, held to the types that it becomes; the same types give the published schemas.

Invariant: what `from_values` returns has the types and ranges that its class declares, whatever the text was: NaN, lone
surrogates, numbers of 5,000 digits and endless nesting included. Everything else is one error of the caller's kind
that names the file, the place in it, what stands there and what may. `schemas` makes JSON Schemas of these types.
"""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec

from ..errors import NpuMemplanError
from ..names import printable_text

T = TypeVar("T")
_MAY_HIDE = re.compile(r"\\[bfnrtu]|[^\x09\x0a\x0d -~]")  # in the text of a document; most have none


def json_values(text: str, where: str, error: type[NpuMemplanError]) -> object:
    """`text` as dicts, lists, strings and numbers; `error` when it is not JSON."""
    try:
        values = msgspec.json.decode(text)
    except UnicodeEncodeError as reason:
        raise error(f"{where}: not JSON: {reason.reason} at character {reason.start}") from None
    except (msgspec.DecodeError, RecursionError) as reason:
        raise error(f"{where}: not JSON: {reason}") from None
    if _MAY_HIDE.search(text):
        _check_printable(values, where, error)
    return values


def _check_printable(value: object, where: str, error: type[NpuMemplanError], keep: str = "") -> None:
    """`error` names the first text with characters that a terminal obeys or hides; notes have several lines."""
    if isinstance(value, dict):
        for key, one in value.items():
            _check_printable(key, where, error)
            _check_printable(one, where, error, "\n" if key == "notes" else keep)
    elif isinstance(value, list):
        for one in value:
            _check_printable(one, where, error, keep)
    elif isinstance(value, str) and not value.isprintable() and printable_text(value, keep) != value:
        raise error(
            f"{_place_prefix(where)}the text {_short_value(value)} has characters that a terminal obeys or hides; "
            "leave them out"
        )


def check_schema(value: object, wanted: str, where: str, error: type[NpuMemplanError]) -> None:
    """`error` unless the document says that it is a `wanted`."""
    found = value.get("schema") if isinstance(value, dict) else None
    if found is None:
        raise error(f"{_place_prefix(where)}the document has no 'schema'; this version reads {wanted!r}")
    if found != wanted:
        raise error(
            f"{_place_prefix(where)}the document has schema {_short_value(found)}; this version reads {wanted!r}"
        )


def from_values(value: object, kind: type[T], where: str, error: type[NpuMemplanError]) -> T:
    """`value` (see `json_values`) as a `kind`; `error` names the first thing that does not fit."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as reason:
        message, _, path = str(reason).rpartition(" - at `$")
        message, path = (message, path.rstrip("`").lstrip(".")) if message else (str(reason), "")
        found, schema = _value_at(value, path, msgspec.json.schema(kind))
        allowed = f"; give one of {', '.join(map(repr, schema['enum']))}" if "enum" in schema else ""
        if "unknown field" in message and (known := schema.get("properties")):
            allowed = f"; it may have {', '.join(known)}"
        place = path or "the document"
        raise error(
            f"{_place_prefix(where)}{place} is {_short_value(found)}: {message[:1].lower()}{message[1:]}{allowed}"
        ) from None


def _place_prefix(where: str) -> str:
    return f"{where}: " if where else ""


def _short_value(value: object) -> str:
    try:
        shown = str(value)[:200] if isinstance(value, str) else repr(value)[:200]
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return repr(shown) if isinstance(value, str) else shown


def _value_at(value: Any, path: str, schema: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """The value at `path` of `value`, and its schema as far as that can be followed."""
    definitions, node = schema.get("$defs", {}), schema
    for key, index in re.findall(r"([^.\[\]]+)(?=[.\[]|$)|\[(\d+|\.\.\.)\]", path):
        node = _resolve_reference(node, definitions)
        if index == "...":  # of a mapping: it does not say which
            return value, {}
        value = value[int(index)] if index else value[key]
        node = node.get("properties", {}).get(key, {}) if key else node.get("items") or {}
    return value, _resolve_reference(node, definitions)


def _resolve_reference(node: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(node, dict):
        return {}
    return definitions[node["$ref"].rpartition("/")[2]] if "$ref" in node else node
