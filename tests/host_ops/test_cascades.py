"""Operators in turn, row by row, give the reference's bytes, keep as many rows as they read, and save memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import CheckVerdict
from npu_memplan.checking.claims import compile_checked
from npu_memplan.compiler import plan_model
from npu_memplan.frontend.host_ops.cascade import Cascade, find_cascades, row_operator
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.options import CompileOptions
from npu_memplan.transform.verification.memory import FaultKind
from npu_memplan.transform.verification.module import memory_plan_faults
from npu_memplan.vocabulary import DISTANCES
from tests.exactness.test_host_operators import values
from tests.host_ops.test_kernel_forms import FORMS, needs_emulator, run_emulated
from tests.support.many_operators import EXTREMES, LEVELS, Together, networks_that_differ, run_sanitized, whole_cascade
from tests.support.operator_table import row
from tests.support.real_data import Models
from tests.support.tflite_builder import ModelBuilder

Step = tuple[Any, ...]
QUANTISATION = {"int8": (0.05, -4), "uint8": (0.05, 119), "int16": (0.0002, 0), "float32": (None, 0)}


class Chain:
    """A model of one operator after the other."""

    def __init__(self, dtype: str, shape: Sequence[int], seed: int) -> None:
        self.b, self.dtype, self.rng = ModelBuilder(), dtype, np.random.default_rng(seed)
        self.scale, self.zero = QUANTISATION[dtype]
        self.first = self.last = self.made(shape)
        self.all = [self.first]

    def made(self, shape: Sequence[int]) -> int:
        return self.b.tensor(shape, self.dtype, self.scale, self.zero)

    def shape(self, tensor: int) -> tuple[int, ...]:
        return tuple(self.b.tensors[tensor].shape)

    def add(self, kind: str, *numbers: Any) -> None:
        """A step: its kind, and the numbers that its method takes."""
        made = getattr(self, kind)(self.last, *numbers)
        self.all.append(made)
        self.last = made

    def _weights(self, shape: Sequence[int], terms: int, axis: int) -> int:
        if self.dtype == "float32":
            return self.b.constant(self.rng.normal(0, terms**-0.5, shape).astype(np.float32))
        if self.dtype == "uint8":
            return self.b.constant(self.rng.integers(0, 256, shape).astype(np.uint8), 0.016 * terms**-0.5, 128)
        scales = 0.016 * terms**-0.5 * self.rng.uniform(0.7, 1.4, shape[axis])
        return self.b.constant(self.rng.integers(-127, 128, shape).astype(np.int8), scales, 0, axis)

    def _bias(self, weights: int, channels: int) -> int:
        scale = self.b.tensors[weights].scale
        kind = {"float32": "float32", "int16": "int64"}.get(self.dtype, "int32")
        stored = self.rng.integers(-40, 40, channels).astype(kind)
        return self.b.constant(stored, None if scale is None else np.asarray(scale) * self.scale)

    @staticmethod
    def _extent(size: int, kernel: int, stride: int, same: bool, dilation: int = 1) -> int:
        return -(-size // stride) if same else (size - (kernel - 1) * dilation - 1) // stride + 1

    def conv(
        self, x: int, out: int, k: tuple[int, int], stride: int, same: bool, dilation: int = 1, act: int = 0
    ) -> int:
        """A convolution."""
        _, h, w, c = self.shape(x)
        weights = self._weights((out, *k, c), k[0] * k[1] * c, 0)
        sizes = (self._extent(e, n, stride, same, dilation) for e, n in zip((h, w), k, strict=True))
        y = self.made((1, *sizes, out))
        self.b.operator(
            "CONV_2D", [x, weights, self._bias(weights, out)], [y], "Conv2DOptions", 3, StrideH=stride, StrideW=stride,
            DilationHFactor=dilation, DilationWFactor=dilation, Padding=0 if same else 1, FusedActivationFunction=act,
        )  # fmt: skip
        return y

    def depthwise(self, x: int, times: int, k: int, stride: int, same: bool, dilation: int = 1) -> int:
        """A depthwise convolution."""
        _, h, w, c = self.shape(x)
        weights = self._weights((1, k, k, c * times), k * k, 3)
        y = self.made((1, *(self._extent(e, k, stride, same, dilation) for e in (h, w)), c * times))
        self.b.operator(
            "DEPTHWISE_CONV_2D", [x, weights, self._bias(weights, c * times)], [y], "DepthwiseConv2DOptions", 3,
            StrideH=stride, StrideW=stride, DepthMultiplier=times, DilationHFactor=dilation, DilationWFactor=dilation,
            Padding=0 if same else 1,
        )  # fmt: skip
        return y

    def pool(self, x: int, kind: str, k: int, stride: int, same: bool) -> int:
        """A pool."""
        _, h, w, c = self.shape(x)
        y = self.made((1, *(self._extent(e, k, stride, same) for e in (h, w)), c))
        self.b.operator(
            f"{kind}_POOL_2D", [x], [y], "Pool2DOptions", 2, StrideH=stride, StrideW=stride, FilterHeight=k,
            FilterWidth=k, Padding=0 if same else 1,
        )  # fmt: skip
        return y

    def pad(self, x: int, top: int, bottom: int) -> int:
        """Rows and columns around."""
        _, h, w, c = self.shape(x)
        y = self.made((1, h + top + bottom, w + 1, c))
        sides = self.b.constant(np.array([[0, 0], [top, bottom], [1, 0], [0, 0]], np.int32))
        self.b.operator("PAD", [x, sides], [y], "PadOptions")
        return y

    def sum(self, x: int, back: int) -> int:
        """The sum with the tensor that was made so many steps before, or itself."""
        alike = [t for t in self.all[: len(self.all) - back] if self.shape(t) == self.shape(x)]
        y = self.made(self.shape(x))
        self.b.operator("ADD", [x, alike[-1] if alike else x], [y], "AddOptions", 2)
        return y

    def table(self, x: int) -> int:
        """A leaky ReLU, of 8 bits a table."""
        y = self.made(self.shape(x))
        self.b.operator("LEAKY_RELU", [x], [y], "LeakyReluOptions", 2, Alpha=0.25)
        return y

    def beside(self, x: int, back: int) -> int:
        """Channels of it and of one made before."""
        alike = [t for t in self.all[: len(self.all) - back] if self.shape(t)[:3] == self.shape(x)[:3]] or [x]
        y = self.made((*self.shape(x)[:3], self.shape(x)[3] + self.shape(alike[-1])[3]))
        self.b.operator("CONCATENATION", [x, alike[-1]], [y], "ConcatenationOptions", 2, Axis=3)
        return y

    def finish(self, results: Sequence[int] = (-1,)) -> bytes:
        """The model, whose outputs are the tensors of these steps."""
        return self.b.made([self.first], [self.all[i] for i in results]).finish()


def model_of(
    steps: Sequence[Step], dtype: str, shape: Sequence[int], seed: int = 3, results: Sequence[int] = (-1,)
) -> bytes:
    chain = Chain(dtype, shape, seed)
    for step in steps:
        chain.add(*step)
    return chain.finish(results)


def network_of(model: bytes, name: str = "") -> Network:
    return replace(read_network(model, name), in_rows=True)


FRONT = ("conv", 8, (3, 3), 2, True)
THREE = ("depthwise", 1, 3, 1, True)
ONE = ("conv", 6, (1, 1), 1, True)
SCENARIOS: dict[str, tuple[Step, ...]] = {
    "two rows alike": (THREE, THREE),
    "an inverted block": (FRONT, ONE, THREE, ONE, ("sum", 2)),
    "stride 2 after 2": (FRONT, ("depthwise", 2, 3, 2, True), ("depthwise", 1, 3, 2, True)),
    "no padding": (("conv", 5, (3, 2), 1, False), ("conv", 4, (5, 3), 2, False), ("depthwise", 1, 2, 1, False)),
    "dilation": (("conv", 4, (3, 3), 1, True, 2), ("depthwise", 1, 3, 1, False, 3), ONE),
    "rows that nobody reads": (THREE, ("conv", 4, (1, 1), 2, True), ("conv", 4, (2, 2), 3, False)),
    "a kernel over all rows": (ONE, ("conv", 3, (20, 1), 1, True), THREE),
    "fused limits": (("conv", 7, (3, 3), 1, True, 1, 1), ("conv", 7, (1, 3), 1, True, 1, 3)),
    "pools": (("pool", "MAX", 2, 2, False), ("pool", "AVERAGE", 3, 1, True), ("pool", "MAX", 3, 2, True), ONE),
    "a pad": (("pad", 2, 1), ("conv", 4, (4, 4), 2, False), ("pad", 0, 3), ("pool", "AVERAGE", 2, 2, True)),
    "tables": (("table",), THREE, ("table",), ONE),
    "sums": (THREE, ("sum", 1), ("depthwise", 1, 5, 1, True), ("sum", 2), ("sum", 9)),
    "channels": (("conv", 3, (3, 3), 1, True), ("beside", 1), THREE, ("beside", 2), ("pool", "MAX", 3, 1, True)),
}  # fmt: skip
DTYPES = list(QUANTISATION)


def drawn(seed: int, dtype: str) -> bytes:
    """A chain of three to eight operators."""
    rng = np.random.default_rng(seed)
    chain = Chain(dtype, (1, int(rng.integers(9, 26)), int(rng.integers(4, 10)), int(rng.integers(1, 6))), seed)
    for _ in range(int(rng.integers(3, 9))):
        _, h, w, c = chain.shape(chain.last)
        k, stride, same = int(rng.integers(1, min(h, w, 5) + 1)), int(rng.integers(1, 3)), bool(rng.integers(2))
        if h // stride < 3 or w // stride < 2:
            stride, same = 1, True
        if not same and min(h, w) - k < 2 * stride:
            same = True
        steps: list[Step] = [
            ("conv", int(rng.integers(1, 10)), (k, max(1, k - 1)), stride, same),
            ("depthwise", 1 if c > 6 else int(rng.integers(1, 4)), k, stride, same),
            ("pool", ("MAX", "AVERAGE")[int(rng.integers(2))], k, stride, same),
            ("sum", int(rng.integers(0, 4))),
            ("pad", int(rng.integers(3)), int(rng.integers(3))),
            ("table",),
        ]
        chain.add(*steps[int(rng.choice(len(steps), p=(0.3, 0.25, 0.15, 0.15, 0.05, 0.1)))])
    return chain.finish()


def cases(dtype: str) -> dict[str, bytes]:
    found = {name: model_of(steps, dtype, (1, 20, 7, 4)) for name, steps in SCENARIOS.items()}
    found["two results"] = model_of((THREE, ONE, THREE), dtype, (1, 9, 5, 3), results=(0 + 2, -1))
    return found | {f"drawn {seed}": drawn(seed, dtype) for seed in range(20 if dtype == "int8" else 5)}


def together_of(models: dict[str, bytes], folder: Path) -> tuple[Together, list[list[np.ndarray]]]:
    """The models as one program, each as one cascade, and the reference's outputs."""
    rng = np.random.default_rng(len(models))
    networks = [network_of(model, name) for name, model in models.items()]
    inputs = [values(rng, network) for network in networks]
    expected = [TFLiteReference(m).run(given) for m, given in zip(models.values(), inputs, strict=True)]
    return Together(networks, inputs, folder), expected


def require_equal(together: Together, found: Sequence[Sequence[np.ndarray]], expected: Sequence[Any]) -> None:
    for network, ours, theirs in zip(together.networks, found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(a.reshape(-1), b.reshape(-1), network.name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_operators_in_turn_give_the_references_bytes(dtype: str, tmp_path: Path) -> None:
    together, expected = together_of(cases(dtype), tmp_path)
    found = run_sanitized(together)
    require_equal(together, found, expected)
    ways = LEVELS if dtype == "int8" else EXTREMES[:1]
    assert networks_that_differ(together, ways, found) == []
    assert sum(len(np.unique(outputs[0])) > 9 for outputs in found) > 0.8 * len(found)


@needs_emulator
@pytest.mark.qemu
@pytest.mark.parametrize("form", FORMS)
def test_a_form_gives_the_references_bytes(form: str, tmp_path: Path) -> None:
    together, expected = together_of(cases("int8"), tmp_path)
    require_equal(together, run_emulated(together, FORMS[form], "-O2"), expected)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("two rows alike", [3]),
        ("an inverted block", [1, 3, 1, 1]),
        ("stride 2 after 2", [3, 3]),
        ("no padding", [5, 2]),
        ("dilation", [7, 1]),
        ("rows that nobody reads", [1, 2]),
        ("a kernel over all rows", [20, 3]),
        ("pools", [3, 3, 1]),
        ("tables", [3, 1, 1]),
    ],
)
def test_as_many_rows_are_kept_as_are_read(name: str, kept: list[int]) -> None:
    cascade = whole_cascade(network_of(model_of(SCENARIOS[name], "int8", (1, 20, 7, 4))))
    assert list(cascade.kept.values()) == kept


def is_safe(network: Network, cascade: Cascade, distance: int) -> bool:
    """Whether no row of the input is overwritten before its last turn, by the bytes that each turn reads and writes."""
    (source,), (target,) = cascade.inputs, cascade.outputs
    read, write = (network.tensors[t].size_bytes // network.tensors[t].shape[1] for t in (source, target))
    last, done, written = dict[int, int](), [0] * len(cascade.operators), list[tuple[int, int]]()
    for turn, (k, _) in enumerate(cascade.turns):
        one = cascade.operators[k]
        if source in one.begins:
            last |= dict.fromkeys(range(one.begins[source][done[k]], one.ends[source][done[k]]), turn)
        if one.output == target:
            written.append((turn, (done[k] + 1) * write))
        done[k] += 1
    return all(end + distance <= row * read for turn, end in written for row, until in last.items() if until >= turn)


def test_a_distance_leaves_every_row_until_it_was_read() -> None:
    """In most cascades one byte more would be too far."""
    tight = 0
    for seed in range(30):
        network = network_of(drawn(seed, "int8"))
        cascade = whole_cascade(network)
        ((pair, distance),) = cascade.distances.items()
        assert pair == (network.inputs[0], network.outputs[0])
        assert is_safe(network, cascade, distance), seed
        tight += not is_safe(network, cascade, distance + 1)
    assert tight > 20


@pytest.mark.parametrize("name", ["MEAN", "FULLY_CONNECTED", "SOFTMAX", "SPLIT", "RESIZE_BILINEAR", "ARG_MAX"])
def test_what_is_not_made_row_by_row_is_no_part(name: str) -> None:
    network = read_network(row(name, "int8", 0).build())
    assert row_operator(network, network.cpu_operators[0]) is None


def test_several_images_are_no_part() -> None:
    for images, one in ((1, True), (2, False)):
        b = ModelBuilder()
        x, y = (b.tensor((images, 8, 8, 2), "int8", 0.1, 0) for _ in range(2))
        b.operator("RELU", [x], [y])
        network = read_network(b.made([x], [y]).finish())
        assert (row_operator(network, network.cpu_operators[0]) is not None) == one


def call_names(artifact: Artifact) -> list[str]:
    return [call.function for call in artifact.calls]


@pytest.fixture(scope="module")
def resnet(shared_model: Models, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Artifact]:
    def compile_with(**options: Any) -> Artifact:
        folder = tmp_path_factory.mktemp("resnet") / "out"
        return compile_checked(shared_model("pretrainedResnet_quant"), CompileOptions("none", **options), folder)

    return compile_with


def test_a_program_in_turn_takes_less_than_half(resnet: Callable[..., Artifact]) -> None:
    whole, rows = resnet(), resnet(objective="bytes")
    assert rows.check.verdict is whole.check.verdict is CheckVerdict.EQUAL
    used = [artifact.plan.usage[0].used_bytes for artifact in (whole, rows)]
    assert used[1] < 0.5 * used[0]
    assert len(call_names(rows)) < len(call_names(whole))
    assert whole.host_cycles is not None
    assert rows.host_cycles is not None
    assert whole.host_cycles < rows.host_cycles < 1.05 * whole.host_cycles
    in_pool = resnet(pools={"sram": used[0] // 2})  # which has too few for whole maps
    assert in_pool.plan.usage[0].used_bytes == used[1]
    assert call_names(resnet(pools={"sram": used[0]})) == call_names(whole)


def test_a_verified_plan_lies_over_an_input_as_far_as_is_stated(tmp_path: Path) -> None:
    """What C does in between is not seen: it is undecided within the distance, and a fault beyond."""
    path = tmp_path / "model.tflite"
    path.write_bytes(model_of((("conv", 32, (3, 3), 1, True), ("conv", 8, (3, 3), 1, True)), "int8", (1, 40, 8, 8)))
    module = plan_model(path, CompileOptions("none", objective="bytes")).module
    faults, undecided = memory_plan_faults(module)
    assert faults == ()
    assert any("whose code says that it may be" in text for text in undecided)
    (variable,) = (v for v, f in module.functions.items() if DISTANCES in (f.attrs or {}))
    stated = [[i, o, int(d) - 4096] for i, o, d in module[variable].attrs[DISTANCES]]
    module.update_func(variable, module[variable].with_attr(DISTANCES, stated))
    faults, _ = memory_plan_faults(module)
    assert {fault.kind for fault in faults} == {FaultKind.OVERWRITTEN}


def test_a_network_that_gains_nothing_is_left_as_it_is() -> None:
    network = network_of(model_of((ONE,), "int8", (1, 8, 8, 4)))
    assert find_cascades(network) == {}
    two = network_of(model_of((THREE, THREE), "int8", (1, 8, 8, 4)))
    assert find_cascades(replace(two, in_rows=False)) == {}


def test_a_view_of_what_is_made_ends_a_cascade() -> None:
    """It is another name of bytes that have to be whole, and stands where its operator stood."""
    chain = Chain("int8", (1, 64, 4, 2), 5)
    for step in (("conv", 16, (3, 3), 1, True), ("conv", 16, (3, 3), 1, True)):
        chain.add(*step)
    wide, flat = chain.last, chain.made((1, 64 * 4 * 16))
    chain.b.operator("RESHAPE", [wide, chain.b.constant(np.array([1, -1], np.int32))], [flat], "ReshapeOptions")
    chain.add("conv", 2, (3, 3), 2, True)
    network = network_of(chain.b.made([chain.first], [chain.last, flat]).finish())
    for end, cascade in find_cascades(network).items():
        assert cascade is None or end < network.cpu_operators[2].index or wide not in cascade.kept
