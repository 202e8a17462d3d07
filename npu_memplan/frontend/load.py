"""A model file to one IRModule, by the producer that the user chose.

Invariant: whoever made the module, the stages behind it see the same form.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError
from ..ethosu.vela import VelaOptions
from ..options import NO_NPU, CompileOptions
from .checks import read_file
from .tflite import Imported, import_host_only, import_tflite, start_import


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A model as a module, and what its NPU compiler would have used by itself."""

    path: Path
    data: bytes = field(repr=False)
    module: Any  # tvm.IRModule
    vela_arena_bytes: Mapping[str, int]  # empty when Vela was not asked
    notes: tuple[str, ...] = ()


def load_model(path: Path, options: CompileOptions) -> Loaded:
    """Read `path` and make its module; `options` are resolved. Raises the frontends' errors."""
    data = read_file(path)
    if options.accelerator == NO_NPU:
        return Loaded(path, data, import_host_only(data, path.name).module, {})
    if options.npu_compiler == "tvm":
        from .attributes import operators_of
        from .tvm_npu import build_module

        fast = len(options.planned_pools())  # the last pool is the NPU's own memory, where there are two
        built = build_module(data, options.accelerator, options.host_ops, path.name, fast if fast > 1 else -1)
        host = [o.kind for o in operators_of(built.module["main"]) if not o.on_npu]
        note = f"{', '.join(host)}: on the host in TVM's float form, which may differ from TFLite by one step"
        return Loaded(path, data, built.module, {}, (note,) if host else ())
    imported = import_tflite(data, _vela_options(options), options.host_ops, path.name)
    vela = imported.vela
    return Loaded(path, data, imported.module, vela.arena_bytes if vela else {}, _notes(imported))


def _notes(imported: Imported) -> tuple[str, ...]:
    """What makes Vela's figure smaller than a plan that holds everything."""
    states = [imported.network.tensors[i] for i in imported.network.states]
    uncounted = sum(t.size_bytes for t in states if t.arena_offset < 0)
    if imported.vela is None or not uncounted:
        return ()
    return (f"Vela's own figure leaves out {uncounted} bytes of state tensors outside its arena; this plan has them",)


def start_loading(path: Path, options: CompileOptions) -> None:
    """Let Vela begin while the caller imports the rest; `load_model` picks it up. Errors are left to that."""
    if options.accelerator == NO_NPU or options.npu_compiler != "vela":
        return
    with contextlib.suppress(NpuMemplanError):
        options = options.resolved()
        start_import(read_file(path), _vela_options(options), options.host_ops, path.name)


def _vela_options(options: CompileOptions) -> VelaOptions:
    return VelaOptions(
        accelerator=options.accelerator,
        system_config=options.system_config,
        memory_mode=options.memory_mode,
        optimise=options.optimise,
        arena_cache_size=options.arena_cache_size_bytes,
    )
