"""Arena bytes and estimated cycles of one model by every compiler: legacy TVM, Vela, ours from Vela's stream, ours
from TVM, and ours from TVM in stripes.

    python -m benchmarks.npu_producers MODEL.tflite... [--accelerator ethos-u55-256]

Bytes are counted in two ways, each the same for all columns. "in the arena": inputs and outputs have a place in the
arena, as Vela plans; for the legacy columns their bytes are added, because it keeps them outside. "outside": the
caller supplies arrays for inputs and outputs, as in the legacy flow; Vela has no such mode of its own. Cycles are
the NPU model's estimates of the streams as planned.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from npu_memplan.compiler import compile_model
from npu_memplan.extract import extract
from npu_memplan.frontend.tflite.lifted import import_tflite
from npu_memplan.frontend.tflite.lowered import build_module
from npu_memplan.options import CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import BufferKind, Problem
from npu_memplan.request import StripeOptions
from npu_memplan.tuning.cascades import stripe
from npu_memplan.vela.compiler import VelaOptions

# TVM v0.14 with ethos-u-vela 3.8.0, ethos-u55-256, measured: pool by hill_climb, pool by the cascader with striping
LEGACY = {
    "kws_ref_model": (22080, 17104),
    "ad01_int8": (768, 1120),
    "hello_world_int8": (32, 544),
    "micro_speech_quantized": (5056, 6112),
    "str_ww_ref_model": (26496, 6144),
    "pretrainedResnet_quant": (69312, 50144),
    "vww_96_int8": (74480, 74880),
    "person_detect": (75680, 74464),
    "mobilenet_v2_pt2tflite_int8": (1509728, 668656),
}


@dataclass(frozen=True)
class Row:
    """What was measured of one model."""

    name: str
    io_bytes: int
    vela: int
    lifted: tuple[int, int, int]  # in the arena, outside, cycles
    lowered: tuple[int, int, int]
    striped: tuple[int, int, int]


def outside_bytes(problem: Problem) -> int:
    """Bytes of the arena when inputs and outputs are the caller's arrays."""
    moved = {b.name for b in problem.buffers if b.kind in (BufferKind.INPUT, BufferKind.OUTPUT)}
    rest = replace(
        problem,
        buffers=tuple(b for b in problem.buffers if b.name not in moved),
        overlaps=tuple(o for o in problem.overlaps if not {o.first, o.second} & moved),
        conflicts=tuple(c for c in problem.conflicts if not set(c) & moved),
        accesses=tuple(a for a in problem.accesses if a.buffer not in moved),
    )
    return sum(u.used_bytes for u in plan(rest).usage)


def measure(
    model: Path, npu: str, compiler: str, module: Any, folder: Path, stripes: bool = False
) -> tuple[int, int, int]:
    """(bytes in the arena, bytes outside, estimated cycles) by one of our producers."""
    options = CompileOptions(accelerator=npu, npu_compiler=compiler, stripes=stripes, objective="bytes").resolved()
    directory = folder / f"{model.stem}-{compiler}"
    artifact = compile_model(model, options, directory, force=True)
    inside = sum(u.used_bytes for u in artifact.plan.usage)
    outside = outside_bytes(extract(module, options.planned_pools(), reuse_inputs=False))
    return inside, outside, artifact.estimated_cycles or 0


def row(model: Path, npu: str, folder: Path) -> Row:
    """All columns of one model."""
    options = CompileOptions(accelerator=npu).resolved()
    requested = VelaOptions(npu, options.system_config, options.memory_mode)
    imported = import_tflite(model.read_bytes(), requested, name=model.name)
    assert imported.vela is not None
    tensors = imported.network.tensors
    io_bytes = sum(tensors[i].size_bytes for i in (*imported.network.inputs, *imported.network.outputs))
    lifted = measure(model, npu, "vela", imported.module, folder)
    lowered = measure(model, npu, "tvm", build_module(model, npu).module, folder)
    module = stripe(build_module(model, npu).module, StripeOptions(io_in_pools=False, reuse_inputs=False))
    striped = measure(model, npu, "tvm", module, folder, stripes=True)
    return Row(model.stem, io_bytes, sum(imported.vela.arena_bytes.values()), lifted, lowered, striped)


def _cells(numbers: tuple[int, int, int]) -> list[str]:
    return [f"{v:,}" for v in numbers]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    arguments = parser.parse_args()
    print("| model | I/O | in the arena: legacy | cascader | Vela | ours, Vela's stream | TVM | stripes ", end="")
    print(
        "| outside: legacy | cascader | ours, Vela's stream | TVM | stripes | cycles: Vela's stream | TVM | stripes |"
    )
    print("|---|" + "--:|" * 15)
    with tempfile.TemporaryDirectory() as folder:
        for model in arguments.models:
            found = row(model, arguments.accelerator, Path(folder))
            legacy = LEGACY.get(found.name) if arguments.accelerator == "ethos-u55-256" else None
            old = [f"{b:,}" for b in legacy] if legacy else ["-", "-"]
            added = [f"{b + found.io_bytes:,}" for b in legacy] if legacy else ["-", "-"]
            new, cut = (_cells(numbers) for numbers in (found.lowered, found.striped))
            lifted = _cells(found.lifted)
            cells = [found.name, f"{found.io_bytes:,}", *added, f"{found.vela:,}", lifted[0], new[0], cut[0]]
            cells += [*old, lifted[1], new[1], cut[1], lifted[2], new[2], cut[2]]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
