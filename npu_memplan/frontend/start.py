"""Start Vela in its own process while this one imports everything else.

Invariant: it only saves time. Faults of the model or the options are reported by `read`, and the result is the same
without this module. Nothing heavy is imported here, not even numpy.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

from ..errors import NpuMemplanError
from ..ethosu.time.systems import System, load_system
from ..ethosu.time.vela_ini import NAME, board_ini
from ..files.paths import read_bytes
from ..options import NO_NPU, CompileOptions
from ..process.lazy_imports import LazyFinder, LazyLoader
from ..target_data import load_board
from ..vela.worker import VelaOptions, start_compile


def start_loading(path: Path, options: CompileOptions) -> None:
    """Start the run of Vela that `read` will need, if any: for commands, whose process imports less of TVM."""
    if options.accelerator == NO_NPU or options.npu_compiler == "tvm":
        return
    with contextlib.suppress(NpuMemplanError, OSError):
        data = read_bytes(path)
        if data[4:8] not in (b"TFL3", b"TOSA"):
            return
        if not options.operators:  # Python of the user's may need all of TVM
            _import_less_of_tvm()
        if not options.host_ops and not options.external:  # these have to be looked up in the model first
            start_compile(data, vela_options(options.resolve_defaults()))


# Most of the time of TVM's import, and none of what lifting or lowering for an NPU calls.
_LAZY = frozenset({
    "ml_dtypes", "tvm.relax.backend.adreno", "tvm.relax.backend.gpu_generic", "tvm.relax.frontend.nn",
    "tvm.relax.training", "tvm.relax.transform.legalize_ops", "tvm.rpc", "tvm.s_tir.dlight", "tvm.s_tir.meta_schedule",
    "tvm.topi",
})  # fmt: skip


def _import_less_of_tvm() -> None:
    """Leave out most of the time of TVM's import, for parts that an NPU's program does not need."""
    os.environ.setdefault("TVM_DEVICE_BACKEND_AUTOLOAD", "0")  # TVM's own switch for its GPU back ends
    if "tvm" not in sys.modules:
        sys.meta_path.insert(0, _LeaveOut(_LAZY))


class _LeaveOut(LazyFinder):
    """Shortens TVM's first import, and is gone when that ends.

    The import of `tvm.runtime.disco`, its runtime for several machines, fails: TVM goes on without it, and need not
    load that library. The modules of `_LAZY` are executed when the first of their names is asked for. `tvm_ffi` asks
    `ml_dtypes` at once for types of numpy's that no NPU has, and goes on without it as well: numpy 2.4 takes 0.8 s to
    add these types.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "tvm.runtime.disco" or (fullname == "ml_dtypes" and "tvm.runtime" not in sys.modules):
            raise ImportError(f"{fullname} is not imported with TVM", name=fullname)
        if fullname != "tvm":
            return super().find_spec(fullname, path, target)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _WholeLoader(spec.loader, self)
        return spec


class _WholeLoader(LazyLoader):
    """Executes TVM."""

    def __init__(self, loader: Loader, finder: _LeaveOut) -> None:
        super().__init__(loader)
        self._finder = finder

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._loader
        try:
            with _functions_listed_once():
                self._loader.exec_module(module)
        finally:
            sys.meta_path.remove(self._finder)


@contextlib.contextmanager
def _functions_listed_once() -> Iterator[None]:
    """Inside, the names of all global functions are listed only when there are more than before: TVM asks for the
    2,000 once for each of 50 modules, and removes none.
    """
    from tvm_ffi import registry

    list_names = registry.list_global_func_names
    known: list[str] = []

    def list_once() -> list[str]:
        if registry.get_global_func("ffi.FunctionListGlobalNamesFunctor")()(-1) != len(known):
            known[:] = list_names()
        return known

    registry.list_global_func_names = list_once
    try:
        yield
    finally:
        registry.list_global_func_names = list_names


def vela_options(options: CompileOptions) -> VelaOptions:
    """The options for Vela of resolved `options`: of a board, the board's own memories, pools and clock."""
    system = load_system(options.system_config, Path(options.vela_ini) if options.vela_ini else None)
    sections = _board_sections(options, system) if options.board and not options.vela_ini else ""
    return VelaOptions(
        accelerator=options.accelerator,
        system_config=NAME if sections else system.vela,
        ini=options.vela_ini,
        sections=sections,
        memory_mode=options.memory_mode,
        optimise=options.optimise,
        arena_cache_size=options.arena_cache_size_bytes,
    )


def _board_sections(options: CompileOptions, system: System) -> str:
    """The board as a vela.ini has it."""
    memory_map, pools = options.memory_map(), replace(options, pools={}).planned_pools()
    assert memory_map is not None
    memories = {port: system.behind(port) for port in (0, 1)}
    size = pools[-1].size_bytes
    assert size is not None  # a board's pool has one
    return board_ini(load_board(options.board), memory_map, options.memory_mode, memories, size)
