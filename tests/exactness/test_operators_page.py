"""docs/operators.md is the table that the command prints and that the claims are; `--update-golden` writes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_memplan.frontend.tflite.description import needs
from npu_memplan.models.tflite import read_network
from npu_memplan.report.text.lists import LEGEND, operator_kinds, operator_rows, without_code
from tests.support.entry import invoke
from tests.support.operator_table import row
from tests.support.real_data import REPOSITORY, shared_folder
from tests.support.tflite_builder import ModelBuilder


def page() -> str:
    """docs/operators.md."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for kind, *cells in operator_rows():
        alike.setdefault(tuple(cells), []).append(f"`{kind}`")
    rows = "\n".join(f"| {', '.join(kinds)} | {' | '.join(cells)} |" for cells, kinds in alike.items())
    return f"""# Operators

Made by the tests (`pytest tests/exactness --update-golden`) from [`exactness.py`](../npu_memplan/exactness.py), whose
every entry is run against its reference on three generated models at least. `npu-memplan operators` prints this table,
`npu-memplan operators MODEL` what a model needs and who runs it.

{LEGEND}

| operators | NPU, lifted from Vela's streams | NPU, native lowering | host |
|---|---|---|---|
{rows}

What shapes and options each takes: [host operators](host-operators.md). `RESHAPE`, `SQUEEZE` and `EXPAND_DIMS` are no
code at all where they keep bytes.

`npu-memplan operators` lists operators without code, too. Sparse tensors are refused. Of hybrid networks (float
activations with int8 weights) the host runs [some operators](host-operators.md).
"""


def test_the_page_is_made_of_the_claims(request: pytest.FixtureRequest) -> None:
    path = REPOSITORY / "docs" / "operators.md"
    if request.config.getoption("--update-golden"):
        path.write_text(page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == page(), "run pytest tests/exactness --update-golden and review the page"


def test_a_row_says_types_references_and_distance() -> None:
    rows = {kind: cells for kind, *cells in operator_rows()}
    assert rows["MUL"] == [
        "int8 int16± uint8L", "int8 int16 uint8L", "int8 int16 uint8L float32 int32 int64L"
    ]  # fmt: skip
    assert rows["EXP"][2] == "int8L int16L float32~"
    assert rows["SignalEnergy"] == ["", "", "all"]
    assert "STABLEHLO_ADD" in without_code()
    assert not set(without_code()) & set(operator_kinds())


def test_the_command_prints_it() -> None:
    text = invoke("operators", code=None).output
    assert "ADD_N\n  host         int8 float32 int32L\n" in text
    document = json.loads(invoke("operators", "--json", code=None).output)
    assert {"operator": "ADD_N", "lifted": "", "lowered": "", "host": "int8 float32 int32L"} in document["operators"]


def mixed() -> bytes:
    b = ModelBuilder()
    x, f, g = b.tensor((1, 8), "int8", 0.1), b.tensor((1, 8), "float32"), b.tensor((1, 8), "float32")
    y, z = b.tensor((1, 8), "int8", 0.1), b.tensor((1, 8), "int8", 0.1)
    b.operator("RELU", [x], [y])
    b.operator("DEQUANTIZE", [y], [f], "DequantizeOptions", 2)
    b.operator("EXP", [f], [g], "ExpOptions")
    b.operator("ROUND", [y], [z])
    return b.made([x], [g, z]).finish()


def test_what_a_model_needs(tmp_path: Path) -> None:
    path = tmp_path / "mixed.tflite"
    path.write_bytes(mixed())
    found = invoke("operators", path, "--json", code=None)
    operators = {
        o["kind"]: (o["type"], o["runs_on"], o["host"]["exactness"]) for o in json.loads(found.output)["operators"]
    }
    assert found.exit_code == 1
    assert operators == {
        "RELU": ("int8", "NPU or host", "exact"),
        "DEQUANTIZE": ("int8", "host", "exact"),
        "EXP": ("float32", "host", "within ulps"),
        "ROUND": ("int8", "nothing", "unproven"),
    }
    text = invoke("operators", path, code=None)
    assert "ROUND int8 has no host code" in text.output


def test_every_row_of_the_exactness_tests_is_known_to_run() -> None:
    (need,) = needs(read_network(row("CONV_2D", "uint8").build()))
    assert (need.kind, need.dtype, need.count, need.runs_on, need.refused) == ("CONV_2D", "uint8", 1, "NPU or host", "")


@pytest.mark.parametrize("path", sorted(shared_folder("zoo").glob("*.tflite")), ids=lambda p: p.stem)
def test_public_networks_are_listed(path: Path) -> None:
    result = invoke("operators", path, code=None)
    assert result.exit_code in (0, 1), result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
