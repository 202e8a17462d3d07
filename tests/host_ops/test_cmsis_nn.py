"""`--host-ops cmsis-nn=DIR`: what is called, what is copied, and that results stay the reference's.

The source is on no package index: tests that run it want `CMSIS_NN` to name a clone. The others have a folder with a
header of two functions.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import RunOptions
from fvp_runner.emulators import qemu, unicorn
from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact import Artifact
from npu_memplan.c_compiler import compiler_command
from npu_memplan.cmsis_nn import CmsisNNError, open_cmsis_nn
from npu_memplan.compiler import compile_model
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.many_operators import Together, run_sanitized
from tests.support.real_data import Models
from tests.support.tflite_builder import TensorSpec, constant, write_model

FOLDER = os.environ.get("CMSIS_NN", "")
needs_source = pytest.mark.skipif(not FOLDER, reason="CMSIS_NN names no clone of CMSIS-NN")

HEADER = """\
#include <stdint.h>
typedef int arm_cmsis_nn_status;
void arm_softmax_s8(const int8_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult,
                    const int32_t shift, const int32_t diff_min, int8_t *output);
void arm_nn_helper(int8_t *output);
"""
SOFTMAX = """\
#include "arm_nnfunctions.h"
/* arm_other_s8( is no call */
void arm_softmax_s8(const int8_t *input, const int32_t num_rows, const int32_t row_size, const int32_t mult,
                    const int32_t shift, const int32_t diff_min, int8_t *output)
{
    (void)input, (void)num_rows, (void)row_size, (void)mult, (void)shift, (void)diff_min;
    arm_nn_helper(output);
}
"""
HELPER = """\
#include "arm_nnfunctions.h"
void arm_nn_helper(int8_t *output) {
  output[0] = 1;
}
"""


@pytest.fixture
def two_functions(tmp_path: Path) -> Path:
    """A folder like CMSIS-NN's, with a function, its helper, and a file that nobody calls."""
    root = tmp_path / "cmsis"
    files = {
        "Include/arm_nnfunctions.h": HEADER,
        "Source/SoftmaxFunctions/arm_softmax_s8.c": SOFTMAX,
        "Source/NNSupportFunctions/arm_nn_helper.c": HELPER,
        "Source/NNSupportFunctions/arm_nn_unused.c": "void arm_nn_unused(void) {}\n",
    }  # fmt: skip
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def softmax(folder: Path, columns: int = 9) -> Path:
    model = write_model(
        "SOFTMAX", [TensorSpec((2, columns), "int8", 0.1, 3)], [TensorSpec((2, columns), "int8", 1 / 256, -128)],
        ("SoftmaxOptions", {"Beta": 1.0}),
    )  # fmt: skip
    (folder / "rows.tflite").write_bytes(model)
    return folder / "rows.tflite"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cmsis-nn", "'cmsis-nn' is not cmsis-nn=DIR, with DIR the folder of CMSIS-NN's source"),
        ("xnnpack=.", "'xnnpack=.' is not cmsis-nn=DIR"),
        ("cmsis-nn=nowhere", "nowhere has no Include/arm_nnfunctions.h and Source"),
    ],
)
def test_what_is_no_source_is_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(CmsisNNError, match=re.escape(message)):
        compile_model(softmax(tmp_path), CompileOptions("none", host_kernels=text), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_artifact_has_the_calls_and_what_they_need(tmp_path: Path, two_functions: Path) -> None:
    options = CompileOptions("none", host_kernels=f"cmsis-nn={two_functions}")
    compile_model(softmax(tmp_path), options, tmp_path / "out")
    source = tmp_path / "out" / "src"
    copied = sorted(path.name for path in (source / "cmsis_nn").iterdir())
    assert copied == ["arm_nn_helper.c", "arm_nnfunctions.h", "arm_softmax_s8.c"]
    for name in copied:  # unchanged
        (original,) = two_functions.rglob(name)
        assert (source / "cmsis_nn" / name).read_bytes() == original.read_bytes()
    artifact = Artifact.load(tmp_path / "out")
    assert "CMSIS-NN runs 1 of 1 host call: 1 SOFTMAX" in artifact.notes
    assert artifact.host_layers == ()  # nobody has estimated it
    assert artifact.target.to_cli_args()[-2:] == ("--host-ops", f"cmsis-nn={two_functions}")
    host = (source / "rows_host.c").read_text()
    # rows, columns, multiplier, shift and least difference of TFLite's softmax: the scale with 26 fraction bits
    fraction, shift = math.frexp(float(np.float32(0.1)) * 2**26)
    numbers = f"2, 9, {round(fraction * 2**31)}, {shift}, {-(31 << 26 >> shift)}"
    assert re.search(rf"npu_memplan_cmsis_nn_softmax\(.*, {numbers}\);", host)
    header = (source / "rows_cmsis_nn.h").read_text()
    assert "#define arm_softmax_s8 rows_arm_softmax_s8\n" in header
    assert "#define arm_nn_helper rows_arm_nn_helper\n" in header
    unit = [str(source / "rows_cmsis_nn.c"), "-I", str(source), "-c", "-o", str(tmp_path / "unit.o")]
    subprocess.run([*compiler_command(), "-Wall", "-Wextra", "-Werror", *unit], check=True)  # type: ignore[misc]
    once = subprocess.run(
        [*compiler_command(), "-DCMSIS_NN_USE_SINGLE_ROUNDING", *unit], capture_output=True, text=True
    )  # type: ignore[misc]
    assert "double rounding only" in once.stderr
    assert "rows_cmsis_nn.c" in (source / "rows.cmake").read_text()


def test_a_source_without_a_function_that_is_called_says_so(tmp_path: Path, two_functions: Path) -> None:
    (two_functions / "Source/SoftmaxFunctions/arm_softmax_s8.c").unlink()
    with pytest.raises(CmsisNNError, match="defines no arm_softmax_s8, which the generated C calls"):
        compile_model(
            softmax(tmp_path), CompileOptions("none", host_kernels=f"cmsis-nn={two_functions}"), tmp_path / "out"
        )
    assert not (tmp_path / "out").exists()


# -- with the source ------------------------------------------------------------------------------------------

R = np.random.default_rng(36)


def weights(shape: tuple[int, ...], scales: int = 0, axis: int = 0) -> TensorSpec:
    return constant(R.integers(-127, 128, shape), "int8", list(R.uniform(0.002, 0.02, scales)) or 0.01, axis=axis)


def cases() -> Iterator[bytes]:
    """Models of one operator that CMSIS-NN takes: sizes around its blocks of 4 and 16, edges, strides, dilation."""
    for n, size, depth, out, kernel, stride, dilation, same, act in (
        (1, 9, 3, 8, 3, 1, 1, 0, 1), (1, 10, 4, 5, 5, 2, 1, 0, 0), (2, 8, 17, 7, 1, 1, 1, 1, 3),
        (1, 12, 2, 4, 3, 2, 1, 1, 2), (1, 11, 3, 4, 3, 1, 2, 0, 0), (1, 8, 16, 4, 1, 2, 1, 0, 0),
        (3, 6, 5, 9, 3, 1, 1, 0, 1),
    ):  # fmt: skip
        reach = (kernel - 1) * dilation + 1
        made = -(-size // stride) if not same else (size - reach) // stride + 1
        common = {"Padding": same, "StrideH": stride, "StrideW": stride, "FusedActivationFunction": act}
        common |= {"DilationHFactor": dilation, "DilationWFactor": dilation}
        bias = constant(R.integers(-3000, 3000, out), "int32", 0.0005)
        yield write_model(
            "CONV_2D",
            [TensorSpec((n, size, size, depth), "int8", 0.05, -5), weights((out, kernel, kernel, depth), out), bias],
            [TensorSpec((n, made, made, out), "int8", 0.3, 9)], ("Conv2DOptions", common),
        )  # fmt: skip
        if n == 1:
            for multiplier in (1, 2):
                channels = depth * multiplier
                yield write_model(
                    "DEPTHWISE_CONV_2D",
                    [TensorSpec((1, size, size, depth), "int8", 0.05, 4),
                     weights((1, kernel, kernel, channels), channels, 3),
                     constant(R.integers(-900, 900, channels), "int32", 0.0005)],
                    [TensorSpec((1, made, made, channels), "int8", 0.1, -9)],
                    ("DepthwiseConv2DOptions", {**common, "DepthMultiplier": multiplier}),
                )  # fmt: skip
    for rows, depth, units, several, act in ((1, 64, 10, 0, 0), (3, 17, 5, 0, 1), (2, 33, 8, 8, 3), (1, 5, 1, 0, 0)):
        bias = constant(R.integers(-3000, 3000, units), "int32", 0.0005)
        for added in (bias, None):
            yield write_model(
                "FULLY_CONNECTED",
                [TensorSpec((rows, depth), "int8", 0.05, 3), weights((units, depth), several), added],
                [TensorSpec((rows, units), "int8", 0.11, -3)],
                ("FullyConnectedOptions", {"FusedActivationFunction": act}),
            )  # fmt: skip
    for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for size, depth, kernel, stride, same, act in ((9, 17, 3, 2, 0, 0), (8, 4, 2, 2, 1, 1), (5, 3, 5, 1, 1, 0)):
            made = -(-size // stride) if not same else (size - kernel) // stride + 1
            pool = {
                "Padding": same,
                "StrideH": stride,
                "StrideW": stride,
                "FilterHeight": kernel,
                "FilterWidth": kernel,
            }
            yield write_model(
                name, [TensorSpec((1, size, size, depth), "int8", 0.05, -5)],
                [TensorSpec((1, made, made, depth), "int8", 0.05, -5)],
                ("Pool2DOptions", {**pool, "FusedActivationFunction": act}),
            )  # fmt: skip
    for columns, scale in ((10, 0.1), (33, 0.02), (3, 1.5), (257, 0.3)):
        yield write_model(
            "SOFTMAX", [TensorSpec((3, columns), "int8", scale, 3)], [TensorSpec((3, columns), "int8", 1 / 256, -128)],
            ("SoftmaxOptions", {"Beta": 1.0}),
        )  # fmt: skip
    for name, options in (("ADD", "AddOptions"), ("MUL", "MulOptions")):
        for count, act in ((1, 0), (16, 1), (83, 3)):
            yield write_model(
                name, [TensorSpec((1, count), "int8", 0.05, -5), TensorSpec((1, count), "int8", 0.03, 7)],
                [TensorSpec((1, count), "int8", 0.06, 2)], (options, {"FusedActivationFunction": act}),
            )  # fmt: skip


@needs_source
def test_results_are_the_references(tmp_path: Path) -> None:
    models, option = list(cases()), open_cmsis_nn(f"cmsis-nn={FOLDER}").option_text
    networks = [replace(read_network(model), host_kernels=option) for model in models]
    inputs = [[R.integers(-128, 128, n.tensors[i].shape).astype(np.int8) for i in n.inputs] for n in networks]
    found = run_sanitized(Together(networks, inputs, tmp_path))
    text = (tmp_path / "many_host.c").read_text()
    assert text.count("_body(") >= 2 * len(models)
    assert "op0_cmsis_nn_conv_2d" in text
    for made, model, given in zip(found, models, inputs, strict=True):
        np.testing.assert_array_equal(made[0].reshape(-1), TFLiteReference(model).run(given)[0].reshape(-1))


@needs_source
@pytest.mark.qemu
@pytest.mark.parametrize("runner", [qemu, unicorn])
def test_a_network_on_an_emulated_core(shared_model: Models, tmp_path: Path, runner: Any) -> None:
    """QEMU's Cortex-M55 with Helium, Unicorn's Cortex-M33 without."""
    model, out = shared_model("kws_ref_model"), tmp_path / "out"
    compile_model(model, CompileOptions("none", host_kernels=f"cmsis-nn={FOLDER}"), out)
    made = runner.create(out, RunOptions(timeout_s=300))
    given = [R.integers(-128, 128, slot.shape).astype(slot.dtype) for slot in Artifact.load(out).inputs]
    assert made.firmware.cpu == ("cortex-m55" if runner is qemu else "cortex-m33")
    for one, expected in zip(made.run(given).outputs, TFLiteReference(model.read_bytes()).run(given), strict=True):
        np.testing.assert_array_equal(one.reshape(-1), expected.reshape(-1))
