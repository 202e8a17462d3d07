"""Native lowering of TOSA: every operator of random numbers, on the NPU model, equals TOSA's reference model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.other_formats import TosaReference, find_tool
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.lowering import lower
from npu_memplan.exactness import TOSA_LAYERS
from npu_memplan.frontend.tosa.layers import TosaLayersError, build_layers
from npu_memplan.models.tosa import read_tosa_graph
from tests.support.entry import invoke
from tests.support.on_model import run_program
from tests.support.tosa_graphs import DOUBLE, TosaFile
from tests.support.tosa_operators import CASES, ONLY_U85

SEEDS = 6
OLDER = ("ethos-u55-128", "ethos-u65-512")
NETWORKS = Path(__file__).resolve().parents[1] / "models"

needs_reference = pytest.mark.skipif(find_tool("tosa_reference_model") is None, reason="tosa-tools is not installed")


@needs_reference
@pytest.mark.parametrize("kind", [*CASES, *ONLY_U85])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_layers_equal_the_reference_model(kind: str, seed: int, u85_of: Callable[..., str]) -> None:
    rng = np.random.default_rng([seed, *kind.encode()])
    data = (CASES | ONLY_U85)[kind](rng)
    graph = read_tosa_graph(data, "random")
    tensors = [graph.tensor(index) for index in graph.network.inputs]
    info = [np.iinfo(t.dtype) for t in tensors]
    ranges = [t.index_range or (i.min, i.max + 1) for i, t in zip(info, tensors, strict=True)]
    values = [rng.integers(*r, t.shape).astype(t.dtype) for r, t in zip(ranges, tensors, strict=True)]
    expected = TosaReference(data, "random").run(values)
    for name in (*(OLDER if kind in CASES else ()), u85_of(kind, seed)):
        layers, _ = build_layers(graph, accelerator(name), "npu")
        found = run_program(lower(layers, accelerator(name)), {t.name: v for t, v in zip(tensors, values, strict=True)})
        for got, want in zip(found, expected, strict=True):
            assert int(np.count_nonzero(got.reshape(want.shape) != want)) == 0, (kind, seed, name)
    assert len(np.unique(expected[0])) > 1


@needs_reference
@pytest.mark.parametrize(
    ("name", "operators"),
    [
        ("three_convolutions", 22),
        ("int16_convolutions", 24),
        ("resized_maxima", 20),
        ("softmax_of_tokens", 25),
        ("attention", 42),
    ],
)
def test_an_exported_network_is_planned_in_stripes_and_run(tmp_path: Path, name: str, operators: int) -> None:
    made, model = str(tmp_path / "made"), str(NETWORKS / f"{name}.tosa")
    words = ["--accelerator", "ethos-u55-128", "--npu-compiler", "tvm", "--stripes", "--no-check", "-o", made, "--json"]
    compiled = invoke("compile", model, *words)
    document = json.loads(compiled.stdout)
    assert document["exactness"]["exact"] == operators
    ran = invoke("run", made, "--on", "local", "--reference", model, "--json")
    assert json.loads(ran.stdout)["bit_exact"]


@needs_reference
@pytest.mark.parametrize("kind", ["GATHER", "SCATTER", "GREATER", "REVERSE"])
def test_what_only_ethosu85_has_runs_on_planned_pools(tmp_path: Path, kind: str) -> None:
    made, model = str(tmp_path / "made"), tmp_path / "model.tosa"
    model.write_bytes(ONLY_U85[kind](np.random.default_rng(11)))
    words = ["--accelerator", "ethos-u85-512", "--npu-compiler", "tvm", "--no-check", "-o", made]
    invoke("compile", model, *words)
    ran = invoke("run", made, "--on", "local", "--reference", model, "--json")
    assert json.loads(ran.stdout)["bit_exact"]


def test_damaged_files_are_lowered_or_refused() -> None:
    refused = 0
    for kind, make in CASES.items():
        rng = np.random.default_rng([7, *kind.encode()])
        whole = make(rng)
        for _ in range(60):
            data = bytearray(whole)
            data[int(rng.integers(8, len(data)))] = int(rng.integers(0, 256))
            try:
                layers, _ = build_layers(read_tosa_graph(bytes(data), "damaged"), accelerator("ethos-u55-128"), "npu")
                lower(layers, accelerator("ethos-u55-128"))
            except NpuMemplanError:
                refused += 1
    assert refused > 60


def test_shapes_that_do_not_go_together_are_refused() -> None:
    file = TosaFile()
    x = file.input(1, 8, 8, 4)
    said = _refused(file, file.operator("MAX_POOL2D", [x], (1, 5, 4, 4), attribute={0: (2, 2), 1: (2, 2), 2: (0,) * 4}))
    assert "its result has the shape [1, 5, 4, 4] in the file, its inputs make [1, 4, 4, 4]" in said


def test_every_kind_that_is_called_exact_is_tried() -> None:
    rng = np.random.default_rng(1)
    tried = {o.kind for make in (CASES | ONLY_U85).values() for o in read_tosa_graph(make(rng), "random").operators}
    assert tried == TOSA_LAYERS


def _refused(file: TosaFile, *outputs: str) -> str:
    with pytest.raises(TosaLayersError) as found:
        build_layers(read_tosa_graph(file.finish(*outputs), "model"), accelerator("ethos-u55-128"), "npu")
    return str(found.value)


def test_operators_without_a_layer_are_named() -> None:
    file = TosaFile()
    said = _refused(file, file.operator("CLZ", [file.input(1, 4)], (1, 4)))
    assert said == (
        "model has no native lowering: operator 0 (CLZ): there is no layer for it; --npu-compiler vela compiles it"
    )


def test_values_that_are_narrowed_between_are_no_table() -> None:
    file, shape = TosaFile(), (1, 2, 2, 8)
    words = file.rescale(file.input(*shape), shape, [(1 << 30, 20)], (0, 0), ("int8", "int16"))
    again = file.rescale(words, shape, [(1 << 30, 30)], (0, 0), ("int16", "int32"))
    magnitude = file.operator("ABS", [again], shape, "int32")
    said = _refused(file, file.rescale(magnitude, shape, [(1 << 30, 40)], (0, 0)))
    assert "ABS makes its operand" in said


def test_sums_of_words_with_two_scales_are_refused() -> None:
    file, shape, types = TosaFile(), (1, 2, 2, 8), ("int16", "int32")
    pairs = [(file.input(*shape, dtype="int16"), scale) for scale in ((1 << 30, 19), (1518500249, 20))]
    wide = [file.rescale(name, shape, [scale], (0, 0), types) for name, scale in pairs]
    total = file.operator("ADD", wide, shape, "int32")
    said = _refused(file, file.rescale(total, shape, [(1 << 30, 41)], (0, 0), ("int32", "int16")))
    assert "no scales of the NPU were found that make its ADD exactly" in said


def test_sums_of_which_no_scales_are_found_are_refused() -> None:
    file, shape = TosaFile(), (1, 2, 2, 8)
    names = [file.input(*shape), file.input(*shape)]
    wide = [file.rescale(n, shape, [(1518500249, 12)], (0, 0), ("int8", "int32")) for n in names]
    said = _refused(file, file.rescale(file.operator("ADD", wide, shape, "int32"), shape, [(1 << 30, 49)], (0, 0)))
    assert "no scales of the NPU were found that make its ADD exactly" in said


def test_roundings_of_two_kinds_are_refused() -> None:
    file, shape = TosaFile(), (1, 2, 2, 8)
    once = file.rescale(file.input(*shape), shape, [(1518500249, 32)], (0, 0), ("int8", "int8"))
    twice = file.rescale(once, shape, [(1518500249, 32)], (0, 0), ("int8", "int8"), DOUBLE)
    assert "some of its RESCALEs round once, others twice" in _refused(file, twice)
