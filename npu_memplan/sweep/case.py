"""A case of a sweep (a model, options, and whether the artifact is run) and its result, as one line of JSON in a file
that grows.

Invariant: a case's key is a hash of all that its result depends on (bytes of the model and of the files that options
name, options, run, plug-ins, versions) and of nothing else: not of paths, names, limits or the machine. Everything of a
result but `cost` follows from the case alone, so that two machines write the same facts; a result that a limit ended
says which limit, and holds only for one that is not larger. A line is whole or no JSON: half a line of a killed process
is left out.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

import msgspec

from ..cache import code_digests, named_files, plain_fields, resolve_options
from ..errors import NpuMemplanError
from ..files.paths import OutputError, open_to_append, read_bytes
from ..options import CompileOptions
from ..problem import Count
from ..process.incidents import FAULT
from ..versions import versions


class SweepError(NpuMemplanError):
    """A sweep cannot be made or read as it was requested."""


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it was when the sweep began; of its name only the suffix matters to a result."""

    path: Path
    sha256: str
    data: bytes = field(repr=False)

    @classmethod
    def from_file(cls, path: Path | str) -> Content:
        """The file at `path` as it is now."""
        place = Path(path)
        try:
            data = read_bytes(place)
        except OSError as error:
            raise SweepError(f"cannot read {place}: {error.strerror or error}") from None
        return cls(place, hashlib.sha256(data).hexdigest(), data)


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
        """The options that distinguish it: the accelerator, then flags of `compile`."""
        return target_name(self.options)

    @cached_property
    def option_files(self) -> dict[str, Content]:
        """The files that options name, by field; one that is not there is left out: the compile says so."""
        return {
            name: Content.from_file(path) for name, path in named_files(self.options).items() if Path(path).is_file()
        }

    @cached_property
    def key(self) -> str:
        """64 hex digits: the address of the result."""
        files = {name: content.sha256 for name, content in self.option_files.items()}
        document = {
            "model": self.model.sha256,
            "format": self.model.path.suffix.lower(),
            "options": plain_fields(resolve_options(self.options)) | files,
            "code": code_digests(self.options),
            "run": [self.verification.runner, self.verification.seeds] if self.verification.runner else [],
            "plugins": [plugin.sha256 for plugin in self.plugins],
            "versions": versions(bool(self.verification.runner)),
        }
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def target_name(options: CompileOptions) -> str:
    """A name of `options` that no other options have."""
    arguments = [each for option in options.to_cli_options() if option[0] != "--accelerator" for each in option]
    arguments += [f"{name}={value}" for name, value in options.python_values()]
    return " ".join((options.accelerator, *((shlex.join(arguments),) if arguments else ())))


def cases(
    models: Iterable[Path | str],
    targets: Sequence[CompileOptions],
    verification: Verification = Verification(),
    plugins: Iterable[Path | str] = (),
) -> list[Case]:
    """Every model on every target, model by model; the same target named twice is one."""
    contents = [Content.from_file(path) for path in dict.fromkeys(map(Path, models))]
    distinct = {target_name(options): options for options in targets}
    extra = tuple(Content.from_file(path) for path in plugins)
    names = _short_names([content.path for content in contents])
    return [
        Case(name, content, options, verification, extra)
        for name, content in zip(names, contents, strict=True)
        for options in distinct.values()
    ]


def _short_names(paths: Sequence[Path]) -> list[str]:
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


class Outcome(Enum):
    """How a case ended."""

    FITS = "fits"
    NO_ROOM = "no room"
    REFUSED = "refused"  # the model or the options cannot be compiled, and the reason says why
    CRASHED = "crashed"  # the compiler, or its process
    TIMED_OUT = "timed out"
    OUT_OF_MEMORY = "out of memory"
    NOT_TRIED = "not tried"  # no worker could; never kept


LIMITED = frozenset((Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY))


@dataclass(frozen=True, slots=True)
class CaseLimits:
    """The limits of one case: wall time in seconds, bytes of writable memory of its process and of each it starts."""

    seconds: float = 300.0
    memory_bytes: int = 4 << 30


@dataclass(frozen=True, slots=True)
class Shortage:
    """The pool that is too small."""

    pool: str
    required_bytes: Count
    available_bytes: Count


@dataclass(frozen=True, slots=True)
class Runs:
    """The artifact against its reference."""

    runner: str
    seeds: Count
    exact: Count  # seeds whose every output element equals the reference's
    largest_difference: float = 0.0  # in units of the outputs
    reference: str = ""
    stopped: str = ""  # a check or the time limit ended the run, and why


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of the result; a matter of the machine, in no table."""

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    memory_bytes: Count = 0  # most that was seen
    said: str = ""  # the last output of a process that crashed


@dataclass(frozen=True, slots=True)
class Result:
    """One line of a sweep. Sizes are bytes; cycles are the NPU's, estimated (None: no NPU call)."""

    key: str
    outcome: Outcome
    reason: str = ""
    limit: float = 0  # seconds or bytes, of an outcome of `LIMITED`
    shortage: Shortage | None = None
    pools: Mapping[str, Count] = field(default_factory=dict)
    constants_bytes: Count = 0
    stream_bytes: Count = 0
    vela_bytes: Count = 0  # of Vela's own arenas, where they hold the same buffers; 0: unknown
    cycles: Count | None = None
    least_cycles: Count | None = None  # under the fastest model of shared memories
    most_cycles: Count | None = None  # under the slowest
    clock_hz: float = 0
    npu_operations: Count = 0
    host_operations: Count = 0
    host_cycles: Count | None = None  # theirs, of the host's clock
    host_clock_hz: float = 0
    plan: str = ""  # "optimal" or "feasible"
    operators: Mapping[str, Count] = field(default_factory=dict)  # how many are exact, within a step, unproven
    runs: Runs | None = None
    incidents: tuple[str, ...] = ()  # faults of ours that ended a part alone, and fallbacks, as `compile` reports them
    cost: Cost = field(default_factory=Cost)

    @property
    def faulty(self) -> bool:
        """Whether something of ours failed, though there is a result."""
        return any(line.startswith(FAULT) for line in self.incidents)

    def json_line(self) -> bytes:
        return msgspec.json.encode(self) + b"\n"

    @classmethod
    def of_line(cls, line: bytes) -> Result | None:
        """The result of a line; None for half a line, which is never JSON, or another version's."""
        try:
            return msgspec.json.decode(line, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def holds_for(self, limits: CaseLimits) -> bool:
        """Whether nothing else can come out under `limits`."""
        if self.outcome is Outcome.TIMED_OUT:
            return limits.seconds <= self.limit
        if self.outcome is Outcome.OUT_OF_MEMORY:
            return limits.memory_bytes <= self.limit
        return self.outcome is not Outcome.NOT_TRIED


def read_results(path: Path, keys: Collection[str], limits: CaseLimits) -> dict[str, Result]:
    """Key -> result of `keys` in the file at `path`; without those that may come out otherwise under `limits`."""
    wanted = frozenset(keys)
    try:
        lines = read_bytes(path).split(b"\n") if path.exists() else []
    except OSError as error:
        raise SweepError(f"cannot read {path}: {error.strerror or error}") from None
    found = [result for line in lines if line and (result := Result.of_line(line)) is not None]
    return {result.key: result for result in found if result.key in wanted and result.holds_for(limits)}


def append_result(path: Path, result: Result) -> None:
    """Add a line to the file at `path`, by one write; after half a line of a killed process it begins anew."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open_to_append(path) as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
            whole = file.read(1) in (b"", b"\n")
            file.write((b"" if whole else b"\n") + result.json_line())
    except OSError as error:
        raise OutputError(f"cannot write to {path}: {error.strerror}; the results before are kept") from None
