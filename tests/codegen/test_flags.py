"""Generated C gives the same bytes whatever compiler and level makes it, and refuses flags that change floats."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.codegen.builds import REQUIRED_FLAGS
from npu_memplan.codegen.entry import RUNTIME_HEADER, RUNTIME_TEXT
from npu_memplan.models.tflite import read_network
from tests.exactness.test_host_operators import values
from tests.support.many_operators import COMPILERS, EXTREMES, Together, run_sanitized, run_with
from tests.support.operator_models import overflowing_model


def test_sums_beyond_int32_wrap_as_the_reference_does(tmp_path: Path) -> None:
    networks, inputs, expected = [], [], []
    for seed in range(15):
        model = overflowing_model(seed)
        networks.append(read_network(model, f"seed{seed}"))
        inputs.append(values(np.random.default_rng(seed), networks[-1]))
        expected.append(TFLiteReference(model).run(inputs[-1]))
    together = Together(networks, inputs, tmp_path)
    ways = [run_with(together, [*way, *REQUIRED_FLAGS]) for way in EXTREMES]
    for found in (run_sanitized(together), *ways):
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
