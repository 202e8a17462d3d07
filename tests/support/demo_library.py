"""The Model Library that the legacy demo's command line makes of the example model, with inputs and outputs."""

from __future__ import annotations

import shlex
from datetime import datetime, timezone
from pathlib import Path

import numpy as np

from fvp_runner.references.interpreters import Reference
from npu_memplan.codegen.mlf import Library
from npu_memplan.models.tflite import read_network
from npu_memplan.tvmc.compile import compile_to_mlf
from npu_memplan.tvmc.options import parse_compile
from tests.support.mlf_host import aligned

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
DATE = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
DEMO = shlex.split("""
    --target=ethos-u,cmsis-nn,c --target-ethos-u-accelerator_config=ethos-u55-256
    --target-cmsis-nn-mcpu=cortex-m55 --target-c-mcpu=cortex-m55 --runtime=crt --executor=aot
    --executor-aot-interface-api=c --executor-aot-unpacked-api=1
    --pass-config tir.usmp.enable=1 --pass-config tir.usmp.algorithm=hill_climb
    --pass-config tir.disable_storage_rewrite=1 --pass-config tir.disable_vectorize=1 --output-format=mlf
""")


def library(model: Path, *options: str) -> Library:
    """The tree that the demo's command line makes, with more options."""
    return compile_to_mlf(parse_compile([*DEMO, *options, str(model)]), DATE)


def tensors(model: Path, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random inputs of a model in aligned memory, and the reference's outputs."""
    data = model.read_bytes()
    network = read_network(data, model.name)
    rng = np.random.default_rng(seed)
    inputs = []
    for index in network.inputs:
        buffer = aligned(network.tensors[index].size_bytes)
        buffer[:] = rng.integers(0, 256, buffer.size)
        inputs.append(buffer)
    given = [b.view(network.tensors[i].dtype) for b, i in zip(inputs, network.inputs, strict=True)]
    return inputs, [np.asarray(o).reshape(-1).view(np.uint8) for o in Reference(data).run(given)]


def empty_outputs(expected: list[np.ndarray]) -> list[np.ndarray]:
    return [aligned(e.size) for e in expected]
