"""The stage `read`: a model file to one IRModule, by the backend that the user chose, or else by Vela or native
lowering, whichever takes it.

Invariant: whatever made the module, the stages after it see the same form. Where no backend is named, a network that
either accepts is compiled; a note says when it is not the first choice, and the artifact's options name the one taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import RefusalError
from ..ethosu.arch import Architecture
from ..ethosu.lowering import LoweringTarget
from ..ethosu.stream.decode import Command, decode
from ..ethosu.time import JUDGED, MemoryMap, Needs, cycles_by_model, estimate, sum_bounds
from ..models.edits import with_ends
from ..models.flatbuffer import UnsupportedModelError, read_file
from ..models.frameworks import is_onnx, is_torch, require_onnx
from ..models.network import Network
from ..models.tosa import is_tosa
from ..models.vela import NpuCall
from ..options import AUTO, NO_NPU, CompileOptions
from ..process.incidents import Fallback, fall_back, report_phase
from ..request import Loaded, Request, request
from ..vela.compiler import VelaResult
from ..vela.lift import LiftError
from ..vela.worker import VelaError
from .errors import FormatError as FormatError
from .start import vela_options
from .tflite.lifted import import_host_only, import_tflite


def read(path: Path, request: Request, known: dict[object, Any] | None = None) -> Loaded:
    """The module of the file `path`; raises the frontends' errors. `known` keeps what does not depend on the target of
    native lowering, and what Vela leaves to the host as a whole, for the next read.
    """
    report_phase(
        f"reading {path.name}, {request.options.npu_compiler} scheduling"
        if request.options.accelerator != NO_NPU
        else f"reading {path.name}"
    )
    options = request.options
    kind = request.model_format or ("onnx" if is_onnx(path) else "torch" if is_torch(path) else "tflite")
    data = read_file(path)
    if options.io != "file" and (kind != "tflite" or is_tosa(data)):
        raise FormatError(f"--io {options.io} is for TFLite models, and {path.name} is none; leave it out")
    if kind == "tflite" and is_tosa(data):
        return _read_tosa(path, data, request)
    if kind != "tflite":
        return _read_graph(path, data, kind, request)
    data = with_ends(data, path.name, options.io)
    if options.operators:
        from .host_ops.own import load_operators

        for described in options.operators:
            load_operators(described)
    host = options.external, options.host_kernels
    if options.accelerator == NO_NPU:
        return Loaded(request, path, data, import_host_only(data, path.name, *host, request.host_rows).module, {})
    if options.npu_compiler == "tvm":
        from .tflite.lowered import build_module

        how = (options.host_ops, path.name, lowered_for(request), *host)
        built = build_module(data, options.accelerator, *how, known)
        return Loaded(request, path, data, built.module, {}, built.notes)
    key = data, vela_options(options), tuple(options.host_ops), tuple(options.external.items()), options.host_kernels
    imported = (known or {}).get(key) or import_tflite(data, key[1], options.host_ops, path.name, *host)
    if known is not None and not imported.network.npu_calls:  # it is read again where no program has any
        known[key] = imported
    vela = imported.vela
    if vela is None:
        return Loaded(request, path, data, imported.module, {}, imported.notes)
    return replace(_of_vela(path, data, request, imported.module, vela), kept_from_vela=imported.kept)


def read_by_one(model: Path, options: CompileOptions, known: dict[object, Any] | None = None) -> Loaded:
    """The module of the file `model`; `known` as for `read`.

    Raises the first choice's error where no choice takes the model.
    """
    if options.npu_compiler != AUTO or options.stripes or options.accelerator == NO_NPU:
        return read(model, request(options), known)
    vela, ours = (request(replace(options, npu_compiler=name)) for name in ("vela", "tvm"))
    if is_onnx(model) or is_torch(model):
        return read(model, ours, known)
    try:
        return read(model, vela, known)
    except (UnsupportedModelError, VelaError, LiftError) as refused:
        try:
            loaded = read(model, ours, known)
        except RefusalError:
            raise refused from None
        fall_back(Fallback.BACKEND, f"native lowering was taken: --npu-compiler vela says: {refused}")
        return loaded


def _of_vela(path: Path, data: bytes, request: Request, module: Any, vela: VelaResult) -> Loaded:
    """A lifted module, with Vela's own arena and time."""
    loaded = Loaded(request, path, data, module, _comparable_arenas(vela), vela_cycles=vela.cycles)
    memory_map = request.options.memory_map()
    if memory_map is None:
        return loaded
    streams = decoded_streams(vela.parsed.npu_calls)
    by_model = tuple(cycles_by_model(streams, memory_map, JUDGED).values())
    return replace(loaded, vela_stream_bounds=stream_bounds(streams, memory_map), vela_stream_cycles=by_model)


def decoded_streams(calls: Iterable[NpuCall]) -> list[tuple[Sequence[Command], Architecture]]:
    """The streams of a file that Vela compiled."""
    return [(decode(call.words, call.accelerator.language), call.accelerator) for call in calls]


def stream_bounds(
    streams: Iterable[tuple[Sequence[Command], Architecture]], memory_map: MemoryMap
) -> Mapping[str, int]:
    """The estimated cycles of the streams, by cause."""
    return sum_bounds(estimate(commands, npu, memory_map) for commands, npu in streams)


def network_memory_map(network: Network, options: CompileOptions) -> MemoryMap:
    """The memories that the NPU's streams of a network that Vela compiled are in: those of a compile with the same
    `options`, but for the NPU, which the network says itself, where its arena and its constants have room.
    """
    calls = network.npu_calls
    options = options.resolve_for(calls[0].accelerator.name)
    first, *others = (pool.name for pool in options.planned_pools())
    sizes = {first: max(call.scratch_bytes for call in calls)}
    sizes |= {name: max(call.scratch_fast_bytes for call in calls) for name in others}
    constants = sum(call.read_only.nbytes + 4 * len(call.words) for call in calls)
    memory_map = options.memory_map(needs=Needs(sizes, constants))
    assert memory_map is not None  # there is an NPU
    return memory_map


def _read_tosa(path: Path, data: bytes, request: Request) -> Loaded:
    """A TOSA file, of which an NPU runs all."""
    options = request.options
    if options.accelerator == NO_NPU:
        raise FormatError(f"{path.name} is TOSA, which is compiled for an NPU: give --accelerator ethos-u...")
    if options.external or options.operators or options.host_ops or options.host_kernels:
        raise FormatError(f"{path.name} is TOSA, of which nothing runs on the host; --host-ops is for TFLite models")
    if options.npu_compiler == "tvm":
        from .tosa.modules import build_tosa_module

        module = build_tosa_module(data, options.accelerator, lowered_for(request), path.name)
        return Loaded(request, path, data, module, {})
    from .tosa.modules import import_tosa

    return _of_vela(path, data, request, *import_tosa(data, vela_options(options), path.name))


def _read_graph(path: Path, data: bytes, kind: str, request: Request) -> Loaded:
    """An ONNX model or a PyTorch program."""
    options = request.options
    what = "an ONNX model" if kind == "onnx" else "a PyTorch program"
    if options.external or options.operators or options.host_kernels:
        raise FormatError(
            f"{path.name} is {what}; OP=SIZE, FILE.py and cmsis-nn=DIR of --host-ops are for operators of TFLite models"
        )
    if options.accelerator != NO_NPU and options.npu_compiler != "tvm":
        raise FormatError(
            f"{path.name} is {what}, and Vela reads TFLite only; add --npu-compiler tvm (QDQ models), or "
            "--accelerator none to run it on the host alone"
        )
    from .attributes import operators_of
    from .graph import build_qdq_module

    if kind == "onnx":
        require_onnx()  # TVM's own importer stops with an error of its own
        from .onnx import import_file
    else:
        from .torch import import_file
    module = build_qdq_module(import_file(path), path.name, options.accelerator, options.host_ops, lowered_for(request))
    host = [o.kind for o in operators_of(module["main"]) if not o.on_npu]
    if options.accelerator == NO_NPU or not host:
        return Loaded(request, path, data, module, {})
    notes = (f"{', '.join(dict.fromkeys(host))}: on the host, in TVM's own code",)
    return Loaded(request, path, data, module, {}, notes)


def lowered_for(request: Request) -> LoweringTarget:
    """The target of native lowering. Where cycles are the objective, blocks are chosen as if constants were copied
    already.
    """
    options = request.options
    memory_map, near = options.memory_map(), options.has_size and options.for_cycles
    return LoweringTarget(
        request.fast_region,
        memory_map.with_constants_near() if memory_map and near else memory_map,
        options.for_cycles,
        request.sums_by_rows,
    )


def _comparable_arenas(vela: VelaResult) -> Mapping[str, int]:
    """Vela's own bytes, where they count all that a plan counts; none where host operators have scratch or states lie
    outside Vela's arena.
    """
    network = vela.parsed
    homeless = any(network.tensors[i].arena_offset < 0 for i in network.states)
    return {} if network.cpu_operators or homeless else vela.arena_bytes
