"""The NPU and the memories that the delegates of a program were compiled for.

Invariant: what the user names comes first, then what the delegate's compile flags name, then what the accelerator has.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from ..errors import NpuMemplanError
from ..ethosu.time import MemoryMap
from ..models.executorch.vela_network import EthosUCall
from ..options import CompileOptions
from ..target_data import memory_mode_names

_FLAGS = {"system-config": "system_config", "memory-mode": "memory_mode"}
_SPEC = "compile_flags"


def options_for(one: EthosUCall, given: Mapping[str, str], board: str = "") -> CompileOptions:
    """The options that Vela was given for a delegate, as far as its specs name them, with those that a user gives."""
    said = {} if board else _said(one)
    accelerator = one.call.accelerator.name
    known = said if said.get("memory_mode") in memory_mode_names() else {}
    chosen = {**known, **{key: value for key, value in given.items() if value}}
    options = CompileOptions(accelerator, board=board, **chosen)  # type: ignore[arg-type]
    try:
        return options.resolved()
    except NpuMemplanError:
        if any(given.values()) or board:
            raise
        return CompileOptions(accelerator).resolved()


def memories_for(one: EthosUCall, given: Mapping[str, str], board: str = "") -> MemoryMap:
    """The memories behind the NPU's regions; of a system that is not known, the accelerator's."""
    try:
        where = options_for(one, given, board).memory_map()
    except NpuMemplanError:
        if any(given.values()) or board:
            raise
        where = CompileOptions(one.call.accelerator.name).memory_map()
    assert where is not None
    return where


def _said(one: EthosUCall) -> dict[str, str]:
    text = one.method.delegates[one.delegate].specs.get(_SPEC, b"").decode("utf-8", "replace")
    try:
        words = shlex.split(text)
    except ValueError:
        return {}
    pairs = (word.removeprefix("--").partition("=") for word in words if word.startswith("--"))
    return {_FLAGS[key]: value for key, _, value in pairs if key in _FLAGS}
