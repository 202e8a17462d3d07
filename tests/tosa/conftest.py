"""Conformance tests of TOSA, made by tosa-tools' generator while the tests run."""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from fvp_runner.references.other_formats import find_tool
from npu_memplan.ethosu.arch.configurations import ETHOS_U85

# A few of each operator would be too many to run here; `benchmarks.tosa_conformance` runs the large set.
OPERATORS = (
    *("argmax", "arithmetic_right_shift", "avg_pool2d", "bitwise_not", "cast", "clamp", "clz", "concat", "equal"),
    *("gather", "intdiv", "logical_right_shift", "matmul", "max_pool2d", "mul", "negate", "reduce_any", "reduce_min"),
    *("reduce_sum", "resize", "reverse", "scatter", "select", "sub", "table", "tile", "transpose", "identity"),
)
CONTROL = ("cond_if_const", "cond_if_binary", "while_loop")  # of streams that jump: simulated, not compiled


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`configuration`: each number of an Ethos-U85 with `--every-u85`, else one that stands for any."""
    if "configuration" in metafunc.fixturenames:
        numbers = range(len(ETHOS_U85)) if metafunc.config.getoption("every_u85") else (-1,)
        metafunc.parametrize("configuration", numbers)


@pytest.fixture
def u85_of(configuration: int) -> Callable[[str, int], str]:
    """The Ethos-U85 for a test of this name and seed: with each seed another one."""

    def chosen(name: str, seed: int = 0) -> str:
        number = configuration if configuration >= 0 else (zlib.crc32(name.encode()) + seed) % len(ETHOS_U85)
        return ETHOS_U85[number].name

    return chosen


@pytest.fixture(scope="session")
def conformance(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of generated tests: `<operator>/<test>` of small tensors of three axes."""
    generator = find_tool("tosa_verif_build_tests")
    if generator is None or find_tool("tosa_reference_model") is None:
        pytest.skip("tosa-tools is not installed; `make test` installs it into .venv/tosa-tools")
    folder = tmp_path_factory.mktemp("tosa")
    command = [str(generator), "-o", str(folder), "--tosa-version", "1.0.2", "--seed", "7", "--test-type", "positive"]
    command += ["--profile", "tosa-pro-int", "--extension", "tosa-ext-int16", "tosa-ext-controlflow"]
    command += ["--no-special-tests"]
    command += ["--tensor-dim-range", "2,9", "--target-rank", "3", "--target-rank", "4", "--max-batch-size", "1"]
    command += ["--max-pooling-padding", "0", "--max-pooling-kernel", "2", "--max-pooling-stride", "1"]
    command += ["--max-resize-output-dim", "40", "--num-rand-permutations", "1"]
    command += ["--filter", f"^({'|'.join((*OPERATORS, 'cond_if', 'while_loop'))})$"]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder
