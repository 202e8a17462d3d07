"""A micro-stream as an artifact: planned, written and run as every other program.

Invariant: the pools are planned without overlaps of an output over its input, so that a stream's waits and block
dependencies follow from what it computes, not from the plan.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ...artifact import Artifact
from ...ethosu.arch import Architecture
from ...ethosu.program.primfunc import to_primfunc
from ...ethosu.time import fvp_system
from ...frontend.attributes import Quantised, main_attributes
from ...names import identifier
from ...options import CompileOptions
from ...pipeline import build, extract_problem, lower, plan
from ...report.writing import write
from ...request import Loaded, request
from .stream import MicroStream


def micro_options(accelerator: Architecture) -> CompileOptions:
    """What micro-streams are compiled for: constants behind AXI port 1, with the speeds of the FVP's adapters."""
    return CompileOptions(
        accelerator.name,
        fvp_system(accelerator),
        "Shared_Sram",
        npu_compiler="tvm",
        overlaps=False,
        objective="bytes",
    ).resolved()


def micro_artifact(stream: MicroStream, folder: Path) -> Artifact:
    """The artifact of `stream` in the existing directory `folder`."""
    options = replace(micro_options(stream.program.accelerator), name=identifier(stream.name))
    loaded = Loaded.given(request(options), _module(stream))
    return write(build(plan(extract_problem(lower(loaded)))), folder)


def _module(stream: MicroStream) -> Any:
    """`main(given) -> made`, one call of the NPU."""
    from tvm import relax

    builder = relax.BlockBuilder()
    given = relax.Var("given", relax.TensorType((1, *stream.given.shape), "int8"))
    with builder.function("main", [given]):
        npu = builder.add_func(to_primfunc(stream.program), "npu")
        constants = relax.const(np.frombuffer(stream.constants, np.uint8), "uint8")
        inputs = relax.Tuple([given, constants] if stream.constants else [given])
        made = relax.call_tir(npu, inputs, relax.TensorType((1, *stream.expected.shape), "int8"))
        builder.emit_func_output(builder.emit(made, "made"))
    module = builder.finalize()
    attributes = main_attributes([Quantised("given", 0.0, 0)], [Quantised("made", 0.0, 0)], {}, ())
    module["main"] = module["main"].with_attrs(attributes)
    return module
