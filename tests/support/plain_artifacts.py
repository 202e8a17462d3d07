"""Artifacts made by hand for the tests: Vela's own placement, in the contract's files.

They let firmware and runners be tested without the planner, and with faults put in on purpose.
"""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import Call, TensorSlot
from npu_memplan.codegen.c_text import c_array
from npu_memplan.codegen.entry import RUNTIME_HEADER, RUNTIME_TEXT, print_main
from npu_memplan.codegen.header import print_model_header
from npu_memplan.codegen.interface import Interface
from npu_memplan.codegen.program import FunctionCall
from npu_memplan.models.tflite import read_network
from npu_memplan.models.vela import NpuCall
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent, Buffer, Lifetime, Placement, Plan, PlanStatus, Pool, PoolUsage, Problem
from npu_memplan.vela.compiler import VelaOptions, compile_tflite


def vela_artifact(model: Path, directory: Path, name: str, words: list[int] | None = None) -> Artifact:
    """An artifact of a fully offloaded model at Vela's own addresses. `words` replaces its stream."""
    network = read_network(compile_tflite(model.read_bytes(), VelaOptions(memory_mode="Shared_Sram")).network)
    (call,) = network.operators
    assert isinstance(call, NpuCall)

    def slots(indices: tuple[int, ...]) -> tuple[TensorSlot, ...]:
        tensors = [network.tensors[i] for i in indices]
        return tuple(
            TensorSlot(t.name, t.dtype, t.shape, "sram", t.arena_offset, t.size_bytes, t.scale, t.zero_point)
            for t in tensors
        )

    stream = np.asarray(words if words is not None else call.words, np.uint32)
    artifact = plain_artifact(
        name,
        call.accelerator.name,
        call.scratch_bytes,
        slots(network.inputs),
        slots(network.outputs),
        constants_bytes=call.read_only.nbytes,
        stream_bytes=stream.nbytes,
    )
    pool_macro = f"{name.upper()}_SRAM_BYTES"
    launch = f"""
{c_array(f"{name}_constants", call.read_only)}
{c_array(f"{name}_stream", stream, hexadecimal=True)}
int32_t {name}_step(uint8_t *const pools[]) {{
  const void *const bases[3] = {{{name}_constants, pools[0], pools[0]}};
  static const uint32_t base_bytes[3] = {{sizeof {name}_constants, {pool_macro}, {pool_macro}}};
  return npu_memplan_npu_launch(0, 3, {name}_stream, sizeof {name}_stream, bases, base_bytes, 3);
}}
"""
    write(artifact, directory, launch)
    return artifact


def plain_artifact(
    name: str,
    accelerator: str,
    pool_bytes: int,
    inputs: tuple[TensorSlot, ...],
    outputs: tuple[TensorSlot, ...],
    constants_bytes: int = 0,
    stream_bytes: int = 0,
) -> Artifact:
    """The plan.json of one NPU call over one pool with one buffer."""
    arena = Buffer("arena", pool_bytes, (Lifetime(0, 1),), agents=frozenset(Agent))
    problem = Problem((arena,), (Pool("sram"),), name=name, points=("call",))
    usage = (PoolUsage("sram", pool_bytes, pool_bytes),)
    return Artifact(
        name=name,
        source=f"{name}.tflite",
        source_sha256="",
        target=CompileOptions(accelerator, "Ethos_U55_High_End_Embedded", "Shared_Sram", objective="bytes"),
        problem=problem,
        plan=Plan((Placement("arena", "sram", 0),), usage, PlanStatus.FEASIBLE, "by hand"),
        regions=(1,),
        inputs=inputs,
        outputs=outputs,
        calls=(Call(f"{name}_step", Agent.NPU, ("arena",), ("arena",), (0, 1)),),
        constants_bytes=constants_bytes,
        stream_bytes=stream_bytes,
        npu_operations=1,
    )


def write(artifact: Artifact, directory: Path, step_text: str, *, on_host: bool = False) -> None:
    """Write the artifact's files; `step_text` is the C of its only step, `<name>_step`."""
    folder = directory / "src"
    folder.mkdir(parents=True)
    artifact.save(directory)
    name = artifact.name
    interface = Interface.from_artifact(artifact)
    steps = [FunctionCall("step", SimpleNamespace(attrs=None), (), f"{name}_step")]  # whose C is written by hand
    (folder / RUNTIME_HEADER).write_text(RUNTIME_TEXT)
    (folder / f"{name}.h").write_text(print_model_header(interface, steps))
    (folder / f"{name}.c").write_text(print_main(interface, steps))
    texts = {"npu": "", "host": ""} | {"host" if on_host else "npu": step_text}
    for part, text in texts.items():
        (folder / f"{name}_{part}.c").write_text(f'#include "{name}.h"\n#include "{RUNTIME_HEADER}"\n{text}')
