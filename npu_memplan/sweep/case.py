"""A case of a sweep: a model, options, and whether the artifact is run; by content, so that it is computed once.

Invariant: a case's key is a hash of all that its result depends on (bytes of the model and of the files that options
name, options, run, plug-ins, versions) and of nothing else: not of paths, names, limits or the machine.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..cache.keys import code_digests, named_files, plain, resolved
from ..errors import NpuMemplanError
from ..options import CompileOptions
from ..versions import versions


class SweepError(NpuMemplanError):
    """A sweep cannot be made or read as it was requested."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file that is sent to workers as bytes; of its name only the suffix matters to a result."""

    path: Path
    sha256: str

    @classmethod
    def of(cls, path: Path | str) -> Content:
        """The file at `path` as it is now."""
        place = Path(path)
        return cls(place, hashlib.sha256(_read(place)).hexdigest())

    def data(self) -> bytes:
        """Its bytes; `SweepError` when they are not what they were."""
        data = _read(self.path)
        if hashlib.sha256(data).hexdigest() != self.sha256:
            raise SweepError(f"{self.path} was changed while the sweep ran; run it again, it keeps what is done")
        return data


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise SweepError(f"cannot read {path}: {error.strerror or error}") from None


@dataclass(frozen=True, slots=True)
class Verification:
    """How each artifact is proven: on which runner, with how many random inputs (seeds 0, 1, ...)."""

    runner: str = ""  # "local", "qemu" or "unicorn"; empty: it is not run
    seeds: int = 1


@dataclass(frozen=True)
class Case:
    """One model on one target. `network` and `target` are its names in tables."""

    network: str
    model: Content
    options: CompileOptions
    verification: Verification = Verification()
    plugins: tuple[Content, ...] = ()  # Python files that a worker imports first: own planners, own operators

    @cached_property
    def target(self) -> str:
        """What distinguishes the options: the accelerator, then flags of `compile`."""
        return target_name(self.options)

    @cached_property
    def option_files(self) -> dict[str, Content]:
        """The files that options name, by field; one that is not there is left out: the compile says so."""
        return {name: Content.of(path) for name, path in named_files(self.options).items() if Path(path).is_file()}

    @cached_property
    def key(self) -> str:
        """64 hex digits: the address of the result."""
        files = {name: content.sha256 for name, content in self.option_files.items()}
        document = {
            "model": self.model.sha256,
            "format": self.model.path.suffix.lower(),
            "options": plain(resolved(self.options)) | files,
            "code": code_digests(self.options),
            "run": [self.verification.runner, self.verification.seeds] if self.verification.runner else [],
            "plugins": [plugin.sha256 for plugin in self.plugins],
            "versions": versions(bool(self.verification.runner)),
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def target_name(options: CompileOptions) -> str:
    """A name of `options` that no other options have."""
    arguments = [each for option in options.to_cli_options() if option[0] != "--accelerator" for each in option]
    return " ".join((options.accelerator, *((shlex.join(arguments),) if arguments else ())))


def cases(
    models: Iterable[Path | str],
    targets: Sequence[CompileOptions],
    verification: Verification = Verification(),
    plugins: Iterable[Path | str] = (),
) -> list[Case]:
    """Every model on every target, model by model; the same target named twice is one."""
    contents = [Content.of(path) for path in dict.fromkeys(map(Path, models))]
    distinct = {target_name(options): options for options in targets}
    extra = tuple(Content.of(path) for path in plugins)
    names = _names([content.path for content in contents])
    return [
        Case(name, content, options, verification, extra)
        for name, content in zip(names, contents, strict=True)
        for options in distinct.values()
    ]


def _names(paths: Sequence[Path]) -> list[str]:
    """The shortest ends of paths, without suffix, that tell them apart."""
    for parts in range(1, max((len(path.parts) for path in paths), default=0) + 1):
        names = ["/".join((*path.parts[-parts:-1], path.stem)) for path in paths]
        if len(set(names)) == len(paths):
            return names
        counts = Counter(names)
        if parts == 1 and all(counts[n] == 1 or len({p.suffix for p in paths if p.stem == n}) > 1 for n in names):
            full = [path.name if counts[path.stem] > 1 else path.stem for path in paths]
            if len(set(full)) == len(paths):
                return full
    return [str(path) for path in paths]
