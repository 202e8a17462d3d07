"""The NPU and the memories that the delegates of a program were compiled for.

Invariant: what the user names comes first, then what the delegate's compile flags name, then what the accelerator has.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ..errors import InternalError, NpuMemplanError
from ..ethosu.time import MemoryMap
from ..models.executorch.vela_network import EthosUCall
from ..options import CompileOptions

_FLAGS = {"system-config": "system_config", "memory-mode": "memory_mode"}
_SPEC = "compile_flags"


def options_for(one: EthosUCall, given: Mapping[str, str], board: str = "") -> CompileOptions:
    """The options that Vela was given for a delegate, as far as its specs name them, with those that a user gives."""
    stated = _stated_options(one)
    if board:
        stated.pop("system_config", None)
    accelerator, requested = one.call.accelerator.name, {key: value for key, value in given.items() if value}
    for known in [stated, {}] if stated else [{}]:
        try:
            options = CompileOptions(accelerator, board=board, **{**known, **requested}).resolved()  # type: ignore[arg-type]
            options.memory_map()
            return options
        except NpuMemplanError:
            if not known:
                raise
    raise InternalError("options that were not given are not tried")


def memories_for(one: EthosUCall, given: Mapping[str, str], board: str = "") -> MemoryMap:
    """The memories behind the NPU's regions."""
    memory_map = options_for(one, given, board).memory_map()
    assert memory_map is not None
    return memory_map


def _stated_options(one: EthosUCall) -> dict[str, str]:
    text = one.method.delegates[one.delegate].specs.get(_SPEC, b"").decode("utf-8", "replace")
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    pairs = (word.removeprefix("--").partition("=") for word in words if word.startswith("--"))
    return {_FLAGS[key]: value for key, _, value in pairs if key in _FLAGS}
