"""`ethos_u_partitioner`: Arm's partitioner for Ethos-U, whose delegates come with scratch planned here.

Invariant: delegates are of `EthosUBackend` and have blocks as Vela's, so the firmware stays as it is; of each, what is
emitted gave the same outputs as Vela's own on the NPU model. Partitioners of Arm's beside it are not changed. Needs
ExecuTorch with its Arm backend, which is imported when a partitioner is made; TVM is not needed.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict
from operator import gt
from pathlib import Path
from typing import Any

from ..errors import InternalError, NpuMemplanError, RefusalError
from ..ethosu.stream.decode import decode
from ..ethosu.time import cycles_by_model
from ..executorch.board import memories_for
from ..executorch.replanning import TOLERANCES, ScratchError, ScratchGoal, replan_call, replan_scratch
from ..frontend.start import vela_options
from ..models.executorch.delegates import BACKEND, npu_calls
from ..options import CompileOptions, usual_accelerator
from ..sizes import parse_size
from .native import delegate_program, native_calls

_KEY = "npu_memplan"  # of our compile spec
_FLAGS = "compile_flags"


class PartitionerError(NpuMemplanError):
    """A program cannot be lowered with the given options."""


def ethos_u_partitioner(
    spec: Any = None,
    *,
    board: str = "",
    accelerator: str = "",
    memory_mode: str = "",
    objective: str = "auto",
    effort: str = "normal",
    pool: str | int | None = None,
    npu_compiler: str = "vela",
) -> Any:
    """A partitioner for `to_edge_transform_and_lower`.

    `spec`: Arm's `EthosUCompileSpec`; or `board`, a name or file of npu_memplan's, whose NPU, memories and pool are
    then Vela's too. `pool`: the most bytes of scratch (`"1MiB"`), of a board its own; the fewest cycles that fit are
    taken, else what `objective` says (`auto`, `cycles`, `bytes`). `effort`: `quick`, `normal` or `max`. A scratch that
    does not fit is a `ScratchError` of the lowering. `npu_compiler`: `vela`, `tvm` (native lowering of the TOSA graph;
    a graph that it does not take is a `TosaLayersError`), or `auto`, the better of both.
    """
    if npu_compiler not in ("vela", "tvm", "auto"):
        raise PartitionerError(f"npu_compiler is {npu_compiler!r}, not vela, tvm or auto")
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
        ).resolve_defaults()
        vela = vela_options(options)
        sections = vela.sections
        size = options.planned_pools()[0].size_bytes if size is None else size
        spec = EthosUCompileSpec(options.accelerator, vela.system_config, vela.memory_mode)
    goal = ScratchGoal(objective, effort, size, board)
    _install_backend()
    partitioner = EthosUPartitioner(spec)
    own = CompileSpec(
        _KEY, json.dumps({"goal": asdict(goal), "sections": sections, "npu_compiler": npu_compiler}).encode()
    )
    partitioner.delegation_spec = DelegationSpec(BACKEND, [*partitioner.delegation_spec.compile_specs, own])
    return partitioner


def plan_blocks(
    data: bytes, specs: Mapping[str, bytes], goal: ScratchGoal, npu_compiler: str = "vela", tosa: bytes = b""
) -> bytes:
    """The bytes of a delegate whose scratch is planned here, from Vela's stream in `data`, by native lowering of the
    graph `tosa`, or the better of both; `data` where nothing is better.
    """
    from fvp_runner import compare_programs

    before = delegate_program(data, specs)
    vela, native = b"", set[bytes]()
    refused: list[NpuMemplanError] = []
    if npu_compiler != "tvm":
        try:
            vela = replan_scratch(before, goal)[0].data or data
        except ScratchError as error:
            refused.append(error)
    if npu_compiler != "vela":
        try:
            calls = native_calls(tosa, npu_calls(before)[0], goal)
        except RefusalError as error:
            refused.append(error)
            calls = ()
            if vela:
                warnings.warn(f"a delegate stays Vela's: {error}", stacklevel=2)
        for call in calls:
            try:
                made = replan_call(call, goal, apart=True)
                native.add(made.data or bytes(made.delegate.data))
            except ScratchError as error:
                refused.append(error)
    found = [*([vela] if vela else []), *sorted(native)]
    if not found:
        raise refused[0]
    for best in sorted(found, key=_rank(vela, native, specs, goal)):
        if best is data:
            break
        try:
            compare_programs(before, delegate_program(best, specs), same_kernels=best not in native)
            break
        except InternalError as error:
            if best not in native or not vela:
                raise
            warnings.warn(f"a delegate stays Vela's: by native lowering, {error}", stacklevel=2)
    return best


def _rank(
    vela: bytes, native: Collection[bytes], specs: Mapping[str, bytes], goal: ScratchGoal
) -> Callable[[bytes], tuple[int, ...]]:
    """The order of results by what the goal wants least of first; cycles are those of the timing model with the most.

    Without a pool, few bytes count among those of nearly the fewest cycles. Native ones that a timing model says are
    slower than Vela's come last, but for the fewest bytes at whatever cycles.
    """
    figures: dict[bytes, tuple[tuple[int, ...], int]] = {}
    for data in (*((vela,) if vela else ()), *native):
        one = npu_calls(delegate_program(data, specs))[0]
        stream = decode(one.call.words, one.call.accelerator.language), one.call.accelerator
        cycles = tuple(cycles_by_model([stream], memories_for(one, {}, goal.board)).values())
        figures[data] = cycles, one.blocks.scratch_bytes
    slower: set[bytes] = set()
    if vela and (goal.objective != "bytes" or goal.pool_bytes is not None):
        slower = {data for data in native if any(map(gt, figures[data][0], figures[vela][0]))}
    most = min(max(cycles) for data, (cycles, _) in figures.items() if data not in slower) * TOLERANCES[goal.objective]

    def rank(data: bytes) -> tuple[int, ...]:
        cycles, size = max(figures[data][0]), figures[data][1]
        if data in slower:
            return 2, cycles, size
        if goal.pool_bytes is not None or cycles > most:
            return 1, cycles, size
        return 0, size, cycles

    return rank


def _install_backend() -> None:
    """Replace the delegate's bytes that Arm's backend makes for our compile spec; those of other specs stay."""
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
    requested = json.loads(own.value)
    with tempfile.TemporaryDirectory() as folder:
        if requested["sections"]:
            ini = Path(folder) / "vela.ini"
            ini.write_text(requested["sections"], encoding="utf-8")
            others = [_with_ini(one, ini) for one in others]
        result, tosa = _with_graph(original, edge_program, others)
    if result.data_store_output is not None:
        raise PartitionerError("commands or weights are to be external data; leave external_block_placements out")
    specs = {one.key: bytes(one.value) for one in compile_specs}
    goal, blocks = ScratchGoal(**requested["goal"]), bytes(result.processed_bytes)
    result.processed_bytes = plan_blocks(blocks, specs, goal, requested["npu_compiler"], tosa)
    return result


def _with_graph(original: Any, edge_program: Any, specs: Sequence[Any]) -> tuple[Any, bytes]:
    """The result of Arm's backend, and the TOSA graph that it gave Vela."""
    from executorch.backends.arm.ethosu import EthosUBackend

    compile_graph, graphs = EthosUBackend._compile_tosa_flatbuffer, []

    def keep(tosa: Any, spec: Any) -> Any:
        graphs.append(bytes(tosa))
        return compile_graph(tosa, spec)

    EthosUBackend._compile_tosa_flatbuffer = staticmethod(keep)
    try:
        return original(edge_program, specs), graphs[-1]
    finally:
        EthosUBackend._compile_tosa_flatbuffer = staticmethod(compile_graph)


def _with_ini(spec: Any, ini: Path) -> Any:
    """Arm's compile spec with a vela.ini in place of Vela's own."""
    if spec.key != _FLAGS:
        return spec
    words = [f"--config={ini}" if word.startswith("--config=") else word for word in spec.value.decode().split(" ")]
    return type(spec)(spec.key, " ".join(words).encode())
