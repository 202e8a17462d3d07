"""Names that others gave change nothing around them: not the C, not a table, not a terminal."""

from __future__ import annotations

import csv
import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.table import Table
from rich.text import Text

from npu_memplan.artifact.files import read_problem
from npu_memplan.cli import main
from npu_memplan.codegen.c_text import comment_text, member_name
from npu_memplan.compiler import compile_model
from npu_memplan.names import c_identifier, printable_lines, printable_text
from npu_memplan.options import CompileOptions, OptionError
from npu_memplan.problem import ProblemError
from npu_memplan.process.setup import only_printable, terminal_console
from npu_memplan.target_data import TargetDataError, load_board, targets_folder
from npu_memplan.tvmc import TvmcError
from npu_memplan.tvmc.options import parse_compile
from tests.support.demo_library import library
from tests.support.mlf_host import write_tree
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator
from tests.support.tosa_file import tosa_file
from tests.support.warnings_of_c import check_artifact, check_library, check_warnings

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

IN_C = ("int", "x" * 300, "NAN", "M_INPUT_0_BYTES", "sinf", "int8_t", "pools")  # keywords, macros, functions, types


def hostile_model(name: str) -> bytes:
    """A convolution on the NPU, a layer of the host; all tensors have the name."""
    b = ModelBuilder()
    x, y, z = (b.tensor((1, 4, 4, depth), "int8", 0.1, 3, name=name) for depth in (3, 2, 2))
    data = np.arange(-3, 3, dtype=np.int8).reshape(2, 1, 1, 3)
    w = b.tensor(data.shape, "int8", 0.05, data=data, name=name)
    b.operator("CONV_2D", [x, w, -1], [y], "Conv2DOptions", StrideH=1, StrideW=1, DilationHFactor=1, DilationWFactor=1)
    b.operator("CUMSUM", [y, b.constant(np.array(1, np.int32))], [z], "CumsumOptions")
    return b.made([x], [z]).finish()


def onnx_model(path: Path, name: str) -> None:
    """A convolution on the NPU and a sine of the host; the names of all values begin with `name`."""
    onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
    helper, constant = onnx.helper, onnx.numpy_helper.from_array
    values = [name, *(f"{name}{number}" for number in range(1, 12))]
    x, xq, xd, w, wd, y, yq, yd, z, scale, zero, none = values
    weights = np.arange(-3, 3, dtype=np.int8).reshape(2, 3, 1, 1)
    stored = ((np.float32(0.1), scale), (np.int8(3), zero), (weights, w), (np.int8(0), none))
    nodes = [
        ("QuantizeLinear", [x, scale, zero], xq), ("DequantizeLinear", [xq, scale, zero], xd),
        ("DequantizeLinear", [w, scale, none], wd), ("Conv", [xd, wd], y),
        ("QuantizeLinear", [y, scale, zero], yq), ("DequantizeLinear", [yq, scale, zero], yd), ("Sin", [yd], z),
    ]  # fmt: skip
    made = [helper.make_node(kind, inputs, [output], name=name) for kind, inputs, output in nodes]
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, (1, d, 4, 4)) for n, d in ((x, 3), (z, 2))]
    graph = helper.make_graph(made, name, ends[:1], ends[1:], [constant(np.asarray(v), n) for v, n in stored])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9), path)


def check_texts(folder: Path) -> None:
    """No text of an artifact has characters that do something, no table more cells in one row than in others."""
    texts = [p for p in folder.rglob("*") if p.suffix in (".txt", ".csv", ".c", ".h", ".json", ".html", ".py", ".svg")]
    assert {"memory.txt", "plan.json", "m.h"} <= {p.name for p in texts}
    for text in texts:
        content = text.read_text(encoding="utf-8")
        assert content == printable_lines(content), f"{text.name} has characters that do something"
        assert "<script>alert" not in content or text.suffix != ".html"
    for table in folder.rglob("*.csv"):
        widths = {len(row) for row in csv.reader(io.StringIO(table.read_text(encoding="utf-8")))}
        assert len(widths) <= 1, f"a row of {table.name} has cells more than others"


OPTIONS = CompileOptions(npu_compiler="tvm", objective="bytes")


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_what_is_written_of_a_model(name: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "m.tflite", tmp_path / "out"
    path.write_bytes(hostile_model(name))
    artifact = compile_model(path, OPTIONS, folder)
    assert artifact.inputs[0].name == printable_text(name)
    check_artifact(folder, artifact)
    check_texts(folder)


@pytest.mark.parametrize("name", [*HOSTILE.values(), *IN_C], ids=[*HOSTILE, *(n[:9] for n in IN_C)])
def test_what_is_written_of_an_onnx_model(name: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "m.onnx", tmp_path / "out"
    onnx_model(path, name)
    artifact = compile_model(path, OPTIONS, folder)
    assert printable_text(artifact.inputs[0].name) == printable_text(name)
    check_artifact(folder, artifact)
    check_texts(folder)


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE)
def test_what_is_written_of_a_tosa_graph(name: str, tmp_path: Path) -> None:
    path, folder = tmp_path / "m.tosa", tmp_path / "out"
    path.write_bytes(tosa_file(names=(name, f"{name}1", f"{name}2")))
    artifact = compile_model(path, CompileOptions("ethos-u85-256"), folder)
    check_artifact(folder, artifact)
    check_texts(folder)


@pytest.mark.parametrize("name", [*HOSTILE.values(), *IN_C], ids=[*HOSTILE, *(n[:9] for n in IN_C)])
@pytest.mark.parametrize("io", [0, 1])
def test_a_model_library_of_any_names_has_no_warnings(name: str, io: int, tmp_path: Path) -> None:
    model, tree = tmp_path / "m.tflite", tmp_path / "tree"
    model.write_bytes(hostile_model(name))
    made = library(model, "--workspace-pools=sram", f"--pass-config=tir.usmp.use_workspace_io={io}")
    write_tree(made, tree)
    check_library(tree)
    for path, content in made.files.items():
        text = content.decode("utf-8", "replace")
        assert path.endswith(".params") or text == printable_lines(text)


@pytest.mark.parametrize(
    ("name", "in_c"),
    [("stdint", "stdint_"), ("String", "String_"), ("npu_memplan_runtime", "npu_memplan_runtime_"), ("int", "int"),
     ("x" * 300, "x" * 100), ("/*\x1b", "___"), ("1", "_1")],
    ids=lambda name: name[:9].replace("\x1b", "ESC"),
)  # fmt: skip
def test_a_model_of_any_name_is_c(name: str, in_c: str, tmp_path: Path) -> None:
    """Its headers stand on the path on which C's own are looked for."""
    path = save(tmp_path / "m.tflite", hostile_model("x"))
    artifact = compile_model(path, replace(OPTIONS, name=name), tmp_path / "out")
    assert artifact.name == in_c
    check_artifact(tmp_path / "out", artifact)


@pytest.mark.parametrize(
    ("names", "why"),
    [(("a/*b",), "is not a letter and"), (('x"',), "is not a letter"), (("\x1b[1m",), "is not a letter"),
     (("s" * 65,), "at most 63"), (("a.b", "a_b"), "'a.b' and 'a_b' are the same in C"),
     (("SRAM",), "'sram' and 'SRAM'")],
)  # fmt: skip
def test_names_of_pools_are_refused_that_c_cannot_have(names: tuple[str, ...], why: str, tmp_path: Path) -> None:
    path = save(tmp_path / "m.tflite", hostile_model("x"))
    with pytest.raises(OptionError, match=why):
        compile_model(path, replace(OPTIONS, constant_pools=dict.fromkeys(names)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--module-name=../x", "--constant-pools=a/*b", "--workspace-pools=a b"])
def test_names_in_a_model_library_are_refused_that_c_cannot_have(option: str, tmp_path: Path) -> None:
    with pytest.raises(TvmcError, match="is not a letter and at most 63"):
        parse_compile([option, "m.tflite"])


def test_a_board_file_has_names_that_c_can_have(tmp_path: Path) -> None:
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text(encoding="utf-8")
    for old, new in (('"corstone-300-u55"', '"x\\" /*"'), ('"DTCM"', '"D TCM"')):
        (tmp_path / "b.toml").write_text(text.replace(old, new), encoding="utf-8")
        with pytest.raises(TargetDataError, match="name"):
            load_board(tmp_path / "b.toml")


def test_a_refusal_of_a_custom_operator_shows_its_name(tmp_path, monkeypatch, capfd):
    x, y = (TensorSpec((1, 4), "int8", 0.1) for _ in range(2))
    path = save(tmp_path / "m.tflite", single_operator("custom:" + HOSTILE["a terminal"], [x], [y]).finish())
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


def test_a_terminal_has_our_colours_and_nobody_elses(monkeypatch):
    """A name that colours, or goes back over a verdict, is shown as it is; what rich makes of a style is kept."""
    hostile = "a\x1b[1mb\x1b[2K\x1b[1A\rc\x1b]0;t\x07"
    shown = "a\\x1b[1mb\\x1b[2K\\x1b[1A\\rc\\x1b]0;t\\x07"
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    kept = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(kept, encoding="utf-8", newline=""))
    with only_printable():
        assert sys.stdout.write(hostile) == len(hostile)
        table = Table("name", box=None, show_header=False, padding=0)
        table.add_row(Text(hostile, style="bold"))
        terminal_console(width=200).print(table, hostile)
    text = kept.getvalue().decode()
    assert text.startswith(shown)
    assert text.count("\\x1b[2K") == 3
    assert not set(text) & {"\r", "\x07"}
    assert re.findall("\x1b[^m]*m", text) == ["\x1b[1m", "\x1b[0m"]
    assert not kept.closed


def test_names_of_artifacts_and_problems_have_no_control_characters(tmp_path):
    text = (
        '{"schema": "npu_memplan.problem/1", "pools": [{"name": "p"}], "buffers": [{"name": "NAME", "size_bytes": 1}]}'
    )
    for name in ("\\u001b[2K", "a\\nb", "\u202e", "\\r"):
        (tmp_path / "p.json").write_text(text.replace("NAME", name), encoding="utf-8")
        with pytest.raises(ProblemError, match="has characters that a terminal obeys"):
            read_problem(tmp_path / "p.json")
    (tmp_path / "p.csv").write_text("id,lower,upper,size\n\x1b[31m,0,1,1\n", encoding="utf-8")
    with pytest.raises(ProblemError, match="has a name with characters that a terminal obeys"):
        read_problem(tmp_path / "p.csv")


@pytest.mark.parametrize("name", ["a\nb", "a\rb"])
def test_an_argument_is_one_line(name, monkeypatch, capfd):
    monkeypatch.setattr("sys.argv", ["npu-memplan", "verify", name, name])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capfd.readouterr().err.splitlines()[-1].startswith(f"Error: the argument {name!r} has an end of a line")


def test_c_of_names():
    assert comment_text("/*/ */ ??/ ???=\n") == "/ * / * / ? ?/ ? ? ?=\\n"
    assert [member_name(n) for n in ("int", "class", "1x", "a.b", "", "x")] == [
        "int_",
        "class_",
        "_1x",
        "a_b",
        "_",
        "x",
    ]
    assert c_identifier("r\u00e9seau/x") == "r_seau_x"


def test_no_compiler_lets_a_warning_pass(tmp_path):
    """The check itself: it would be silent if a compiler did not look."""
    source = save(tmp_path / "a.c", "int f(int a);\nint f(int a) { int unused = a; return 0; }\n")
    with pytest.raises(AssertionError, match="unused"):
        check_warnings([source])
