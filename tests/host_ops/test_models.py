"""Whole real models without an NPU: every operator is a host operator, the result is TFLite Micro's."""

from __future__ import annotations

import numpy as np
import pytest

from fvp_runner.host.runner import LocalRunner
from fvp_runner.references.interpreters import Reference
from npu_memplan.artifact import Artifact
from npu_memplan.compiler import compile_model
from npu_memplan.options import CompileOptions
from tests.support.inputs import load_inputs

MODELS = [
    "ad01_int8",
    "kws_ref_model",
    "micro_speech_quantized",
    "person_detect",
    "pretrainedResnet_quant",
    "keyword_scrambled_8bit",
    "trained_lstm_int8",
]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_bit_exact_on_the_host_alone(name, shared_model, tmp_path):
    model = shared_model(name)
    folder = tmp_path / "build"
    artifact = compile_model(model, CompileOptions(accelerator="none"), folder)
    assert artifact.npu_operations == 0
    runner = LocalRunner(folder)
    reference = Reference(model.read_bytes())
    for seed in range(3):
        inputs = load_inputs(Artifact.load(folder), [f"random:{seed}"])
        for got, want in zip(runner.run(inputs).outputs, reference.run(inputs), strict=True):
            np.testing.assert_array_equal(got, want)
