"""Operators that tests build without an artifact: sanitized, as local runners are in tests.

Invariant: no compiler warns of their C (`warnings_of_c`), and they touch their own bytes only.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fvp_runner.host.instrumented import instrument_sources
from fvp_runner.host.sanitizer import Sanitizer
from npu_memplan.c_compiler import compiler_command
from npu_memplan.codegen.description import calls_of
from npu_memplan.problem import Plan
from npu_memplan.stages import Extracted

from .warnings_of_c import check_warnings

PLAIN = ("-std=c11", "-O1", "-ffp-contract=off", "-fno-strict-aliasing", "-fPIC")


class Program:
    """`<name>.c` and `<name>_host.c` (and a library of theirs) in a folder, compiled, loaded and sanitized, with its
    pools in this process.
    """

    def __init__(self, folder: Path, name: str, extracted: Extracted, plan: Plan, pools: Sequence[np.ndarray]) -> None:
        sources = [folder / f"{name}.c", folder / f"{name}_host.c"]
        check_warnings(sources)
        sources += folder.glob(f"{name}_cmsis_nn.c")  # not our own: what compilers say of it is not asked
        command = compiler_command()
        assert command is not None
        made = instrument_sources(command, name, sources, folder, PLAIN)
        lines = [*made.lines, [*command, *PLAIN, "-shared", *map(str, made.inputs), "-o", f"{folder / name}.so", "-lm"]]
        for line in lines:
            subprocess.run(line, check=True)
        self._library, self._name = ctypes.CDLL(f"{folder / name}.so"), name
        self._pointers = (ctypes.c_void_p * len(pools))(*(pool.ctypes.data for pool in pools))
        named = dict(zip((pool.name for pool in extracted.problem.pools), pools, strict=True))
        calls = calls_of(extracted.program, extracted.problem)
        self._sanitizer = Sanitizer(self._library, named, extracted.problem, plan, calls)

    def define(self, pool: str, offset_bytes: int, size_bytes: int) -> None:
        """The caller has written these bytes."""
        self._sanitizer.define_bytes(pool, offset_bytes, size_bytes)

    def run(self) -> None:
        """One inference."""
        function = self._library[f"{self._name}_run"]
        status: Any = self._library.npu_memplan_sanitizer_run(function, self._pointers, -1)
        self._sanitizer.raise_fault()
        assert status == 0
