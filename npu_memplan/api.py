"""The commands `compile` and `explore` as typed Python functions.

Invariant: every keyword but those of the command itself is a field of `options.CompileOptions`, with its default; a
keyword or value that is wrong is an `OptionError`, before anything is read.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .artifact import Artifact
from .files.schema import from_values
from .options import REMOVED, CompileOptions, OptionError, default_values, usual_accelerator
from .process.incidents import raise_faults
from .sizes import parse_size

if TYPE_CHECKING:
    from .tuning.pareto import ParetoFront

_NAMES = tuple(name for name, default in default_values().items() if default == ())  # one name, or several
_SIZES = tuple(name for name, default in default_values().items() if default == {})


def _with_declared_keywords(function: Callable[..., Artifact]) -> Callable[..., Artifact]:
    """`function` with a keyword for each field of `CompileOptions` in its signature; an `OptionError` for another."""
    signature = inspect.signature(function)
    types = {field.name: field.type for field in fields(CompileOptions)}
    own = [one for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD]
    declared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=types[name])
        for name, default in default_values().items()
    ]
    signature = signature.replace(parameters=[*own, *declared])
    known = [name for name, one in signature.parameters.items() if one.kind is one.KEYWORD_ONLY]

    @functools.wraps(function)
    def call_checked(*args: Any, **keywords: Any) -> Artifact:
        for name in keywords.keys() - signature.parameters.keys():
            close = difflib.get_close_matches(name, known, n=1)
            meant = f"did you mean {close[0]!r}?" if close else f"it has: {', '.join(known)}"
            if (flag := f"--{name.replace('_', '-')}") in REMOVED:
                meant = f"{flag} is no option: {REMOVED[flag]}"
            raise OptionError(f"npu_memplan.compile has no keyword {name!r}; {meant}")
        return function(*args, **keywords)

    call_checked.__signature__ = signature  # type: ignore[attr-defined]
    return call_checked


@_with_declared_keywords
def compile(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    force: bool = False,
    check: bool | None = None,
    strict: bool = False,
    **options: Any,
) -> Artifact:
    """Compile the file `model` into the directory `output`, as `npu-memplan compile` does, and return what was written.

    `options` are the options of the command (docs/reference.md). `board`: its pools, memories, clock and largest NPU;
    `accelerator`: "" is the board's, or ethos-u55-256. Sizes in `pools`, `constant_pools` and `external` are bytes or
    text such as "64KiB"; None: no limit. `check`: run the program and its reference, and make it otherwise where
    results differ; None: unless that is much work, or as `NPU_MEMPLAN_CHECK` says. `force` replaces an artifact that is
    there. `overlaps=False`: no buffer is written over one that is being read; `reuse_inputs=False`: nor over an input
    that was read. `prefetch`: room for weights to be copied one operation early.

    Raises `NpuMemplanError`, and leaves `output` as it was. A fault of this package is an `InternalError`; with
    `strict` also one that another program replaces.
    """
    from .checking.claims import compile_checked
    from .checking.judge import check_mode

    wanted = _keyword_options(options)
    with raise_faults(strict):
        return compile_checked(Path(model), wanted, Path(output), force, check_mode(check))


def explore(
    model: str | os.PathLike[str], limits: Iterable[int | str] = (), *, board: str = "", accelerator: str = ""
) -> ParetoFront:
    """Find the fastest program of the file `model` for each of `limits` (bytes, or text such as "64KiB") of the pool of
    feature maps, as `npu-memplan explore` does; without limits, for shares of the arena that Vela needs.

    Raises `NpuMemplanError`, where nothing fits any limit too.
    """
    from .compiler import model_loader
    from .tuning.pareto import explore as find_front

    options = _keyword_options({"board": board, "accelerator": accelerator})
    sizes = [parse_size(size) if isinstance(size, str) else size for size in limits]
    return find_front(Path(model), options, model_loader(Path(model)), sizes)


def _keyword_options(given: dict[str, Any]) -> CompileOptions:
    """The options of these keywords; `OptionError` for a value of another type."""
    for name in given.keys() & {*_NAMES}:
        value = given[name]
        given[name] = (value,) if isinstance(value, str) else value
    for name in given.keys() & {*_SIZES}:
        value = given[name] or {}
        if not isinstance(value, Mapping):
            raise OptionError(f"npu_memplan.compile: {name} is {value!r}; give names and sizes, as {{'sram': '96KiB'}}")
        given[name] = {pool: parse_size(size) if isinstance(size, str) else size for pool, size in value.items()}
    given["accelerator"] = given.get("accelerator") or usual_accelerator(str(given.get("board", "")))
    return from_values(given, CompileOptions, "npu_memplan.compile", OptionError)
