"""No figure is compared with Vela's own where operators were kept from Vela: its user does not get that program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npu_memplan.commands.compile import summary
from npu_memplan.compiler import model_loader, plan_model
from npu_memplan.options import CompileOptions
from npu_memplan.report.files import summary_csv
from npu_memplan.report.text.first_screen import first_screen
from npu_memplan.report.text.memory_txt import memory_text
from npu_memplan.tuning.pareto import explore
from npu_memplan.vela_tflite.emit import _lines, emit
from tests.support.tflite_builder import ModelBuilder


def sum_of_layers(bias: int) -> bytes:
    """Two FULLY_CONNECTED of equal weights, whose biases differ by `bias`, and their sum. Vela takes one bias for
    both; the NPU has the ADD either way.
    """
    b, rng = ModelBuilder(), np.random.default_rng(7)
    x, rows = b.tensor((1, 8), "int8", 0.05, 3), rng.integers(-127, 128, (8, 8), np.int8)
    made = []
    for extra in (0, bias):
        y = b.tensor((1, 8), "int8", 0.9, 1)
        inputs = [x, b.constant(rows, 0.01), b.constant(np.full(8, extra, np.int32), 0.0005)]
        b.operator("FULLY_CONNECTED", inputs, [y], "FullyConnectedOptions", 8)
        made.append(y)
    total = b.tensor((1, 8), "int8", 1.5, 0)
    b.operator("ADD", made, [total], "AddOptions", 2)
    return b.made([x], [total]).finish()


@pytest.mark.parametrize("compiler", ["vela", "tvm", "auto"])
def test_what_was_kept_from_vela_is_compared_with_nothing(compiler: str, tmp_path: Path) -> None:
    """The first screen, memory.txt, plan.json and its page, --json, summary.csv and the line of the selection."""
    (path := tmp_path / "m.tflite").write_bytes(sum_of_layers(4000))
    options = CompileOptions(npu_compiler=compiler, effort="quick")
    made = plan_model(path, options).artifact
    assert made.npu_operations
    said = summary(made)
    keys = ("vela_total_ms", "vela_estimated_cycles", "vela_stream_cycles", "vela_arena_bytes")
    assert [said[key] for key in keys] == [None] * 4
    assert made.vela_arena_bytes == said["vela_pools"] == {}
    texts = ["\n".join(first_screen(made, tmp_path)), memory_text(made), summary_csv(made), *made.notes]
    assert not any(
        words in text
        for text in texts
        for words in ("Vela's own estimate", "Vela's own program: sram", "vela_sram_bytes")
    )
    assert not any("of Vela's own" in text for text in texts)
    assert (
        "not compared with Vela's own program: FULLY_CONNECTED would be part of it, and was kept from it" in made.notes
    )


def test_velas_own_program_is_compared_with(tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(sum_of_layers(0))
    made = plan_model(path, CompileOptions(effort="quick")).artifact
    assert summary(made)["vela_total_ms"] > 0 < sum(made.vela_arena_bytes.values())
    assert "Vela's own program:" in "\n".join(first_screen(made, tmp_path))


@pytest.mark.parametrize("bias", [4000, 0])
def test_a_file_for_tflite_micro_and_a_front(bias: int, tmp_path: Path) -> None:
    (path := tmp_path / "m.tflite").write_bytes(sum_of_layers(bias))
    emitted = emit(path, CompileOptions(effort="quick"))
    assert ("Vela's own" in "\n".join(_lines(emitted, path))) == (not bias)
    front = explore(path, CompileOptions(effort="quick"), model_loader(path), (1024,))
    assert [point.backend for point in front.vela] == ([] if bias else ["Vela, Performance", "Vela, Size"])
