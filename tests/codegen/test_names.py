"""Names that others gave change nothing around them: not the C, not a table, not a terminal."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.cli import main
from npu_memplan.codegen.c_names import comment, member
from npu_memplan.compiler import compile_model
from npu_memplan.names import identifier, printable, printable_lines
from npu_memplan.options import CompileOptions
from npu_memplan.process.setup import only_printable
from tests.support.tflite_builder import ModelBuilder
from tests.support.warnings_of_c import check_artifact, check_warnings

HOSTILE = {
    "a comment": 'x"; system("true"); /*_o',
    "the end of one": "a*/int x;/*/*/",
    "a trigraph": "what??/",
    "many question marks": "???/\\",
    "direction": "a\u202eb\u2066c\u061c",
    "a terminal": "\x1b]0;pwn\x07\x1b[31mRED\x1b[2J\x9b1m",
    "lines": "a\nb\r\nc\u2028d\x85e",
    "a page": "<script>alert('x')</script>&amp;\"",
    "a template": "%s%n{0}{x}${x}",
    "a zero-width space": "a\u200bb\ufeff",
    "other letters": "r\u00e9seau \u6c34",
}


def hostile_model(name: str) -> bytes:
    """A convolution on the NPU, a layer of the host; all tensors have the name."""
    b = ModelBuilder()
    x, y, z = (b.tensor((1, 4, 4, depth), "int8", 0.1, 3, name=name) for depth in (3, 2, 2))
    data = np.arange(-3, 3, dtype=np.int8).reshape(2, 1, 1, 3)
    w = b.tensor(data.shape, "int8", 0.05, data=data, name=name)
    b.operator("CONV_2D", [x, w, -1], [y], "Conv2DOptions", StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1)
    b.operator("CUMSUM", [y, b.constant(np.array(1, np.int32))], [z], "CumsumOptions")
    return b.made([x], [z]).finish()


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_what_is_written_of_a_model(name: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "m.tflite", tmp_path / "out"
    path.write_bytes(hostile_model(name))
    artifact = compile_model(path, CompileOptions(npu_compiler="tvm", objective="bytes"), folder)
    assert artifact.inputs[0].name == printable(name)
    check_artifact(folder, artifact)
    texts = [p for p in folder.rglob("*") if p.suffix in (".txt", ".csv", ".c", ".h", ".json", ".html", ".py", ".svg")]
    assert {"memory.txt", "plan.json", "m.h"} <= {p.name for p in texts}
    for text in texts:
        content = text.read_text(encoding="utf-8")
        assert content == printable_lines(content), f"{text.name} has characters that do something"
        assert "<script>alert" not in content or text.suffix != ".html"
    for table in folder.rglob("*.csv"):
        widths = {len(row) for row in csv.reader(io.StringIO(table.read_text(encoding="utf-8")))}
        assert len(widths) <= 1, f"a row of {table.name} has cells more than others"


def test_a_refusal_of_a_custom_operator_shows_its_name(tmp_path, monkeypatch, capfd):
    b = ModelBuilder()
    x, y = (b.tensor((1, 4), "int8", 0.1) for _ in range(2))
    b.operator("custom:" + HOSTILE["a terminal"], [x], [y])
    path = tmp_path / "m.tflite"
    path.write_bytes(b.made([x], [y]).finish())
    monkeypatch.setattr("sys.argv", ["npu-memplan", "compile", str(path), "-o", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    said = capfd.readouterr()
    assert "\\x1b]0;pwn\\x07\\x1b[31mRED" in said.err
    assert "\x1b" not in said.err + said.out


def test_names_of_files_are_shown_too(tmp_path):
    """Whatever brings it: what reaches a stream is printable."""
    name = "no\x07such\u202e.tflite"
    line = [sys.executable, "-m", "npu_memplan", "compile", str(tmp_path / name), "-o", str(tmp_path / "out")]
    environment = {key: value for key, value in os.environ.items() if key != "FORCE_COLOR"}
    done = subprocess.run(line, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 2
    assert "no\\x07such\\u202e.tflite" in done.stderr.replace("\n", "")
    assert done.stderr == printable_lines(done.stderr)


def test_a_terminal_keeps_its_colours(monkeypatch):
    colours, title = "\x1b[1mbold\x1b[0m\x1b[2K\r", "\x1b]0;title\x07"
    for forced, shown in (("1", colours), (None, "\\x1b[1mbold\\x1b[0m\\x1b[2K\r")):
        monkeypatch.setenv("FORCE_COLOR", forced) if forced else monkeypatch.delenv("FORCE_COLOR", raising=False)
        kept = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(kept, encoding="utf-8", newline=""))
        with only_printable():
            assert sys.stdout.write(colours + title) == len(colours + title)
        assert kept.getvalue().decode() == shown + "\\x1b]0;title\\x07"
        assert not kept.closed


def test_c_of_names():
    assert comment("/*/ */ ??/ ???=\n") == "/ * / * / ? ?/ ? ? ?=\\n"
    assert [member(n) for n in ("int", "class", "1x", "a.b", "", "x")] == ["int_", "class_", "_1x", "a_b", "_", "x"]
    assert identifier("r\u00e9seau/x") == "r_seau_x"


def test_printable_is_printable():
    every = "".join(map(chr, [*range(0xD800), *range(0xE000, 0x11000)]))
    assert printable(every).isprintable()
    assert printable(b"a\xff\x00") == "a\ufffd\\x00"
    assert printable_lines("a\tb\nc\x00") == "a\tb\nc\\x00"
    assert printable("plain r\u00e9seau") == "plain r\u00e9seau"


def test_no_compiler_lets_a_warning_pass(tmp_path):
    """The check itself: it would be silent if a compiler did not look."""
    source = tmp_path / "a.c"
    source.write_text("int f(int a);\nint f(int a) { int unused = a; return 0; }\n")
    with pytest.raises(AssertionError, match="unused"):
        check_warnings([source])
