"""What options say, as plain values for a hash; the files that they name are their content.

Invariant: options that may give another result give other values.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..cmsis_nn import open_cmsis_nn
from ..errors import NpuMemplanError
from ..files.paths import read_bytes
from ..options import CompileOptions


def named_files(options: CompileOptions) -> dict[str, str]:
    """Field -> path of each option that names one file, whatever it is called, there or not."""
    board = options.board if options.board.endswith(".toml") else ""  # else it is the name of one of ours
    return {name: path for name, path in (("vela_ini", options.vela_ini), ("board", board)) if path}


def code_digests(options: CompileOptions) -> dict[str, str]:
    """Path -> a hash of each source of the user's that options name: Python with operators, a folder of kernels in C.
    One that cannot be read is left out: the compile says so.
    """
    found = {}
    for path in options.operators:
        with contextlib.suppress(OSError):
            found[path] = hashlib.sha256(read_bytes(path)).hexdigest()
    if options.host_kernels:
        with contextlib.suppress(OSError, NpuMemplanError):
            found[options.host_kernels] = open_cmsis_nn(options.host_kernels).digest()
    return found


def resolved(options: CompileOptions) -> CompileOptions:
    """`options` with their defaults, or as they are where they contradict each other, which the compile says."""
    try:
        return options.resolved()
    except NpuMemplanError:
        return options


def plain(options: CompileOptions) -> dict[str, Any]:
    """Fields as JSON; mappings as pairs, because their order may matter."""
    found = {}
    for field in fields(options):
        value = getattr(options, field.name)
        found[field.name] = list(map(list, value.items())) if isinstance(value, Mapping) else value
    return found
