"""What users mistype or lack, and the message that says what to give instead: exit code 2, no traceback."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import npu_memplan
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions
from npu_memplan.target_data import targets_folder
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.digits_network import digits
from tests.support.entry import invoke
from tests.support.real_data import REPOSITORY
from tests.support.tflite_builder import ModelBuilder, TensorSpec, single_operator

MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"


def message_of(*arguments: object) -> str:
    """What a command that refuses says."""
    done = invoke(*arguments, code=None)
    assert isinstance(done.exception, NpuMemplanError), done.output
    return str(done.exception)


@pytest.mark.parametrize(
    ("command", "name", "content", "words"),
    [
        ("operators", "m.onnx", b"ir version", "m.onnx is an ONNX model, and this is for TFLite files; compile to C"),
        ("check", "m.pt2", b"PK\x03\x04", "m.pt2 is a PyTorch program, and this is for TFLite files"),
        ("operators", "m.pte", b"\0\0\0\0ET12", "an ExecuTorch program, and this is for TFLite files; check, simulate"),
    ],
)
def test_a_file_of_another_format_names_the_commands_for_it(
    command: str, name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    assert words in message_of(command, tmp_path / name)


def test_what_is_no_raw_network_says_what_it_lacks(tmp_path: Path) -> None:
    np.savez(tmp_path / "values.npz", x=np.zeros(3))
    said = message_of("compile", tmp_path / "values.npz", "-o", tmp_path / "out")
    assert "it has no array 'cmd_data'; give Vela's raw output" in said


def test_an_unknown_key_of_a_board_file_is_refused(tmp_path: Path) -> None:
    """It was left out without a word, and the board had another clock."""
    board = (targets_folder() / "boards" / "himax-we2.toml").read_text(encoding="utf-8")
    (tmp_path / "mine.toml").write_text(board.replace("npu_hz", "npu_hertz"), encoding="utf-8")
    said = message_of("compile", MODEL, "--board", tmp_path / "mine.toml", "-o", tmp_path / "out")
    assert "unknown field `npu_hertz`; it may have npu_hz, cpu_hz" in said


@pytest.mark.parametrize(
    ("mode", "similar"),
    [("const_mem_area=Axi1\narena_mem_area=Axi0\ncache_mem_area=Axi0", "Shared_Sram"),
     ("const_mem_area=Axi0\narena_mem_area=Axi0\ncache_mem_area=Axi0", "Sram_Only"),
     ("inherit=Memory_Mode.Base\ncache_mem_area=Axi0", "Dedicated_Sram")],
)  # fmt: skip
def test_memory_modes_of_a_vela_ini_are_told_which_known_one_they_are(mode: str, similar: str, tmp_path: Path) -> None:
    base = "[Memory_Mode.Base]\nconst_mem_area=Axi1\narena_mem_area=Axi1\n"
    (tmp_path / "mine.ini").write_text(f"[System_Config.Mine]\n{base}[Memory_Mode.Own]\n{mode}\n", encoding="utf-8")
    given = "--vela-ini", tmp_path / "mine.ini", "-o", tmp_path / "out"
    assert f"give --memory-mode {similar}" in message_of("compile", MODEL, "--memory-mode", "Own", *given)
    assert "mine.ini has: Mine; known: " in message_of("compile", MODEL, "--system-config", "My", *given)


def test_a_network_that_is_compiled_already_is_sent_back_to_its_source(tmp_path: Path) -> None:
    """Native lowering and operators kept on the host, which a model is told to try, do not take it."""
    compiled = tmp_path / "compiled.tflite"
    compiled.write_bytes(compile_tflite(MODEL.read_bytes(), VelaOptions("ethos-u55-256")).network)
    done = invoke("compile", compiled, "-q", "-o", tmp_path / "out")
    assert "was not taken" not in done.output + done.stderr
    said = message_of("compile", compiled, "--npu-compiler", "tvm", "-o", tmp_path / "other")
    assert "needs the network that it was made from" in said


@pytest.mark.parametrize(
    ("dtype", "words"),
    [
        ("float32", "why: MAX_POOL_2D: it computes in floating point"),
        ("int8", "why: MAX_POOL_2D: Unsupported kernel stri"),
    ],
)
def test_what_keeps_everything_off_the_npu_is_on_the_screen(dtype: str, words: str, tmp_path: Path) -> None:
    scale = () if dtype == "float32" else (0.05,)
    x, y = TensorSpec((1, 24, 24, 8), dtype, *scale), TensorSpec((1, 5, 5, 8), dtype, *scale)
    window = dict.fromkeys(("FilterWidth", "FilterHeight", "StrideW", "StrideH"), 5)
    (tmp_path / "pool.tflite").write_bytes(single_operator("MAX_POOL_2D", [x], [y], "Pool2DOptions", **window).finish())
    given = "compile", str(tmp_path / "pool.tflite"), "--effort", "quick", "--no-check", "-o", str(tmp_path / "out")
    assert words in invoke(*given, code=None).output


def test_a_branch_is_not_left_to_a_c_function(tmp_path: Path) -> None:
    branch = ModelBuilder()
    x, y = branch.tensor((1, 4), "int8", 0.05), branch.tensor((1, 4), "int8", 0.05)
    branch.operator("custom:Unknown", [x], [y])
    b = ModelBuilder([branch.made([x], [y])])
    condition, x, y = b.tensor((), "bool"), b.tensor((1, 4), "int8", 0.05), b.tensor((1, 4), "int8", 0.05)
    b.operator("IF", [condition, x], [y], "IfOptions", ThenSubgraphIndex=1, ElseSubgraphIndex=1)
    (tmp_path / "branch.tflite").write_bytes(b.made([condition, x], [y]).finish())
    given = "compile", tmp_path / "branch.tflite", "-o", tmp_path / "out"
    assert "--host-ops" not in message_of(*given)
    assert "which a C function cannot; replace it" in message_of(*given, "--host-ops", "IF=64")


def test_a_size_with_a_blank_is_pointed_out(tmp_path: Path) -> None:
    done = invoke("compile", MODEL, "--pool", "sram=64", "KiB", "-o", tmp_path / "o", code=2)
    assert "KiB is left over behind digits.tflite" in " ".join(done.output.split())
    assert "a size has no blank: sram=64KiB" in " ".join(done.output.split())


def test_an_accelerator_may_be_called_as_tables_shorten_it() -> None:
    assert CompileOptions("u85-512").resolve_defaults() == CompileOptions("ethos-u85-512").resolve_defaults()


def test_weights_of_pytorch_are_told_from_networks(tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("data.pkl", b"")
    (tmp_path / "weights.pt").write_bytes(archive.getvalue())
    said = message_of("compile", tmp_path / "weights.pt", "-o", tmp_path / "out")
    assert "give what torch.export.save writes (.pt2)" in said


def test_a_folder_inside_an_artifact_names_the_artifact(tmp_path: Path) -> None:
    npu_memplan.compile(MODEL, tmp_path / "out", effort="quick")
    assert message_of("report", tmp_path / "out" / "src").endswith(f"give {tmp_path / 'out'}")


def test_a_run_names_files_that_were_changed(tmp_path: Path) -> None:
    npu_memplan.compile(MODEL, tmp_path / "out", effort="quick")
    command = "run", str(tmp_path / "out"), "--on", "local"
    assert "changed" not in invoke(*command, code=None).stderr
    with (tmp_path / "out" / "src" / "digits.c").open("a", encoding="utf-8") as file:
        file.write("/* mine */\n")
    assert "note: changed since they were written: src/digits.c; they run" in invoke(*command, code=None).stderr


def test_onnx_without_its_package_names_the_extra(tmp_path: Path) -> None:
    """TVM's importer raises an error of its own where it is missing."""
    (tmp_path / "model.onnx").write_bytes(b"")
    (tmp_path / "hidden" / "onnx").mkdir(parents=True)
    (tmp_path / "hidden" / "onnx" / "__init__.py").write_text("raise ModuleNotFoundError('onnx')\n", encoding="utf-8")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'hidden')!r}); "
        "sys.argv = ['npu-memplan', 'compile', 'model.onnx', '-o', 'out']; "
        "from npu_memplan.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "pip install 'npu_memplan[onnx]'" in done.stderr


def test_onnx_that_does_not_fit_says_so_not_that_vela_reads_tflite(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from tests.support.digits_onnx import exported

    model = exported(digits(), tmp_path / "digits.onnx")
    said = message_of("compile", model, "--pool", "sram=64", "-o", tmp_path / "out")
    assert "does not fit pool sram" in said
    assert "Vela" not in said.splitlines()[0]
