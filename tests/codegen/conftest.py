"""Compilers and compiled models for the tests of generated C and of the local runner."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.c_compiler import compiler_command

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"


@pytest.fixture
def shared_object(tmp_path: Path) -> Callable[..., Path]:
    """`shared_object([files], flags)` -> the path of a shared object made by the system's compiler."""

    def build(sources: list[Path], *flags: str) -> Path:
        command = compiler_command()
        assert command is not None
        target = tmp_path / f"lib{len(list(tmp_path.glob('*.so')))}.so"
        line = [*command, "-std=c11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", *flags]
        subprocess.run([*line, *map(str, sources), "-o", str(target), "-lm"], check=True)
        return target

    return build


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`digits(host_ops=...)` -> an artifact directory of the example model, compiled once."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions

    made: dict[tuple[str, ...], Path] = {}

    def compile_digits(*host_ops: str) -> Path:
        if host_ops not in made:
            folder = tmp_path_factory.mktemp("digits") / "build"
            compile_model(
                EXAMPLE,
                CompileOptions(accelerator="ethos-u55-128", host_ops=host_ops, objective="bytes", effort="quick"),
                folder,
            )
            assert Artifact.load(folder).host_operations >= len(host_ops)
            made[host_ops] = folder
        return made[host_ops]

    return compile_digits


@pytest.fixture(scope="session")
def example() -> Path:
    """The example model."""
    return EXAMPLE
