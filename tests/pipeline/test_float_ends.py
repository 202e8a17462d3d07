"""Networks with float inputs and outputs, compiled for the numbers that lie behind them (`compile --io int8`)."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.checking.claims import compile_checked
from npu_memplan.checking.other_outputs import emit_checked
from npu_memplan.frontend.load import FormatError
from npu_memplan.models.edits import FloatEndError, with_stored_ends
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.entry import invoke
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder

SCALE, ZERO = 0.02, -3


def network(between: str = "", made: str = "int8") -> bytes:
    """Float input, QUANTIZE, CONV_2D, DEQUANTIZE, float output; with an operator that spoils one of the ends."""
    rng, b = np.random.default_rng(1), ModelBuilder()
    image, output = b.tensor((1, 16, 16, 3), "float32"), b.tensor((1, 8, 8, 8), "float32")
    stored, result = b.tensor((1, 16, 16, 3), "int8", SCALE, ZERO), b.tensor((1, 8, 8, 8), made, 0.05, 4)
    weights = b.constant(rng.integers(-90, 90, (8, 3, 3, 3)).astype(np.int8), 0.01, 0)
    bias = b.constant(rng.integers(-900, 900, 8).astype(np.int32), 0.0002, 0)
    outputs = [output]
    b.operator("QUANTIZE", [image], [stored], "QuantizeOptions")
    b.operator("CONV_2D", [stored, weights, bias], [result], "Conv2DOptions", Padding=0, StrideH=2, StrideW=2)
    if between == "two readers":
        outputs.append(b.tensor((1, 16, 16, 3), "float32"))
        b.operator("ABS", [image], [outputs[-1]], "AbsOptions")
    if between == "float tail":
        wide = b.tensor((1, 8, 8, 8), "float32")
        b.operator("DEQUANTIZE", [result], [wide], "DequantizeOptions", 2)
        b.operator("LOGISTIC", [wide], [output])
    else:
        b.operator("DEQUANTIZE", [result], [output], "DequantizeOptions", 2)
    return b.made([image], outputs).finish()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = save(tmp_path / "floats.tflite", network())
    return path


@pytest.mark.parametrize("accelerator", ["none", "ethos-u55-256", "ethos-u85-256"])
def test_the_ends_are_stored_numbers_and_results_exact(accelerator: str, model: Path, tmp_path: Path) -> None:
    artifact = compile_checked(model, CompileOptions(accelerator, io="int8", effort="quick"), tmp_path / "out")
    assert [(slot.dtype, slot.zero_point) for slot in (*artifact.inputs, *artifact.outputs)] == [
        ("int8", ZERO),
        ("int8", 4),
    ]
    assert [operator.kind for operator in artifact.operators] == ["CONV_2D"]
    assert artifact.check.verdict is CheckVerdict.EQUAL
    assert artifact.source_sha256 == hashlib.sha256(model.read_bytes()).hexdigest()
    command = [
        "run",
        str(tmp_path / "out"),
        "--on",
        "local",
        "--input",
        "random:1",
        "--reference",
        str(model),
        "--json",
    ]
    done = invoke(*command)
    assert '"bit_exact": true' in done.output
    assert "is not the file" not in done.output


def test_it_needs_less_memory(model: Path, tmp_path: Path) -> None:
    floats, stored = (
        compile_checked(model, CompileOptions(io=io, effort="quick"), tmp_path / io) for io in ("file", "int8")
    )
    assert floats.plan.usage[0].used_bytes >= 4 * 16 * 16 * 3
    assert stored.plan.usage[0].used_bytes <= 16 * 16 * 3 + 8 * 8 * 8


def test_a_file_for_tflite_micro_has_the_same_ends(model: Path) -> None:
    emitted = emit_checked(model, CompileOptions(io="int8", effort="quick"))
    made = read_network(emitted.content, "emitted")
    assert [made.tensors[i].dtype for i in (*made.inputs, *made.outputs)] == ["int8", "int8"]
    assert not made.cpu_operators


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_the_header_converts_as_the_operators_that_were_left_out(compiler: str, model: Path, tmp_path: Path) -> None:
    compile_checked(model, CompileOptions("none", io="int8"), tmp_path / "out")
    source = '#include "floats.h"\nint8_t in(float v) { return floats_input_0_from_float(v); }\n'
    source += "float out(int8_t v) { return floats_output_0_to_float(v); }\n"
    library = tmp_path / "header.so"
    flags = ["-x", "c", "-std=c11", "-O2", "-Wall", "-Wextra", "-Wconversion", "-Werror", "-shared", "-fPIC"]
    command = [compiler, *flags, "-I", str(tmp_path / "out" / "src"), "-", "-o", str(library), "-lm"]
    subprocess.run(command, input=source, text=True, check=True)
    header = ctypes.CDLL(str(library))
    getattr(header, "in").argtypes, getattr(header, "in").restype = [ctypes.c_float], ctypes.c_int8
    header.out.argtypes, header.out.restype = [ctypes.c_int8], ctypes.c_float
    scale = np.float32(SCALE)
    near = (np.arange(-300, 300, dtype=np.float32) + np.float32(0.5)) * scale
    values = [*near, *np.nextafter(near, np.float32(9)), np.float32(1e30), np.float32(-1e30), np.float32(np.inf)]
    for value in values:
        stored = float(np.float32(value / scale))
        wanted = np.clip(np.copysign(np.floor(abs(stored) + 0.5), stored) + ZERO, -128, 127)
        assert getattr(header, "in")(value) == wanted
    assert [header.out(v) for v in (-128, 4, 127)] == [
        float(np.float32(v - 4) * np.float32(0.05)) for v in (-128, 4, 127)
    ]


@pytest.mark.parametrize(
    ("between", "message"),
    [
        ("two readers", r"float input 't0' of floats.tflite is read by QUANTIZE to int8, ABS, and must be read by one"),
        ("float tail", r"float output 't1' of floats.tflite is made by LOGISTIC, and must be made by a DEQUANTIZE"),
    ],
)
def test_ends_that_stay_floats_are_refused(between: str, message: str, model: Path, tmp_path: Path) -> None:
    model.write_bytes(network(between))
    with pytest.raises(FloatEndError, match=message):
        compile_checked(model, CompileOptions(io="int8"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_network_without_float_ends_is_as_it_is() -> None:
    data = (Path(__file__).parents[2] / "examples" / "digits" / "digits.tflite").read_bytes()
    assert with_stored_ends(data, "digits") is data


def test_it_is_for_tflite(tmp_path: Path) -> None:
    path = save(tmp_path / "graph.onnx", b"\x08\x08")
    with pytest.raises(FormatError, match="--io int8 is for TFLite models"):
        compile_checked(path, CompileOptions("none", io="int8"), tmp_path / "out")
