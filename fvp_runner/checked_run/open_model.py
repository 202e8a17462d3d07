"""The reference of a checked run, and what it makes of the inputs.

Invariant: it runs before the program; what it cannot do is a reason not to compare, never a fault of the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from npu_memplan.errors import NpuMemplanError
from npu_memplan.process.ending import raise_outside_cause

from ..references.opened import open_reference
from ..result import Array
from .facts import REFERENCE, RunFacts, RunRequest

_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
_MESSAGE_CHARACTERS = 400


def open_model(
    request: RunRequest,
    inputs: Sequence[Sequence[Array]],
    keeps_states: bool,
    report_phase: Callable[[str, RunFacts], None],
) -> tuple[RunFacts, Any, list[tuple[Array, ...]]] | RunFacts:
    """Facts so far, the reference, and its outputs for each of `inputs`; facts alone where it cannot run them."""
    folder = Path(request.directory)
    report_phase(REFERENCE, RunFacts())
    try:
        _load(request.operators)
        model = open_reference(Path(request.model))
        expected = _outputs(model, inputs, keeps_states)
    except NpuMemplanError as error:
        return RunFacts(refused=describe_error(error, folder))
    except Exception as error:  # of a library: its importers raise whatever comes first
        raise_outside_cause(error)
        text = f"{type(error).__name__}: {describe_error(error, folder)}"
        return RunFacts(refused=f"the reference cannot run it: {text}")
    return RunFacts(reference=model.what, reference_version=_version(model.package)), model, expected


def _outputs(model: Any, inputs: Sequence[Sequence[Array]], keeps_states: bool) -> list[tuple[Array, ...]]:
    if not keeps_states:
        return [model.run(values) for values in inputs]
    model.reset()
    return [model.step(values) for values in inputs]


def _load(operators: Sequence[str]) -> None:
    if operators:
        from npu_memplan.frontend.host_ops.own import load_operators

        for path in operators:
            load_operators(path)


def _version(package: str) -> str:
    """Of the reference; empty where it is a program of its own."""
    with suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return ""


def describe_error(error: BaseException, folder: Path | None) -> str:
    """One line of an error's message, without what differs from one run to the next."""
    text = str(error).strip() or type(error).__name__
    if folder is not None:
        text = text.replace(str(folder), folder.name if not folder.name.startswith(".") else "it")
    return " ".join(_ADDRESS.sub("0x...", text).split())[:_MESSAGE_CHARACTERS]
