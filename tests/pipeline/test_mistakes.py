"""What users mistype or lack, and the message that says what to give instead: exit code 2, no traceback."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import npu_memplan
from npu_memplan.artifact import Artifact
from npu_memplan.cli import cli
from npu_memplan.errors import NpuMemplanError
from npu_memplan.options import CompileOptions
from tests.support.digits_network import digits
from tests.support.real_data import REPOSITORY

MODEL = REPOSITORY / "examples" / "digits" / "digits.tflite"


def message_of(*arguments: object) -> str:
    """What a command that refuses says."""
    done = CliRunner().invoke(cli, [str(argument) for argument in arguments])
    assert isinstance(done.exception, NpuMemplanError), done.output
    return str(done.exception)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--board", "corstone-300"), "did you mean corstone-300-u55 or corstone-300-u65?"),
        (("--accelerator", "ethos-u55-257"), "did you mean ethos-u55-256?"),
        (("--memory-mode", "Shared_SRAM"), "did you mean Shared_Sram?"),
    ],
)
def test_a_name_that_is_almost_right_is_proposed(options: tuple[str, ...], words: str, tmp_path: Path) -> None:
    assert words in message_of("compile", MODEL, *options, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_accelerator_may_be_called_as_tables_shorten_it() -> None:
    assert CompileOptions("u85-512").resolve_defaults() == CompileOptions("ethos-u85-512").resolve_defaults()


def test_stripes_take_a_size(tmp_path: Path) -> None:
    """Vela's own figures beside it are of a compile without stripes."""
    command = ["compile", str(MODEL), "--stripes", "--pool", "sram=6KiB", "--effort", "quick", "-q"]
    done = CliRunner().invoke(cli, [*command, "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert Artifact.load(tmp_path / "out").pool_bytes("sram") <= 6 << 10


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


def test_the_package_lists_its_public_names() -> None:
    assert set(npu_memplan.__all__) <= set(dir(npu_memplan))
    assert {"transform", "analysis", "planners"} <= set(dir(npu_memplan))
    assert "importlib" not in dir(npu_memplan)
