"""A model through the whole pipeline and several inferences one after another, held against its reference.

Invariant: every element of every output of every step is compared; states are kept on both sides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.kernels import TFLiteReference
from fvp_runner.steps import reference_steps, run_steps
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions

HOST = CompileOptions(accelerator="none")
Draw = Callable[[np.random.Generator, TensorSlot], np.ndarray]


def any_value(generator: np.random.Generator, slot: TensorSlot) -> np.ndarray:
    """Every value of the type is equally likely; floats are of ordinary size."""
    kind = np.dtype(slot.dtype)
    if kind == np.bool_:
        return generator.integers(0, 2, slot.shape).astype(kind)
    if kind.kind == "f":
        return (generator.standard_normal(slot.shape) * 4).astype(kind)
    limits = np.iinfo(kind)
    return generator.integers(limits.min, limits.max, slot.shape, kind, endpoint=True)


def equals_reference(
    model: bytes, folder: Path, steps: int = 4, options: CompileOptions = HOST, draw: Draw = any_value, seed: int = 0
) -> Artifact:
    """Compile `model` into `folder`, run it and its reference `steps` times; what was compiled."""
    source = folder / "model.tflite"
    folder.mkdir(parents=True, exist_ok=True)
    source.write_bytes(model)
    artifact = compile_model(source, options, folder / "artifact", force=True)
    generator = np.random.default_rng(seed)
    sequence = [[draw(generator, slot) for slot in artifact.inputs] for _ in range(steps)]
    same(model, folder / "artifact", artifact, sequence)
    return artifact


def same(model: bytes, directory: Path, artifact: Artifact, sequence: Sequence[Sequence[np.ndarray]]) -> None:
    """The artifact and the model's reference give the same outputs for every step."""
    ran = run_steps(LocalRunner(directory), sequence)
    wanted = reference_steps(TFLiteReference(model, artifact.name), sequence)
    for slot, ours, theirs in zip(artifact.outputs, ran.outputs, wanted, strict=True):
        np.testing.assert_array_equal(ours, theirs.reshape(ours.shape), err_msg=slot.name)
