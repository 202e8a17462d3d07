"""Chains of operators on one 8-bit tensor become one table, which equals the reference's run of the chain."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.checking.claims import compile_checked
from npu_memplan.frontend.host_ops.chain import find_chains
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from tests.support.tflite_builder import ModelBuilder

SHAPE = (1, 4, 8, 8)  # 256 elements
OPTIONS = {"LEAKY_RELU": ("LeakyReluOptions", {"Alpha": 0.3})} | {
    name: (f"{name.capitalize()}Options", {}) for name in ("ADD", "SUB", "MUL", "DIV")
}
Step = str | tuple[str, float] | tuple[float, str]  # an operator, with a constant behind or before its input


def chain(source: str, steps: Sequence[Step], result: str, readers: int = 1, shape: Sequence[int] = SHAPE) -> bytes:
    """`steps` from a tensor of `source` to one of `result`, with floats between; the last has other `readers` too."""
    b = ModelBuilder()
    scale = {"float32": (None, 0), "int8": (0.04, -5), "uint8": (0.05, 120)}
    x = first = b.tensor(shape, source, *scale[source])
    outputs = []
    for number, step in enumerate(steps):
        name = step if isinstance(step, str) else next(part for part in step if isinstance(part, str))
        inputs = [x]
        if not isinstance(step, str):
            (number_of,) = (b.constant(np.array([part], np.float32)) for part in step if part != name)
            inputs = [x, number_of] if step[0] == name else [number_of, x]
        kind = result if number == len(steps) - 1 else "float32"
        y = b.tensor(shape, kind, *(scale["int8"] if kind == "int8" else scale[kind]))
        options, fields = OPTIONS.get(name, (None, {}))
        b.operator(name, inputs, [y], options, 2 if name == "DEQUANTIZE" else 1, **fields)
        x = y
        if number == len(steps) - 2 and readers > 1:
            outputs.append(y)
    return b.made([first], [x, *outputs]).finish()


CHAINS: dict[str, tuple[str, tuple[Step, ...], str]] = {
    "image": ("uint8", ("CAST", ("MUL", 1 / 127.5), ("SUB", 1.0), "QUANTIZE"), "int8"),
    "cast": ("uint8", ("CAST", "QUANTIZE"), "int8"),
    "reciprocal": ("int8", ("DEQUANTIZE", "NEG", "EXP", ("ADD", 1.0), (1.0, "DIV"), "QUANTIZE"), "int8"),
    "difference": ("uint8", ("DEQUANTIZE", (2.5, "SUB"), "ABS", "SQRT", "QUANTIZE"), "uint8"),
    "limits": ("int8", ("DEQUANTIZE", ("MAXIMUM", -2.0), ("MINIMUM", 1.5), "SQUARE", "QUANTIZE"), "int8"),
    "floats": ("int8", ("DEQUANTIZE", "SIN", "COS", ("MUL", 9.0), "FLOOR"), "float32"),
    "wide": ("uint8", ("CAST", ("MUL", 1 / 255)), "float32"),
    **{
        name.lower(): ("int8", ("DEQUANTIZE", name, "QUANTIZE"), "int8")
        for name in ("LOGISTIC", "TANH", "RELU6", "HARD_SWISH", "ELU", "ROUND", "CEIL", "LEAKY_RELU")
    },
}


def all_values(dtype: str) -> np.ndarray:
    return np.arange(256).astype(np.uint8).view(dtype).reshape(SHAPE)


def reference_of(model: bytes, given: np.ndarray) -> np.ndarray:
    return np.asarray(TFLiteReference(model).run([given])[0])


@pytest.mark.parametrize("name", CHAINS)
def test_the_table_is_the_references_for_all_values(name: str) -> None:
    source, steps, result = CHAINS[name]
    model = chain(source, steps, result)
    network = read_network(model)
    (found,) = (one for one in find_chains(network).values() if one is not None)
    assert [o.name for o in found.operators] == [o.name for o in network.cpu_operators]
    given = np.sort(all_values(source).reshape(-1))
    expected = reference_of(model, given.reshape(SHAPE)).reshape(-1)
    assert len(set(expected.tolist())) > 4
    np.testing.assert_array_equal(found.table.view(f"u{found.table.itemsize}"), expected.view(f"u{expected.itemsize}"))


@pytest.mark.parametrize("accelerator", ["none", "ethos-u55-256"])
@pytest.mark.parametrize("name", ["image", "floats"])
def test_a_program_runs_the_chain_as_one_call(name: str, accelerator: str, tmp_path: Path) -> None:
    path = tmp_path / "chain.tflite"
    path.write_bytes(chain(*CHAINS[name]))
    artifact = compile_checked(path, CompileOptions(accelerator, effort="quick"), tmp_path / "out")
    assert len(artifact.calls) == 1
    assert [operator.kind for operator in artifact.operators] == [
        step if isinstance(step, str) else next(part for part in step if isinstance(part, str))
        for step in CHAINS[name][1]
    ]
    assert artifact.check.verdict is CheckVerdict.EQUAL


def test_what_others_read_too_ends_a_chain() -> None:
    given = chain("int8", ("DEQUANTIZE", "NEG", "QUANTIZE"), "int8", readers=2)
    inside, last = find_chains(read_network(given)).values()
    assert inside is None
    assert last is not None
    assert [o.name for o in last.operators] == ["DEQUANTIZE", "NEG"]


def test_few_floats_are_no_table() -> None:
    chains = find_chains(read_network(chain("int8", ("DEQUANTIZE", "NEG"), "float32", shape=(1, 255))))
    assert chains == {}
