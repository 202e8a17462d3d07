"""A stream whose file gives it no scratch memory is refused with words that say so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fvp_runner.npu_model.network import NetworkModel
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.network import Network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.vela.lift import lift_program

MODEL = Path(__file__).parents[1] / "models" / "hello_world_int8.tflite"


@pytest.mark.parametrize(
    "use", [lambda network: NetworkModel(network, b""), lambda network: lift_program(network, network.npu_calls[0])]
)
def test_no_scratch(use: Callable[[Network], object]) -> None:
    network = compile_tflite(MODEL.read_bytes(), VelaOptions(), "hello").parsed
    (call,) = network.npu_calls
    with pytest.raises(NetworkError, match=r"declares 0 bytes of scratch memory \(tensor .*compile the source model"):
        use(replace(network, operators=(replace(call, scratch_bytes=0),)))
