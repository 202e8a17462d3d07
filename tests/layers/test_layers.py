"""`run --layers`: right programs are right operator by operator, and a changed value is found where it was changed."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from fvp_runner.base import RunOptions
from fvp_runner.host.runner import LocalRunner
from fvp_runner.layers import LayerComparison, NpuOutput, Recorder
from fvp_runner.npu_model.bound.kernels import Bound
from fvp_runner.npu_model.bound.memory import Dma
from fvp_runner.npu_model.spec.stream import DecodedStep
from fvp_runner.references.kernels import TFLiteReference
from fvp_runner.result import OperatorResult, Verdict
from npu_memplan import compile as compile_model
from tests.support.entry import invoke
from tests.support.real_data import real_model

pytest.importorskip("tflite_micro")
WAYS: dict[str, dict[str, Any]] = {
    "vela": {},
    "tvm": {"npu_compiler": "tvm"},
    "stripes": {"npu_compiler": "tvm", "stripes": True},
}
# operators that are equal, of all; the others have no tensor of their own in memory
VISIBLE = {
    ("kws_ref_model", "vela"): (13, 13),
    ("kws_ref_model", "tvm"): (13, 13),
    ("kws_ref_model", "stripes"): (13, 13),
    ("pretrainedResnet_quant", "vela"): (16, 16),
    ("keyword_scrambled_8bit", "vela"): (15, 15),
}
SEEDS = 20


class Compiled:
    """A compiled model on the host, random inputs, and what the reference makes of them."""

    def __init__(self, name: str, way: str, folder: Path) -> None:
        compile_model(real_model(name), folder, **{"objective": "bytes", "effort": "quick", **WAYS[way]})
        self.runner = LocalRunner(folder, RunOptions(pools_after=False))
        rng = np.random.default_rng(0)
        slots = self.runner.artifact.inputs
        limits = [np.iinfo(slot.dtype) for slot in slots]
        self.inputs = [
            rng.integers(i.min, i.max + 1, s.shape).astype(s.dtype) for s, i in zip(slots, limits, strict=True)
        ]
        reference = TFLiteReference(real_model(name).read_bytes(), name)
        self.network, self.layers = reference.network, reference.layer_values(self.inputs)

    def compared(self, tamper: Any = None) -> tuple[LayerComparison, list[Any]]:
        recorder = Recorder(self.runner) if tamper is None else Tampering(self.runner, tamper)
        self.runner.watch = recorder
        self.runner.run(self.inputs)
        self.runner.watch = None
        return LayerComparison(self.network, self.layers, recorder.written), recorder.written


class Tampering(Recorder):
    """`tamper` (kernel number, what it is, its memory) may change what a kernel wrote."""

    def __init__(self, runner: LocalRunner, tamper: Any) -> None:
        super().__init__(runner)
        self.tamper, self.kernels = tamper, 0

    def see_npu(self, launch: int, step: DecodedStep, bound: Bound) -> None:
        if not isinstance(bound, Dma):
            self.tamper(self.kernels, step, bound)
            self.kernels += 1
        super().see_npu(launch, step, bound)


@cache
def compiled(name: str, way: str, folder: Path) -> Compiled:
    return Compiled(name, way, folder / f"{name}-{way}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layers")


@pytest.mark.parametrize("name, way", VISIBLE)
def test_a_right_program_is_right_operator_by_operator(name: str, way: str, folder: Path) -> None:
    comparison, _ = compiled(name, way, folder).compared()
    results = comparison.operator_results()
    assert comparison.first_difference() is None
    assert not [r for r in results if r.verdict is Verdict.DIFFERS]
    assert (sum(r.verdict is Verdict.EQUAL for r in results), len(results)) == VISIBLE[name, way]


def kernels_of_layers(model: Compiled) -> list[tuple[int, int]]:
    """(kernel, operator) of every kernel that alone made an operator's tensor, of those large enough to be told."""
    comparison, written = model.compared()
    equal = {r.index for r in comparison.operator_results() if r.verdict is Verdict.EQUAL}
    kernels = [part for part in written if isinstance(part, NpuOutput)]
    owners = [part.operator for part in kernels]
    sizes = {o.index: model.network.tensors[o.outputs[0]].size_bytes for o in model.network.cpu_operators}
    return [
        (number, part.operator)
        for number, part in enumerate(kernels)
        if part.operator in equal
        and owners.count(part.operator) == 1
        and sizes[part.operator] == part.values.nbytes > 16
    ]


@pytest.mark.parametrize("way", ["vela", "tvm"])
def test_a_value_changed_in_layer_k_is_found_at_layer_k(way: str, folder: Path) -> None:
    """One bit of one element of what a kernel wrote, for twenty seeds."""
    model = compiled("kws_ref_model", way, folder)
    choices = kernels_of_layers(model)
    assert len({operator for _, operator in choices}) >= 8
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        kernel, operator = choices[int(rng.integers(len(choices)))]

        def tamper(number: int, step: DecodedStep, bound: Bound) -> None:
            if number == kernel:  # noqa: B023
                values = bound.output.map.array
                place = tuple(int(rng.integers(extent)) for extent in values.shape)  # noqa: B023
                values[place] ^= 1 << int(rng.integers(7))  # noqa: B023

        first = model.compared(tamper)[0].first_difference()
        assert first is not None
        assert (first.index, first.mismatches) == (operator, 1), f"seed {seed}: {first}"


def test_a_layer_that_is_wrong_everywhere_is_found_too(folder: Path) -> None:
    model = compiled("kws_ref_model", "vela", folder)
    kernel, operator = kernels_of_layers(model)[5]

    def tamper(number: int, step: DecodedStep, bound: Bound) -> None:
        if number == kernel:
            bound.output.map.array[...] ^= 3

    first = model.compared(tamper)[0].first_difference()
    assert isinstance(first, OperatorResult)
    assert (first.index, first.mismatches, first.elements) == (operator, 8000, 8000)


def layers(directory: Path, *more: str) -> Result:
    return invoke("run", directory, "--layers", *more, code=None)


def test_the_command_prints_every_operator_and_keeps_the_tensors(folder: Path, tmp_path: Path) -> None:
    compiled("kws_ref_model", "tvm", folder)
    directory, reference = folder / "kws_ref_model-tvm", str(real_model("kws_ref_model"))
    done = layers(directory, "--reference", reference, "--dump", str(tmp_path / "dump"))
    assert done.exit_code == 0, done.output
    assert "kws_ref_model: bit-exact against tflite-micro\n13 operators: 13 equal\n" in done.output
    assert (
        "   9  AVERAGE_POOL_2D           equal                64  functional_1/average_pooling2d/AvgPool" in done.output
    )
    kept = sorted((tmp_path / "dump").glob("*.npy"))
    assert len(kept) == 2 * 13
    for path in kept[::2]:
        assert np.array_equal(np.load(path), np.load(path.with_suffix("").with_suffix(".reference.npy")))
    said = json.loads(layers(directory, "--reference", reference, "--json").stdout)
    assert (said["bit_exact"], said["first_that_differs"], len(said["operators"])) == (True, None, 13)


@pytest.mark.parametrize(
    "words, said",
    [
        ((), "--layers compares with the tensors of a .tflite: give --reference MODEL.tflite"),
        (("--on", "qemu"), "--layers looks into one inference of the local runner: leave --on and --steps out"),
    ],
)
def test_what_it_cannot_look_into_is_reported(folder: Path, words: tuple[str, ...], said: str) -> None:
    compiled("kws_ref_model", "tvm", folder)
    assert str(layers(folder / "kws_ref_model-tvm", *words).exception) == said
