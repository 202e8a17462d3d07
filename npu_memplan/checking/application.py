"""`link` checks what it claims: each network runs from its place in the application, beside its reference.

Invariant: as of `compile`: a network whose check found more than is claimed is never written. Where another program of
it is right, all networks are placed again with that one, and checked again. An artifact keeps the check that it has.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ..artifact import Artifact
from ..artifact.application import Application
from ..artifact.check import CheckResult
from ..compiler import plan_network
from ..errors import InternalError
from ..link.networks import Compile, Linked
from ..options import CompileOptions
from ..process.incidents import gathering
from ..report.text.checked import difference
from ..report.writing import record
from ..stages import Planned
from .budget import LIMIT
from .candidates import CheckedProgram, notes, right_program
from .compile import candidate, check_results, compile_candidate
from .judge import is_right, with_result
from .mode import CheckMode

Written = tuple[Application, Artifact]


def link_checked(
    models: Mapping[str, Path],
    folder: Path,
    link: Callable[[Compile], Linked],
    write: Callable[[Linked], Written],
    mode: CheckMode,
) -> tuple[Written, dict[str, Artifact]]:
    """What `write` puts into the empty `folder` of the networks that `link` makes, and each with its check, by name.

    `models`: the file of each network that is compiled. Raises `InternalError` where no program of a network is right.
    """
    others: dict[Path, CheckedProgram[str]] = {}
    while True:
        linked = link(partial(_plan_other, others))
        written = write(linked)
        artifacts, wrong = _checked(models, folder, mode, others)
        if not wrong:
            return written, {name: record(artifact, folder / name) for name, artifact in artifacts.items()}
        others |= wrong
        for path in folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _plan_other(others: Mapping[Path, CheckedProgram[str]], model: Path, options: CompileOptions) -> Planned:
    """The program of `model`; of the one that was taken in its place, if there is one."""
    other = others.get(model)
    if other is not None:
        options = replace(options, npu_compiler=other.made_by, host_ops=other.target.host_ops)
    return plan_network(model, options)


def _checked(
    models: Mapping[str, Path],
    folder: Path,
    mode: CheckMode,
    others: Mapping[Path, CheckedProgram[str]],
) -> tuple[dict[str, Artifact], dict[Path, CheckedProgram[str]]]:
    """The networks with their checks; and by model the program to take in place of one that is wrong."""
    artifacts: dict[str, Artifact] = {}
    wrong: dict[Path, CheckedProgram[str]] = {}
    for name, model in models.items():
        other = others.get(model)
        artifact = Artifact.load(folder / name)
        check = check_results(folder / name, artifact, model, mode if other is None else CheckMode.ALWAYS, LIMIT)
        if is_right(artifact.operators, check):
            artifacts[name] = _with_check(artifact, check, other)
        elif other is not None:  # right by itself, and not in its place
            raise InternalError(f"{name}: {difference(check)}; nothing is written")
        else:
            with gathering():
                taken = right_program(
                    candidate(name, artifact, check), artifact.target, partial(_make_other, name, model)
                )
            if taken.check is check:
                artifacts[name] = _with_check(artifact, check, None)
            else:
                wrong[model] = taken
    return artifacts, wrong


def _make_other(name: str, model: Path, requested: CompileOptions) -> CheckedProgram[str]:
    program = compile_candidate(model, requested)
    return CheckedProgram(name, program.target, program.made_by, program.operators, program.check)


def _with_check(artifact: Artifact, check: CheckResult, other: CheckedProgram[str] | None) -> Artifact:
    if other is None:
        return with_result(artifact, check)
    check = replace(check, given_up=other.check.given_up)
    return with_result(replace(artifact, notes=(*artifact.notes, *notes(other))), check)
