"""The command `compile` as a typed Python function.

Invariant: every keyword but those of the command itself is a field of `options.CompileOptions`, with its default; a
keyword or value that is wrong is an `OptionError`, before anything is read.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar

from .artifact import Artifact
from .files.schema import from_values
from .options import CompileOptions, OptionError, usual_accelerator
from .process.incidents import raise_faults
from .sizes import parse_size

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NAMES = ("host_ops", "operators")  # one name, or several
_POOLS = ("pools", "constant_pools", "external")


def _checked_keywords(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """`function`, whose unknown keywords are an `OptionError` that names a close one."""
    signature = inspect.signature(function)
    known = [name for name, p in signature.parameters.items() if p.kind is p.KEYWORD_ONLY]

    @functools.wraps(function)
    def call_checked(*args: _P.args, **keywords: _P.kwargs) -> _R:
        for name in keywords.keys() - signature.parameters.keys():
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
            raise OptionError(f"npu_memplan.compile has no keyword {name!r}; {meant}")
        return function(*args, **keywords)

    return call_checked


@_checked_keywords
def compile(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    board: str = "",
    accelerator: str = "",
    pools: Mapping[str, int | str] | None = None,
    constant_pools: Mapping[str, int | str | None] | None = None,
    objective: Literal["auto", "cycles", "bytes"] = "auto",
    effort: Literal["quick", "normal", "max"] = "normal",
    max_ms: float | None = None,
    fit: str = "",
    check: bool | None = None,
    force: bool = False,
    strict: bool = False,
    host_ops: str | Sequence[str] = (),
    operators: str | Sequence[str] = (),
    external: Mapping[str, int | str | None] | None = None,
    host_kernels: str = "",
    npu_compiler: Literal["auto", "vela", "tvm"] = "auto",
    optimise: Literal["Performance", "Size"] = "Performance",
    arena_cache_size_bytes: int | None = None,
    resident: str = "none",
    system_config: str = "",
    memory_mode: str = "",
    vela_ini: str = "",
    planner: str = "auto",
    time_limit_s: float | None = None,
    seed: int = 0,
    stripes: bool = False,
    stream_input: str = "",
    prefetch: bool = False,
    overlaps: bool = True,
    reuse_inputs: bool = True,
    host_time: bool = False,
    incbin: bool = False,
    io: Literal["file", "int8"] = "file",
    launch: Literal["small-driver", "arm-core-driver"] = "small-driver",
    name: str = "",
) -> Artifact:
    """Compile the file `model` into the directory `output`, as `npu-memplan compile` does, and return what was written.

    Keywords are the options of the command (docs/reference.md). `board`: its pools, memories, clock and largest NPU;
    `accelerator`: "" is the board's, or ethos-u55-256. Sizes in `pools`, `constant_pools` and `external` are bytes or
    text such as "64KiB"; None: no limit. `fit`: `SIZE` or `NAME=SIZE`; try all that could make it fit. `check`: run
    the program and its reference, and make it otherwise where results differ; None: unless that is much work, or as
    `NPU_MEMPLAN_CHECK` says. `force` replaces an artifact that is there. `overlaps=False` is --no-overlap,
    `reuse_inputs=False` is --keep-inputs.

    Raises `NpuMemplanError`, and leaves `output` as it was. A fault of this package is an `InternalError`; with
    `strict` also one that another program replaces.
    """
    from .checking.claims import compile_checked, compile_to_fit_checked
    from .checking.judge import check_mode

    given = locals()
    options = _keyword_options({field.name: given[field.name] for field in fields(CompileOptions)})
    with raise_faults(strict):
        if fit:
            return compile_to_fit_checked(Path(model), options, Path(output), fit, force, check_mode(check))[0]
        return compile_checked(Path(model), options, Path(output), force, check_mode(check))


def _keyword_options(given: dict[str, object]) -> CompileOptions:
    """The options of these keywords; `OptionError` for a value of another type."""
    given["accelerator"] = given["accelerator"] or usual_accelerator(str(given["board"]))
    for name in _NAMES:
        value = given[name]
        given[name] = (value,) if isinstance(value, str) else value
    for name in _POOLS:
        value = given[name] or {}
        if not isinstance(value, Mapping):
            raise OptionError(f"npu_memplan.compile: {name} is {value!r}; give names and sizes, as {{'sram': '96KiB'}}")
        given[name] = {pool: parse_size(size) if isinstance(size, str) else size for pool, size in value.items()}
    return from_values(given, CompileOptions, "npu_memplan.compile", OptionError)
