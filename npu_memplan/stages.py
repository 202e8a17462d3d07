"""The values between the stages of a compile: each is the result of one stage and all that the next one takes.

Invariant: pure data, but for `extract_problem`, which joins a module and what was extracted from it; nothing heavy is
imported here. The stages `read` and `lower` give a `Loaded` (see `request`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .problem import Lifetime, Plan, Problem
from .request import Loaded

if TYPE_CHECKING:
    from .artifact import Artifact
    from .codegen.printed import Sources
    from .extract.liveness import Storage
    from .extract.program import Program
    from .extract.symbolic import Sample


@dataclass(frozen=True, slots=True, eq=False)
class Extracted:
    """The planning problem of a function, and the program that it was read from."""

    loaded: Loaded
    problem: Problem
    program: Program
    lives: Mapping[Storage, tuple[Lifetime, ...]]  # of everything, planned or not
    sample: Sample | None = None  # values of the shape symbols that the problem's sizes are of
    terms: Callable[[Extracted], Problem] | None = None  # the problem under more terms than its program has

    def under_terms(self, terms: Callable[[Extracted], Problem] | None) -> Extracted:
        """The same with a problem of more terms, which hold again whenever its program is replaced."""
        return self if terms is None else replace(self, problem=terms(self), terms=terms)


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """A problem and its plan, which `build` takes as it is, right or wrong."""

    extracted: Extracted
    plan: Plan


@dataclass(frozen=True, slots=True, eq=False)
class Compiled:
    """Everything a compile makes, in memory."""

    artifact: Artifact
    module: Any  # the planned IRModule
    script: str  # the same as TVMScript
    sources: Sources


def extract_problem(loaded: Loaded, outlines: dict[Any, Any] | None = None) -> Extracted:
    """The planning problem of a loaded model, and its program; `outlines` keeps what functions share."""
    from .extract import extract_from

    return Extracted(loaded, *extract_from(loaded.module, loaded.request, outlines))
