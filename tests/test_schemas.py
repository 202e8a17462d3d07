"""The JSON Schemas that `npu_memplan.schemas` makes: byte for byte the same each time, and true of real documents."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.problem.json import PROBLEM_SCHEMA, plan_to_json
from npu_memplan.schemas import DOCUMENTS, json_schema
from npu_memplan.target_data import board_names

TOML = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
BOARDS = Path(__file__).resolve().parent.parent / "targets" / "boards"


def misfits(value: object, schema: dict[str, Any], top: dict[str, Any], where: str = "$") -> list[str]:
    """Places where `value` has keys that the schema does not know, or lacks ones that it requires."""
    while "$ref" in schema:
        schema = top["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return min((misfits(value, option, top, where) for option in schema["anyOf"]), key=len)
    if isinstance(value, list):
        item = schema.get("items")
        return [m for i, v in enumerate(value) for m in misfits(v, item, top, f"{where}[{i}]")] if item else []
    if not isinstance(value, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    found = [f"{where}.{key} is required" for key in schema.get("required", ()) if key not in value]
    for key, inner in value.items():
        found += misfits(inner, known[key], top, f"{where}.{key}") if key in known else [f"{where}.{key} is unknown"]
    return found


def test_a_misfit_is_found() -> None:
    schema = json.loads(json_schema("problem"))
    assert "$.buffers is required" in misfits({"schema": "x"}, schema, schema)


def test_a_compiled_model_has_what_the_schemas_say(tmp_path: Path) -> None:
    model = Path(__file__).resolve().parent / "models" / "hello_world_int8.tflite"
    npu_memplan.compile(model, tmp_path / "made", check=False)
    artifact = Artifact.load(tmp_path / "made")
    documents = {
        "artifact": json.loads((tmp_path / "made" / "plan.json").read_text(encoding="utf-8")),
        "problem": {"schema": PROBLEM_SCHEMA, **msgspec.to_builtins(artifact.problem, enc_hook=str)},
        "plan": plan_to_json(artifact.plan),
    }
    for name, document in documents.items():
        schema = json.loads(json_schema(name))
        extra = {"host_operations", "estimated_cycles", "npu_macs"} if name == "artifact" else set()  # not read back
        assert [m for m in misfits(document, schema, schema) if m.split(" ")[0][2:] not in extra] == [], name


@pytest.mark.parametrize("board", board_names())
def test_a_board_file_has_what_its_schema_says(board: str) -> None:
    schema = json.loads(json_schema("board"))
    assert misfits(TOML.loads((BOARDS / f"{board}.toml").read_text(encoding="utf-8")), schema, schema) == []


def test_the_module_writes_every_schema_the_same_in_each_process(tmp_path: Path) -> None:
    for folder in (tmp_path / "one", tmp_path / "two"):
        subprocess.run([sys.executable, "-m", "npu_memplan.schemas", str(folder)], check=True)
    assert sorted(p.stem for p in (tmp_path / "one").iterdir()) == sorted(DOCUMENTS)
    for name in DOCUMENTS:
        texts = {(tmp_path / folder / f"{name}.json").read_text(encoding="utf-8") for folder in ("one", "two")}
        assert texts == {json_schema(name)}
