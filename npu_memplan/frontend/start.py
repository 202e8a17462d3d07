"""What a command does first: Vela begins in its own process while this one imports everything else.

Invariant: it only saves time. What is wrong with the model or the options is left for `read` to say, and the
result is the same without it. Nothing heavy is imported here, not even numpy.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from ..errors import NpuMemplanError
from ..ethosu.time.systems import load_system
from ..ethosu.vela_worker import VelaOptions, start_compile
from ..options import NO_NPU, CompileOptions


def start_loading(path: Path, options: CompileOptions) -> None:
    """Begin what `read` will ask Vela for, if it will. For commands only: their process imports less of TVM."""
    if options.accelerator == NO_NPU or options.npu_compiler == "tvm":
        return
    with contextlib.suppress(NpuMemplanError, OSError):
        data = path.read_bytes()
        if data[4:8] not in (b"TFL3", b"TOSA"):
            return
        _import_less_of_tvm()
        if not options.host_ops and not options.external:  # these have to be looked up in the model first
            start_compile(data, vela_options(options.resolved()))


def _import_less_of_tvm() -> None:
    """Leave out two fifths of the time of TVM's import, for parts that a lifted stream does not need."""
    os.environ.setdefault("TVM_DEVICE_BACKEND_AUTOLOAD", "0")  # TVM's own switch for its GPU back ends
    # TVM goes on when this import fails, which it always does here; as a C++ error that takes a quarter of a second.
    sys.modules.setdefault("tvm.runtime.disco", None)  # type: ignore[arg-type]


def vela_options(options: CompileOptions) -> VelaOptions:
    """What resolved `options` of a compile mean for Vela."""
    system = load_system(options.system_config, Path(options.vela_ini) if options.vela_ini else None)
    return VelaOptions(
        accelerator=options.accelerator,
        system_config=system.vela,
        ini=options.vela_ini,
        memory_mode=options.memory_mode,
        optimise=options.optimise,
        arena_cache_size=options.arena_cache_size_bytes,
    )
