"""`npu-memplan run --layers`: a table of operators, the first that differs, and the tensors where they are requested.

Invariant: exit code 0 when no visible operator differs and the outputs are right, else 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from npu_memplan.models.folding import folded
from npu_memplan.models.tflite import read_network
from npu_memplan.sizes import counted

from ..base import RunnerError, RunOptions
from ..host.runner import LocalRunner
from ..references.disagreement import describe_disagreements, find_disagreements
from ..references.tflite import TFLiteReference
from ..result import Array, compare
from .compare import LayerComparison
from .operator_result import OperatorResult, Verdict
from .record import recorded_run


def run_layers(
    directory: Path, options: RunOptions, inputs: Sequence[Array], model: object, dump: Path | None, as_json: bool
) -> None:
    """Run the artifact once on the host and print every operator; `dump`: a folder that gets the tensors."""
    if not isinstance(model, TFLiteReference):
        raise RunnerError("--layers compares with the tensors of a .tflite: give --reference MODEL.tflite")
    runner = LocalRunner(directory, replace(options, pools_after=False))
    ran, written = recorded_run(runner, inputs)
    expected = model.run(inputs)
    compiled = read_network(folded(model.model), model.name)  # operators as the compiler counted them
    comparison = LayerComparison(compiled, model.layers(inputs), written, ran.outputs)
    names = [slot.name for slot in runner.artifact.outputs]
    result = compare("local", names, ran.outputs, expected)
    if dump is not None:
        _dump(dump, comparison)
    rows, first = comparison.operators(), comparison.first()
    disagreement = describe_disagreements(find_disagreements(model, inputs, expected))
    if as_json:
        click.echo(json.dumps({
            "model": runner.artifact.name, "bit_exact": result.bit_exact, "reference": model.what,
            "first_that_differs": None if first is None else _row(first), "operators": [_row(row) for row in rows],
            **({"references_disagree": disagreement} if disagreement else {}),
        }))  # fmt: skip
    else:
        click.echo("\n".join(_lines(runner.artifact.name, rows, first, result.bit_exact, model.what)))
        if disagreement:
            click.echo(f"note: {disagreement}")
    if first is not None or not result.bit_exact:
        raise click.exceptions.Exit(1)


def _row(row: OperatorResult) -> dict[str, Any]:
    return {
        "operator": row.index, "name": row.name, "kind": row.kind, "verdict": row.verdict.value,
        "elements": row.elements, "mismatches": row.mismatches, "max_abs_diff": row.max_abs_diff, "where": row.where,
    }  # fmt: skip


def _lines(
    name: str, rows: Sequence[OperatorResult], first: OperatorResult | None, right: bool, reference: str
) -> list[str]:
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    summary = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    if first is not None:
        verdict = f"the first operator that differs is {first.index} {first.kind} {first.name!r}, by {first.where}"
    elif right:
        verdict = f"bit-exact against {reference}"
    else:
        verdict = "outputs differ, in operators that are not visible"
    lines = [f"{name}: {verdict}", f"{counted(len(rows), 'operator')}: {summary}"]
    for row in rows:
        numbers = f"{row.elements:>10,}" if row.elements else " " * 10
        wrong = f"  {row.mismatches:,} wrong, by {row.max_abs_diff:g} at most" if row.mismatches else ""
        lines.append(f"{row.index:>4}  {row.kind:24.24}  {row.verdict.value:11}  {numbers}  {row.name:.48}{wrong}")
    return lines


def _dump(folder: Path, comparison: LayerComparison) -> None:
    """Each tensor that was seen whole as `<index>_<name>.npy`, and the reference's next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, name, made, expected in comparison.tensors():
        stem = f"{index:03}_{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:80]}"
        np.save(folder / f"{stem}.npy", made)
        np.save(folder / f"{stem}.reference.npy", expected)
