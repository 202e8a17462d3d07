"""What is sent to a worker: everything that one case needs, as bytes.

Invariant: a job can be pickled and needs no file of the machine that it comes from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ... import versions
from ...options import CompileOptions
from ..case import Case, Verification
from ..results import CaseLimits


@dataclass(frozen=True, slots=True)
class SentFile:
    suffix: str
    sha256: str
    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class CaseJob:
    """A case without its model, which is sent separately."""

    key: str
    options: CompileOptions
    option_files: Mapping[str, SentFile]
    verification: Verification
    plugins: tuple[SentFile, ...]
    versions: tuple[tuple[str, str], ...]  # that the result has to be made with
    limits: CaseLimits


def job_of(case: Case, limits: CaseLimits) -> CaseJob:
    """The job of `case`; reads the files that its options name."""
    files = {
        name: SentFile(content.path.suffix, content.sha256, content.data())
        for name, content in case.option_files.items()
    }
    plugins = tuple(SentFile(".py", content.sha256, content.data()) for content in case.plugins)
    made_with = versions.versions(bool(case.verification.runner))
    return CaseJob(case.key, case.options, files, case.verification, plugins, made_with, limits)


def model_of(case: Case) -> SentFile:
    return SentFile(case.model.path.suffix.lower(), case.model.sha256, case.model.data())
