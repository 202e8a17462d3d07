"""JSON Schemas of the documents that are read and written, made from the dataclasses that hold them.

Invariant: a schema is that of the type that a file is converted to, so the two cannot differ.
`python -m npu_memplan.schemas FOLDER` writes all of them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec

from .artifact.model import SCHEMA, Document
from .problem import Plan, Problem
from .problem.json import PLAN_SCHEMA, PROBLEM_SCHEMA
from .target_data import BoardFile

# By the name of the document: its type, and the value of its key "schema" (board files have none).
DOCUMENTS: dict[str, tuple[type, str]] = {
    "artifact": (Document, SCHEMA),
    "board": (BoardFile, ""),
    "plan": (Plan, PLAN_SCHEMA),
    "problem": (Problem, PROBLEM_SCHEMA),
}


def json_schema(document: str) -> str:
    """The JSON Schema (draft 2020-12) of one of `DOCUMENTS`, as text."""
    kind, name = DOCUMENTS[document]
    (top,), definitions = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    top = definitions.pop(top["$ref"].rpartition("/")[2])
    for node in [top, *definitions.values()]:
        for field in node.get("properties", {}).values():
            if field.get("uniqueItems") and "default" in field:
                field["default"].sort()  # of a set, which has no order
    if name:
        top["properties"] = {"schema": {"const": name}, **top["properties"]}
        top["required"] = ["schema", *top["required"]]
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **top, "$defs": definitions}
    return json.dumps(schema, indent=1) + "\n"


def write_schemas(folder: Path) -> None:
    """Write `<document>.json` for each of `DOCUMENTS` into `folder`, which is made."""
    folder.mkdir(parents=True, exist_ok=True)
    for document in DOCUMENTS:
        (folder / f"{document}.json").write_text(json_schema(document), encoding="utf-8")


if __name__ == "__main__":
    write_schemas(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
