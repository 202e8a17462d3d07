"""`tvmc compile` checks what it claims: the library's program runs as an artifact, beside the reference of its model.

Invariant: as of `compile`: a library of a program whose check found more than is claimed is never written. The library
has that program at the same places in its pools; only the NPU's base addresses have other numbers.
"""

from __future__ import annotations

from dataclasses import replace

from ..artifact import Artifact
from ..codegen.mlf import Library
from ..files.owned_folder import scratch_folder
from ..options import CompileOptions
from ..pipeline import build
from ..process.incidents import gathering
from ..report.writing import write
from ..stages import Planned
from ..tvmc.compile import library_of, plan_program
from ..tvmc.options import TvmcOptions
from .budget import LIMIT, LIMIT_OF_SEARCHES
from .candidates import CheckedProgram, notes, right_program
from .compile import candidate, check_results
from .judge import with_result
from .mode import CheckMode

_Program = CheckedProgram[tuple[TvmcOptions, Planned, Artifact]]


def compile_library_checked(options: TvmcOptions, mode: CheckMode) -> tuple[Library, Artifact]:
    """The library of the model that `options` name, or of another program in its place that is right, and the program
    as an artifact, with its check. Raises as `compile_to_mlf`, and `InternalError` where no program is right."""

    def make(wanted: TvmcOptions, how: CheckMode) -> _Program:
        made = plan_program(wanted)
        compiled = build(made)
        with scratch_folder("check") as place:
            artifact = write(compiled, place)
            limit = LIMIT_OF_SEARCHES if artifact.target.competes else LIMIT
            check = check_results(place, artifact, wanted.model, how, limit)
        return candidate((wanted, made, artifact), artifact, check)

    def make_other(requested: CompileOptions) -> _Program:
        other = replace(options, npu_compiler=requested.npu_compiler, host_ops=requested.host_ops)
        return make(other, CheckMode.ALWAYS)

    with gathering():
        first = make(options, mode)
        requested = replace(first.target, npu_compiler=options.npu_compiler)
        taken = right_program(first, requested, make_other)
        wanted, made, artifact = taken.program
        artifact = with_result(replace(artifact, notes=(*artifact.notes, *notes(taken))), taken.check)
        return library_of(wanted, made), artifact
