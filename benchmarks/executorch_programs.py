"""Programs of ExecuTorch with Ethos-U delegates: bytes and cycles of every form, each run in ExecuTorch's own runtime.

    python -m benchmarks.executorch_programs [--network NAME ...] [--accelerator NAME ...] [--form NAME ...]
        [--results FILE.csv] [--int8] [--pool SIZE]

Forms: `vela` (as ExecuTorch emits it), `compile`, `one arena` (`compile --emit one-arena`), `native`
(`ethos_u_partitioner(npu_compiler="tvm")`; `auto` where a graph has no native lowering, and the row says so) and
`native arena` (with `--emit one-arena`). A row has the bytes of planned buffers and scratch together, the
fast scratch, estimated cycles of the NPU, what an inference copied, and two comparisons of one inference on the host
backend: of the outputs with PT2E's model, in steps of the output's quantisation, and of every byte that the delegates
made with TOSA's reference model on the graphs that Vela was given. `--int8`: inputs and outputs of the programs are
int8. `--pool`: the most bytes of scratch of native delegates.

Needs the extra `executorch` in an environment of its own, a C++ compiler, and for mobilenet_v2 pillow and torchvision
(`pip install --no-deps torchvision==0.28.*` with PyTorch's CPU build). With `--results` rows are kept in a file, and
what it has is not computed again. Exit code 1: a delegate made something else than TOSA's reference model.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fvp_runner.executorch.commands import compile_program
from fvp_runner.executorch.model import fast_scratch_bytes
from fvp_runner.references.other_formats import TosaReference
from npu_memplan.errors import RefusalError
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.time import timeline
from npu_memplan.executorch.board import memories_for
from npu_memplan.executorch_lowering import ethos_u_partitioner
from npu_memplan.models.executorch.delegates import npu_calls
from npu_memplan.models.executorch.program import read_program
from npu_memplan.models.tosa import read_tosa
from tests.support.executorch_bench.runtime import BenchMemory, BenchRun, RuntimeBench
from tests.support.executorch_networks import NETWORKS, network, quantise

ACCELERATORS = ("ethos-u55-256", "ethos-u65-256", "ethos-u85-256")
FORMS = ("vela", "compile", "one arena", "native", "native arena")


@dataclass(frozen=True, slots=True)
class Row:
    """One form of a program, and what one inference of it gave."""

    network: str
    accelerator: str
    form: str
    planned_bytes: int = 0
    scratch_bytes: int = 0  # of the largest delegate; in one arena it lies inside the planned buffers
    total_bytes: int = 0
    fast_bytes: int = 0
    cycles: int = 0
    copied_bytes: int = 0
    delegates: int = 0
    pt2e_differs: int = 0  # elements of the outputs
    pt2e_steps: float = 0.0  # most, in steps of the output
    tosa_differs: int = 0  # elements that the delegates made
    tosa_elements: int = 0
    note: str = ""

    def __str__(self) -> str:
        return (
            f"{self.network:19} {self.accelerator:14} {self.form:13} {self.total_bytes:>9,} bytes "
            f"{self.fast_bytes:>9,} fast {self.cycles:>9,} cycles {self.copied_bytes:>9,} copied; "
            f"PT2E {self.pt2e_differs} differ, {self.pt2e_steps:g} steps; "
            f"TOSA {self.tosa_differs} of {self.tosa_elements:,} differ  {self.note}"
        )


@dataclass(frozen=True, slots=True)
class Options:
    """What a form is made with: inputs and outputs as int8, and the most bytes of scratch of native delegates."""

    int8: bool = False
    pool: str = ""

    def named(self, form: str) -> str:
        return form + (" int8" if self.int8 else "") + (f" {self.pool}" if self.pool else "")


USUAL = Options()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--network", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--accelerator", nargs="+", default=list(ACCELERATORS))
    parser.add_argument("--form", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--pool", default="")
    parsed = parser.parse_args()
    known = _known(parsed.results)
    with tempfile.TemporaryDirectory() as folder:
        bench = RuntimeBench(Path(folder))
        for name in parsed.network:
            for npu in parsed.accelerator:
                keys = [(name, npu, Options(parsed.int8, parsed.pool).named(form)) for form in parsed.form]
                if all(key in known for key in keys):
                    continue
                for row in measure(name, npu, parsed.form, bench, Options(parsed.int8, parsed.pool)):
                    known[row.network, row.accelerator, row.form] = row
                    print(row, flush=True)
                    _keep(parsed.results, known)
    sys.exit(any(row.tosa_differs for row in known.values()))


def measure(name: str, npu: str, forms: Sequence[str], bench: RuntimeBench, options: Options) -> Iterator[Row]:
    """The rows of a network of `NETWORKS` on an NPU."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec

    module, given = network(name)
    quantised = quantise(module, given, EthosUCompileSpec(npu))
    yield from measure_exported(name, npu, quantised, given[0], forms, bench, options)


def measure_exported(
    name: str,
    npu: str,
    quantised: Any,
    example: tuple[Any, ...],
    forms: Sequence[str],
    bench: RuntimeBench,
    options: Options = USUAL,
) -> Iterator[Row]:
    """The rows of PT2E's model on an NPU."""
    from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner

    spec, exported = EthosUCompileSpec(npu), Exported(quantised, example, options.int8)
    for ours, group in ((False, ("vela", "compile", "one arena")), (True, ("native", "native arena"))):
        wanted = [form for form in group if form in forms]
        if not wanted:
            continue
        note, pool = "", options.pool or None
        try:
            native = ethos_u_partitioner(spec, npu_compiler="tvm", pool=pool) if ours else None
            made = exported.lower(native or EthosUPartitioner(spec))
        except RefusalError as refused:
            note = f"auto, as {refused}"
            made = exported.lower(ethos_u_partitioner(spec, npu_compiler="auto", pool=pool))
        for form in wanted:
            data, arena = made.data, "arena" in form
            if form in ("compile", "one arena", "native arena"):
                data = _compiled(data, arena)
            yield exported.row((name, npu, options.named(form)), data, made.graphs, arena, bench, note)


@dataclass(frozen=True, slots=True)
class Made:
    """A program, and the TOSA graph of each of its delegates."""

    data: bytes
    graphs: Sequence[bytes]


@dataclass(frozen=True, slots=True, eq=False)
class Exported:
    """A quantised model, what it is exported with, and whether its inputs and outputs stay int8."""

    quantised: Any
    example: tuple[Any, ...]
    int8: bool

    def lower(self, partitioner: Any) -> Made:
        """The program that ExecuTorch emits."""
        import torch
        from executorch.exir import to_edge_transform_and_lower
        from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs

        exported = torch.export.export(self.quantised, self.example)
        with _graphs() as graphs:
            edge = to_edge_transform_and_lower(exported, partitioner=[partitioner])
        if self.int8:
            edge = edge.transform(passes=[QuantizeInputs(edge, [0]), QuantizeOutputs(edge, [0])])
        data = bytes(edge.to_executorch().buffer)
        method = read_program(data).methods[0]
        return Made(data, [graphs[bytes(delegate.data).rstrip(b"\0")] for delegate in method.delegates])

    def row(
        self,
        key: tuple[str, str, str],
        data: bytes,
        graphs: Sequence[bytes],
        arena: bool,
        bench: RuntimeBench,
        note: str,
    ) -> Row:
        """Run the program, and compare."""
        program = read_program(data)
        method, calls = program.methods[0], npu_calls(program)
        planned = sum(method.planned_bytes.values())
        scratch = max(one.blocks.scratch_bytes for one in calls)
        fast = max(fast_scratch_bytes(one) for one in calls)
        values, expected = self._expected(data)
        memory = BenchMemory(fast_bytes=max(fast, 16), temp_at=0 if arena else None)
        ran = bench.run(data, values, memory=memory)
        step = self._step()
        off = np.abs(ran.outputs[0].astype(np.float64) - expected) / (1 if self.int8 else step)
        tosa = _against_tosa(ran, [graphs[one.delegate] for one in calls])
        return Row(
            *key, planned, scratch, planned if arena else planned + scratch, fast, sum(map(_cycles, calls)),
            ran.copied_in_bytes + ran.copied_out_bytes, len(calls), int(np.count_nonzero(off)),
            round(float(off.max()), 3), *tosa, note,
        )  # fmt: skip

    def _expected(self, data: bytes) -> tuple[list[NDArray[Any]], NDArray[Any]]:
        """An input of the program, and what PT2E's model makes of it."""
        import torch

        rng = np.random.default_rng(11)
        (example,) = self.example
        if not example.is_floating_point():
            values = rng.integers(0, 200, example.shape)
            return [values], self._outputs(torch.from_numpy(values))
        values = rng.standard_normal(example.shape).astype(np.float32)
        layout = torch.channels_last if example.ndim == 4 else torch.contiguous_format
        expected = self._outputs(torch.from_numpy(values).to(memory_format=layout))
        if not self.int8:
            return [values], expected
        (first, *_, last) = _quantisations(self.quantised)
        stored = np.clip(np.round(values / first[0]) + first[1], -128, 127).astype(np.int8)
        return [stored], np.round(expected / last[0]) + last[1]

    def _outputs(self, values: Any) -> NDArray[Any]:
        import torch

        with torch.no_grad():
            found: NDArray[Any] = self.quantised(values).detach().numpy()
        return found

    def _step(self) -> float:
        return _quantisations(self.quantised)[-1][0]


def _quantisations(module: Any) -> list[tuple[float, int]]:
    """Scale and zero point of each quantisation of a whole tensor, in the graph's order."""
    nodes = [node for node in module.graph.nodes if "quantize_per_tensor" in str(node.target)]
    return [(float(node.args[1]), int(node.args[2])) for node in nodes]


@contextmanager
def _graphs() -> Iterator[Mapping[bytes, bytes]]:
    """The TOSA graph of each delegate that is lowered meanwhile, by its bytes."""
    from executorch.backends.arm.ethosu import EthosUBackend

    found: dict[bytes, bytes] = {}
    last: list[bytes] = []
    preprocess, compile_graph = EthosUBackend.preprocess, EthosUBackend._compile_tosa_flatbuffer

    def keep(tosa: Any, spec: Any) -> Any:
        last[:] = [bytes(tosa)]
        return compile_graph(tosa, spec)

    def keep_both(program: Any, specs: Any) -> Any:
        made = preprocess(program, specs)
        found[bytes(made.processed_bytes).rstrip(b"\0")] = last[0]
        return made

    EthosUBackend._compile_tosa_flatbuffer = staticmethod(keep)
    EthosUBackend.preprocess = staticmethod(keep_both)
    try:
        yield found
    finally:
        EthosUBackend.preprocess = staticmethod(preprocess)
        EthosUBackend._compile_tosa_flatbuffer = staticmethod(compile_graph)


def _compiled(data: bytes, one_arena: bool) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source, made = Path(folder) / "model.pte", Path(folder) / "planned.pte"
        source.write_bytes(data)
        compile_program(source, made, one_arena=one_arena)
        return made.read_bytes()


def _against_tosa(ran: BenchRun, graphs: Sequence[bytes]) -> tuple[int, int]:
    """Elements that the delegates made otherwise than TOSA's reference model, and all of them."""
    differ = count = 0
    for call, graph in zip(ran.calls, graphs, strict=True):
        known = read_tosa(graph, "delegate")
        tensors = [known.tensors[index] for index in known.inputs]
        given = [np.frombuffer(b, t.dtype).reshape(t.shape) for b, t in zip(call.inputs, tensors, strict=True)]
        for made, expected in zip(call.outputs, TosaReference(graph, "delegate").run(given), strict=True):
            differ += int(np.count_nonzero(np.frombuffer(made, expected.dtype) != expected.reshape(-1)))
            count += expected.size
    return differ, count


def _cycles(one: Any) -> int:
    """Of one call, with the memories that it was compiled for."""
    accelerator = one.call.accelerator
    return timeline(decode(one.call.words, accelerator.language), accelerator, memories_for(one, {})).total


def _known(path: Path | None) -> dict[tuple[str, str, str], Row]:
    if path is None or not path.is_file():
        return {}
    kinds = {field.name: {"int": int, "float": float}.get(str(field.type), str) for field in fields(Row)}
    with path.open(encoding="utf-8", newline="") as file:
        rows = [Row(**{name: kinds[name](value) for name, value in line.items()}) for line in csv.DictReader(file)]
    return {(row.network, row.accelerator, row.form): row for row in rows}


def _keep(path: Path | None, known: Mapping[tuple[str, str, str], Row]) -> None:
    if path is not None:
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Row)])
            writer.writeheader()
            writer.writerows(asdict(row) for row in known.values())


if __name__ == "__main__":
    main()
