"""Start Vela in its own process while this one imports everything else.

Invariant: it only saves time. Faults of the model or the options are reported by `read`, and the result is the same
without this module. Nothing heavy is imported here, not even numpy.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import NpuMemplanError
from ..ethosu.time.systems import System, load_system
from ..ethosu.time.vela_ini import NAME, board_ini
from ..files.paths import read_bytes
from ..options import NO_NPU, CompileOptions
from ..target_data import load_board
from ..vela.worker import VelaOptions, start_compile


def start_loading(path: Path, options: CompileOptions) -> None:
    """Start the run of Vela that `read` is going to need, if it needs one. For commands only: their process imports
    less of TVM.
    """
    if options.accelerator == NO_NPU or options.npu_compiler == "tvm":
        return
    with contextlib.suppress(NpuMemplanError, OSError):
        data = read_bytes(path)
        if data[4:8] not in (b"TFL3", b"TOSA"):
            return
        _import_less_of_tvm()
        if not options.host_ops and not options.external:  # these have to be looked up in the model first
            start_compile(data, vela_options(options.resolve_defaults()))


def _import_less_of_tvm() -> None:
    """Leave out two fifths of the time of TVM's import, for parts that a lifted stream does not need."""
    os.environ.setdefault("TVM_DEVICE_BACKEND_AUTOLOAD", "0")  # TVM's own switch for its GPU back ends
    if "tvm" not in sys.modules:
        sys.meta_path.insert(0, _LeaveOut(sys.meta_path))


class _LeaveOut(MetaPathFinder):
    """Let TVM's first import of `tvm.runtime.disco`, its runtime for several machines, fail: TVM goes on without it,
    and need not load that library. A later import finds it.
    """

    def __init__(self, finders: list[Any]) -> None:
        self._finders = finders

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if fullname == "tvm.runtime.disco":
            self._finders.remove(self)
            raise ImportError(f"{fullname} is not imported with TVM", name=fullname)


def vela_options(options: CompileOptions) -> VelaOptions:
    """The options for Vela that resolved `options` of a compile mean: of a board, the board's own memories, pools and
    clock.
    """
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
