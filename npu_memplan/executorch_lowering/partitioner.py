"""`ethos_u_partitioner`: Arm's partitioner for Ethos-U, whose delegates come with scratch planned here.

Invariant: delegates are of `EthosUBackend` and have Vela's blocks, so the firmware stays as it is; of each, what is
emitted gave the same outputs as Vela's own on the NPU model. Partitioners of Arm's beside it are not changed. Needs
ExecuTorch with its Arm backend, which is imported when a partitioner is made; TVM is not needed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..executorch.replanning import ScratchGoal, replan_scratch
from ..frontend.start import vela_options
from ..models.executorch.program import Delegate, DelegateCall, ExecutorchProgram, Method, ValueTensor
from ..models.executorch.vela_blocks import BACKEND, read_blocks
from ..options import CompileOptions, usual_accelerator
from ..sizes import parse_size

_KEY = "npu_memplan"  # of our compile spec
_FLAGS = "compile_flags"
_TYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


class PartitionerError(NpuMemplanError):
    """A program cannot be lowered as it is wanted."""


def ethos_u_partitioner(
    spec: Any = None,
    *,
    board: str = "",
    accelerator: str = "",
    memory_mode: str = "",
    objective: str = "auto",
    effort: str = "normal",
    pool: str | int | None = None,
) -> Any:
    """A partitioner for `to_edge_transform_and_lower`.

    `spec`: Arm's `EthosUCompileSpec`; or `board`, a name or file of npu_memplan's, whose NPU, memories and pool are
    then Vela's too. `pool`: the most bytes of scratch (`"1MiB"`), of a board its own; the fewest cycles that fit are
    taken, else what `objective` says (`auto`, `cycles`, `bytes`). `effort`: `quick`, `normal` or `max`. A scratch that
    does not fit is a `ScratchError` of the lowering.
    """
    if (spec is None) == (not board):
        raise PartitionerError(
            "give either an EthosUCompileSpec or a board, e.g. board='NAME' (npu-memplan boards lists them)"
        )
    size = parse_size(pool) if isinstance(pool, str) else pool
    sections = ""
    try:
        from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec
        from executorch.exir.backend.partitioner import DelegationSpec
    except ImportError as error:
        raise PartitionerError(
            f"ExecuTorch's Arm backend cannot be imported ({error}); install executorch[ethos-u]"
        ) from None
    if spec is None:
        options = CompileOptions(
            accelerator or usual_accelerator(board), board=board, memory_mode=memory_mode
        ).resolved()
        vela = vela_options(options)
        sections = vela.sections
        size = options.planned_pools()[0].size_bytes if size is None else size
        spec = EthosUCompileSpec(options.accelerator, vela.system_config, vela.memory_mode)
    goal = ScratchGoal(objective, effort, size, board)
    _install()
    partitioner = EthosUPartitioner(spec)
    own = CompileSpec(_KEY, json.dumps({"goal": asdict(goal), "sections": sections}).encode())
    partitioner.delegation_spec = DelegationSpec(BACKEND, [*partitioner.delegation_spec.compile_specs, own])
    return partitioner


def replan_blocks(data: bytes, specs: Mapping[str, bytes], goal: ScratchGoal) -> bytes:
    """The bytes of a delegate with its scratch planned again; the same bytes where nothing is better."""
    from fvp_runner.executorch.compiling import compare_programs

    before = _program(data, specs)
    found = replan_scratch(before, goal)[0].data
    if found is None:
        return data
    compare_programs(before, _program(found, specs))
    return found


def _program(data: bytes, specs: Mapping[str, bytes]) -> ExecutorchProgram:
    """A program that calls one delegate."""
    delegate = Delegate(BACKEND, memoryview(data), 0, False, specs)
    blocks = read_blocks(delegate, {}, "the delegate")
    slots = (*blocks.inputs, *blocks.outputs)
    values = tuple(ValueTensor(_TYPES[s.element_bytes], s.element_bytes, s.shape, ()) for s in slots)
    numbers = tuple(range(len(slots)))
    inputs, outputs = numbers[: len(blocks.inputs)], numbers[len(blocks.inputs) :]
    method = Method("forward", values, inputs, outputs, (DelegateCall(0, numbers),), (delegate,), {})
    return ExecutorchProgram("delegate", len(data), (method,))


def _install() -> None:
    """Let Arm's backend hand on what it makes for our compile spec; others it makes as ever."""
    from executorch.backends.arm.ethosu import EthosUBackend

    if not getattr(EthosUBackend.preprocess, _KEY, False):
        original = EthosUBackend.preprocess

        def preprocess(edge_program: Any, compile_specs: Sequence[Any]) -> Any:
            return _preprocess(original, edge_program, compile_specs)

        setattr(preprocess, _KEY, True)
        EthosUBackend.preprocess = staticmethod(preprocess)


def _preprocess(original: Any, edge_program: Any, compile_specs: Sequence[Any]) -> Any:
    own = next((one for one in compile_specs if one.key == _KEY), None)
    others = [one for one in compile_specs if one is not own]
    if own is None:
        return original(edge_program, others)
    asked = json.loads(own.value)
    with tempfile.TemporaryDirectory() as folder:
        if asked["sections"]:
            ini = Path(folder) / "vela.ini"
            ini.write_text(asked["sections"], encoding="utf-8")
            others = [_with_ini(one, ini) for one in others]
        result = original(edge_program, others)
    if result.data_store_output is not None:
        raise PartitionerError("commands or weights are to be external data; leave external_block_placements out")
    specs = {one.key: bytes(one.value) for one in compile_specs}
    result.processed_bytes = replan_blocks(bytes(result.processed_bytes), specs, ScratchGoal(**asked["goal"]))
    return result


def _with_ini(spec: Any, ini: Path) -> Any:
    """Arm's compile spec with a vela.ini in place of Vela's own."""
    if spec.key != _FLAGS:
        return spec
    words = [f"--config={ini}" if word.startswith("--config=") else word for word in spec.value.decode().split(" ")]
    return type(spec)(spec.key, " ".join(words).encode())
