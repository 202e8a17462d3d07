"""Generated C gives the same bytes whatever compiler and level makes it, and refuses flags that change floats."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.codegen.entry import RUNTIME_HEADER, RUNTIME_TEXT
from npu_memplan.exactness import EXACT, Code
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from tests.exactness.test_host_operators import claimed, values
from tests.support.many_operators import Together, run_sanitized, run_with
from tests.support.operator_table import row
from tests.support.overflowing_models import overflowing_model

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os")
EXTREMES = list(product(COMPILERS, ("-O0", "-O3")))


def _wrong(
    networks: Sequence[Network], inputs: Sequence[Sequence[np.ndarray]], ways: Sequence[tuple[str, str]], folder: Path
) -> list[str]:
    """Networks that give other bytes than with the sanitizers, and how they were compiled."""
    together, wrong = Together(networks, inputs, folder), []
    expected = run_sanitized(together, folder)
    for way in ways:
        found = run_with(together, folder, [*way, *REQUIRED_FLAGS])
        for network, ours, theirs in zip(networks, found, expected, strict=True):
            if any(a.tobytes() != b.tobytes() for a, b in zip(ours, theirs, strict=True)):
                wrong.append(f"{network.name} {' '.join(way)}")
    return wrong


def _operators(dtype: str, numbers: Sequence[int], step: int = 1) -> tuple[list[Network], list[list[np.ndarray]]]:
    rng = np.random.default_rng(len(dtype))
    cases = [row(kind, dtype, number) for kind in list(claimed(dtype))[::step] for number in numbers]
    networks = [read_network(case.build(), case.name) for case in cases]
    return networks, [values(rng, network) for network in networks]


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32"])
def test_operators_give_the_same_bytes(dtype: str, tmp_path: Path) -> None:
    assert _wrong(*_operators(dtype, [0], step=6), EXTREMES[1:3], tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", list(EXACT[Code.HOST]))
def test_operators_give_the_same_bytes_in_all_ways(dtype: str, tmp_path: Path) -> None:
    assert _wrong(*_operators(dtype, [1, 2, 3]), list(product(COMPILERS, LEVELS)), tmp_path) == []


def test_sums_beyond_int32_wrap_as_the_reference_does(tmp_path: Path) -> None:
    networks, inputs, expected = [], [], []
    for seed in range(15):
        model = overflowing_model(seed)
        networks.append(read_network(model, f"seed{seed}"))
        inputs.append(values(np.random.default_rng(seed), networks[-1]))
        expected.append(TFLiteReference(model).run(inputs[-1]))
    together = Together(networks, inputs, tmp_path)
    ways = [run_with(together, tmp_path, [*way, *REQUIRED_FLAGS]) for way in EXTREMES]
    for found in (run_sanitized(together, tmp_path), *ways):
        for network, ours, theirs in zip(networks, found, expected, strict=True):
            np.testing.assert_array_equal(ours[0].reshape(-1), theirs[0].reshape(-1), network.name)


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flag", ["-ffast-math", "-Ofast", "-ffinite-math-only", "-O3"])
def test_flags_that_change_floats_are_refused(compiler: str, flag: str, tmp_path: Path) -> None:
    source = tmp_path / "net.c"
    (tmp_path / RUNTIME_HEADER).write_text(RUNTIME_TEXT)
    source.write_text(f'#include "{RUNTIME_HEADER}"\nint one(void);\nint one(void) {{ return 1; }}\n')
    done = subprocess.run([compiler, flag, "-c", str(source), "-o", f"{source}.o"], capture_output=True, text=True)
    assert (done.returncode == 0) == (flag == "-O3")
    assert ("compile this file without -ffast-math" in done.stderr) == (flag != "-O3")
