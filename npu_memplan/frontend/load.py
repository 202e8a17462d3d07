"""A model file to one IRModule, by the producer that the user chose.

Invariant: whoever made the module, the stages behind it see the same form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..ethosu.stream.decode import decode
from ..ethosu.time import estimate
from ..ethosu.vela import VelaResult
from ..models.file import read_file
from ..models.onnx import is_onnx
from ..models.torch import is_torch
from ..options import NO_NPU, CompileOptions
from .start import vela_options
from .tflite.lifted import import_host_only, import_tflite


class FormatError(NpuMemplanError):
    """The chosen compiler does not read this kind of file."""


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model as a module, and what its NPU compiler would have used by itself."""

    path: Path
    data: bytes = field(repr=False)
    module: Any  # tvm.IRModule
    vela_arena_bytes: Mapping[str, int]  # empty when Vela was not asked or counts other things
    notes: tuple[str, ...] = ()
    vela_cycles: int = 0  # Vela's own estimate of the stream that it made; 0: there is none
    vela_stream_cycles: int = 0  # ours of the same


def load_model(path: Path, options: CompileOptions) -> Loaded:
    """Read `path` and make its module; `options` are resolved. Raises the frontends' errors."""
    data = read_file(path)
    if is_onnx(path) or is_torch(path):
        return _load_graph(path, data, options)
    if options.accelerator == NO_NPU:
        return Loaded(path, data, import_host_only(data, path.name).module, {})
    if options.npu_compiler == "tvm":
        from .tflite.lowered import build_module

        built = build_module(data, options.accelerator, options.host_ops, path.name, _fast_region(options))
        return Loaded(path, data, built.module, {}, built.notes)
    imported = import_tflite(data, vela_options(options), options.host_ops, path.name)
    vela = imported.vela
    if vela is None:
        return Loaded(path, data, imported.module, {})
    where = options.memory_map()
    streams = [(decode(call.words), call.accelerator) for call in vela.parsed.npu_calls] if where else []
    ours = sum(estimate(commands, npu, where).total for commands, npu in streams if where)
    return Loaded(path, data, imported.module, _comparable_arenas(vela), (), vela.cycles, ours)


def _load_graph(path: Path, data: bytes, options: CompileOptions) -> Loaded:
    """An ONNX model or a PyTorch program."""
    what = "an ONNX model" if is_onnx(path) else "a PyTorch program"
    if options.accelerator != NO_NPU and options.npu_compiler != "tvm":
        raise FormatError(
            f"{path.name} is {what}, and Vela reads TFLite only; add --npu-compiler tvm (QDQ models), or "
            "--accelerator none to run it on the host alone"
        )
    from .attributes import operators_of

    if is_onnx(path):
        from .onnx.build import build_onnx_module

        module = build_onnx_module(path, options.accelerator, options.host_ops, "", _fast_region(options))
    else:
        from .torch.build import build_torch_module

        module = build_torch_module(path, options.accelerator, options.host_ops, _fast_region(options))
    host = [o.kind for o in operators_of(module["main"]) if not o.on_npu]
    if options.accelerator == NO_NPU or not host:
        return Loaded(path, data, module, {})
    return Loaded(path, data, module, {}, (f"{', '.join(dict.fromkeys(host))}: on the host, in TVM's own code",))


def _fast_region(options: CompileOptions) -> int:
    """The NPU region of the last pool, which is the NPU's own memory where there are two; else -1."""
    count = len(options.planned_pools())
    return count if count > 1 else -1


def _comparable_arenas(vela: VelaResult) -> Mapping[str, int]:
    """Vela's own figures where they count all that a plan counts: not the scratch of host operators, nor states that
    lie outside Vela's arena.
    """
    network = vela.parsed
    homeless = any(network.tensors[i].arena_offset < 0 for i in network.states)
    return {} if network.cpu_operators or homeless else vela.arena_bytes
