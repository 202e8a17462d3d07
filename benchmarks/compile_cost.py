"""What a compile costs beside `vela`: CPU seconds, peak memory and bytes written, by network and by size.

    python -m benchmarks.compile_cost [MODEL.tflite ...] [--family chain,attention] [--large] [--accelerator NAME]

A row a network: CPU seconds (user and system, of all processes) of `vela`, and of `npu-memplan compile` with the
default effort and with `--effort quick`, each with its ratio to `vela`; the peak of its largest process in MB, beside
the size of the file; what it writes to what Vela's file takes. Networks of a family grow; the exponent says how the CPU
of the default grows from the size before: 1 is linear. The three run one after the other for each network, without the
cache, so that a busy machine is as busy for each of them. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np

from npu_memplan.cache import VARIABLE
from tests.support.tflite_builder import ModelBuilder

VELA_FLAGS = {
    "ethos-u55": ("Ethos_U55_High_End_Embedded", "Shared_Sram"),
    "ethos-u65": ("Ethos_U65_High_End", "Dedicated_Sram"),
    "ethos-u85": ("Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram"),
}
RELU, NONE = 1, 0


class Growing(ModelBuilder):
    """Builds int8 networks of any size."""

    def __init__(self) -> None:
        super().__init__()
        self.random = np.random.default_rng(0)

    def map(self, *shape: int) -> int:
        return self.tensor(shape, "int8", 0.05, -3)

    def weights(self, *shape: int) -> int:
        return self.constant(self.random.integers(-127, 128, shape).astype(np.int8), 0.004)

    def biases(self, count: int) -> int:
        return self.constant(self.random.integers(-500, 500, count).astype(np.int32), 0.05 * 0.004)

    def convolution(self, source: int, channels: int, kernel: int = 3, activation: int = RELU) -> int:
        batch, height, width, depth = self.tensors[source].shape
        made = self.map(batch, height, width, channels)
        inputs = [source, self.weights(channels, kernel, kernel, depth), self.biases(channels)]
        ones = dict.fromkeys(("StrideW", "StrideH", "DilationWFactor", "DilationHFactor"), 1)
        self.operator(
            "CONV_2D", inputs, [made], "Conv2DOptions", 3, Padding=0, FusedActivationFunction=activation, **ones
        )
        return made

    def sum_of(self, one: int, other: int) -> int:
        made = self.map(*self.tensors[one].shape)
        self.operator("ADD", [one, other], [made], "AddOptions", 2, FusedActivationFunction=NONE)
        return made

    def fully_connected(self, source: int, channels: int, activation: int = NONE) -> int:
        shape = self.tensors[source].shape
        made = self.map(*shape[:-1], channels)
        inputs = [source, self.weights(channels, shape[-1]), self.biases(channels)]
        options = {"FusedActivationFunction": activation, "KeepNumDims": True}
        self.operator("FULLY_CONNECTED", inputs, [made], "FullyConnectedOptions", 4, **options)
        return made

    def product(self, one: int, other: int, adjoint: bool) -> int:
        left, right = self.tensors[one].shape, self.tensors[other].shape
        made = self.map(left[0], left[1], right[1] if adjoint else right[2])
        self.operator("BATCH_MATMUL", [one, other], [made], "BatchMatMulOptions", 4, AdjX=False, AdjY=adjoint)
        return made

    def softmax(self, source: int) -> int:
        made = self.tensor(self.tensors[source].shape, "int8", 1 / 256, -128)
        self.operator("SOFTMAX", [source], [made], "SoftmaxOptions", 2, Beta=0.125)
        return made

    def cumulative(self, source: int) -> int:
        made = self.map(*self.tensors[source].shape)
        axis = self.constant(np.array([1], np.int32))
        self.operator("CUMSUM", [source, axis], [made], "CumsumOptions", 1, Exclusive=False, Reverse=False)
        return made

    def concatenation(self, sources: Sequence[int]) -> int:
        made = self.map(*self.tensors[sources[0]].shape[:-1], sum(self.tensors[s].shape[-1] for s in sources))
        self.operator(
            "CONCATENATION", list(sources), [made], "ConcatenationOptions", 2, Axis=3, FusedActivationFunction=NONE
        )
        return made


def chain(g: Growing, count: int) -> tuple[int, int]:
    """Convolutions one after the other."""
    last = first = g.map(1, 16, 16, 16)
    for _ in range(count):
        last = g.convolution(last, 16)
    return first, last


def residual(g: Growing, count: int) -> tuple[int, int]:
    """Blocks of two convolutions and a sum."""
    last = first = g.map(1, 16, 16, 16)
    for _ in range(count):
        last = g.sum_of(last, g.convolution(g.convolution(last, 16), 16, activation=NONE))
    return first, last


def branches(g: Growing, count: int) -> tuple[int, int]:
    """Branches of two convolutions, concatenated."""
    first = g.map(1, 16, 16, 16)
    begun = g.convolution(first, 16)
    ends = [g.convolution(g.convolution(begun, 8, 1), 8) for _ in range(count)]
    return first, g.convolution(g.concatenation(ends), 16, 1)


def attention(g: Growing, count: int) -> tuple[int, int]:
    """Blocks of one head over 64 tokens of 64 values."""
    last = first = g.map(1, 64, 64)
    for _ in range(count):
        query, key, value = (g.fully_connected(last, 64) for _ in range(3))
        seen = g.product(g.softmax(g.product(query, key, True)), value, False)
        last = g.sum_of(last, g.fully_connected(seen, 64))
        last = g.sum_of(last, g.fully_connected(g.fully_connected(last, 128, RELU), 64))
    return first, last


def square(g: Growing, count: int) -> tuple[int, int]:
    """One fully connected layer."""
    first = g.map(1, count)
    return first, g.fully_connected(first, count)


def mixed(g: Growing, count: int) -> tuple[int, int]:
    """Convolutions and operators of the host in turn."""
    last = first = g.map(1, 16, 16, 16)
    for _ in range(count):
        last = g.cumulative(g.convolution(last, 16))
    return first, last


Family = Callable[[Growing, int], tuple[int, int]]
FAMILIES: Mapping[str, tuple[Family, tuple[int, ...], tuple[int, ...]]] = {  # sizes, and those of --large
    "chain": (chain, (30, 100), (300, 1000)),
    "residual": (residual, (10, 30), (100, 300)),
    "branches": (branches, (16, 64), (128,)),
    "attention": (attention, (1, 3), (6, 12)),
    "fully_connected": (square, (1024, 2048), (4096, 8192)),
    "mixed": (mixed, (10, 30), (100,)),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command took; `code` is its exit code."""

    cpu: float
    peak_mb: float
    written: int
    code: int


def run_command(
    command: Sequence[str],
    output: Path,
    environment: Mapping[str, str],
    stdout: IO[str] | int = subprocess.DEVNULL,
    stderr: IO[str] | int = subprocess.DEVNULL,
) -> Cost:
    """Run one command, which writes below `output`."""
    with subprocess.Popen(command, env=environment, stdout=stdout, stderr=stderr) as started:
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
    written = sum(path.stat().st_size for path in output.rglob("*") if path.is_file())
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, written, started.returncode)


def vela_command(model: Path, accelerator: str, output: Path) -> list[str]:
    """`vela` with the memories that `compile` takes by default."""
    system, mode = next(flags for family, flags in VELA_FLAGS.items() if accelerator.startswith(family))
    command = ["vela", str(model), "--accelerator-config", accelerator, "--config", "Arm/vela.ini"]
    return [*command, "--system-config", system, "--memory-mode", mode, "--output-dir", str(output)]


def measure_model(model: Path, accelerator: str, folder: Path) -> tuple[Cost, Cost, Cost]:
    """Costs of `vela`, of the default and of `quick`."""
    programs = Path(sys.executable).parent
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", VARIABLE: "off"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a compile that has no bytecode on disk takes longer
    outputs = [folder / f"{model.stem}.{number}" for number in range(3)]
    vela = vela_command(model, accelerator, outputs[0])
    compiles = [
        [sys.executable, "-m", "npu_memplan", "compile", str(model), "--accelerator", accelerator, *more]
        for more in (["-o", str(outputs[1])], ["-o", str(outputs[2]), "--effort", "quick"])
    ]
    first, second, third = (
        run_command(command, output, environment) for command, output in zip((vela, *compiles), outputs, strict=True)
    )
    return first, second, third


def generated(families: Iterable[str], large: bool, folder: Path) -> Iterator[tuple[str, int, Path]]:
    """Networks of the families: the name of each, its size, its file."""
    for name in families:
        build, sizes, more = FAMILIES[name]
        for size in (*sizes, *(more if large else ())):
            maker = Growing()
            given, made = build(maker, size)
            path = folder / f"{name}_{size}.tflite"
            path.write_bytes(maker.made([given], [made]).finish())
            yield name, size, path


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--family", default=",".join(FAMILIES), help="of the networks that are made; '' for none")
    parser.add_argument("--large", action="store_true", help="sizes that take minutes as well")
    parser.add_argument("--accelerator", default="ethos-u55-256")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print("| network | file, MB | vela, s | default, s | quick, s | exponent | peak, MB | written |")
    print("|---|" + "--:|" * 7)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        families = [name for name in given.family.split(",") if name]
        models = [("", 0, path) for path in given.models]
        before: tuple[str, int, float] | None = None
        for family, size, model in (*models, *generated(families, given.large, folder)):
            vela, default, quick = measure_model(model, given.accelerator, folder)
            exponent = "-"
            if before is not None and family and before[0] == family:
                exponent = f"{math.log(default.cpu / before[2]) / math.log(size / before[1]):.2f}"
            before = family, size, default.cpu
            cells = [
                model.stem, f"{model.stat().st_size / 1e6:.2f}", f"{vela.cpu:.2f}",
                *(f"{cost.cpu:.1f} ({cost.cpu / vela.cpu:.0f})" for cost in (default, quick)), exponent,
                f"{max(default.peak_mb, quick.peak_mb):.0f}", f"{default.written / max(1, vela.written):.1f}",
            ]  # fmt: skip
            failed = " failed" if default.code or quick.code else ""
            print("| " + " | ".join(cells) + " |" + failed, flush=True)


if __name__ == "__main__":
    main()
