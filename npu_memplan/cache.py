"""A cache of compiled programs, and of the checks of their results, between processes.

Invariant: a compile gives the same bytes with a cache and without one. The key is a hash of all that a program depends
on: the model's bytes and name, all options and the content of the files that they name, and the versions of everything
that makes it (of a checkout, the hash of its sources). A result that depends on more is never kept: a time limit,
Python of the user's own, files next to the model, a compile with an incident.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from .artifact import Artifact
from .artifact.model import CheckResult, CheckVerdict
from .cmsis_nn import open_cmsis_nn
from .codegen.printed import Sources
from .errors import NpuMemplanError
from .files.folders import ContentStore, cache_folder
from .files.paths import read_bytes
from .options import CompileOptions
from .planners.registry import find
from .process.incidents import gather_incidents
from .sizes import parse_size
from .stages import Compiled
from .versions import versions


def named_files(options: CompileOptions) -> dict[str, str]:
    """Field -> path of each option that names one file, whatever it is called, there or not."""
    board = options.board if options.board.endswith(".toml") else ""  # else it is the name of one of ours
    return {name: path for name, path in (("vela_ini", options.vela_ini), ("board", board)) if path}


def code_digests(options: CompileOptions) -> dict[str, str]:
    """Path -> a hash of each source of the user's that options name: Python with operators, a folder of kernels in C.
    One that cannot be read is left out: the compile says so.
    """
    found = {}
    for path in options.operators:
        with contextlib.suppress(OSError):
            found[path] = hashlib.sha256(read_bytes(path)).hexdigest()
    if options.host_kernels:
        with contextlib.suppress(OSError, NpuMemplanError):
            found[options.host_kernels] = open_cmsis_nn(options.host_kernels).content_digest()
    return found


def resolve_options(options: CompileOptions) -> CompileOptions:
    """`options` with their defaults, or as they are where they contradict each other, which the compile says."""
    try:
        return options.resolve_defaults()
    except NpuMemplanError:
        return options


def plain_fields(options: CompileOptions) -> dict[str, Any]:
    """Fields as JSON; mappings as pairs, because their order may matter."""
    found = {}
    for field in fields(options):
        value = getattr(options, field.name)
        found[field.name] = list(map(list, value.items())) if isinstance(value, Mapping) else value
    return found


VARIABLE = "NPU_MEMPLAN_PROGRAM_CACHE"  # a size; off or 0: none
_USUAL = "512MiB"
_FORMAT = 1  # of the entries
T = TypeVar("T")
_RIGHT = (CheckVerdict.EQUAL, CheckVerdict.AS_CLAIMED)


class CacheError(NpuMemplanError):
    """The environment has a value that is no size."""


class _Program(msgspec.Struct, array_like=True):
    """A `Compiled` as it is kept."""

    artifact: str
    script: str
    texts: dict[str, str]
    files: dict[str, bytes]
    constants_bytes: int
    stream_bytes: int


@dataclass(frozen=True, slots=True)
class ProgramCache:
    """Programs and checks in `store`."""

    store: ContentStore

    def get_program(self, model: Path, options: CompileOptions, make: Callable[[], Compiled]) -> Compiled:
        """The cached program, whose `module` is None and whose `sources` have no launches, or what `make` gives."""
        key = _program_key(model, options)
        known = self._read_program(key)
        if known is not None:
            return known
        with gather_incidents() as incidents:
            made = make()
        if key is not None and not incidents.lines:
            self._write_program(key, made)
        return made

    def keep_program(self, model: Path, options: CompileOptions, make: Callable[[], Compiled]) -> None:
        """Keep the program that `make` gives, that of a compile with `options`, unless one is kept already."""
        key = _program_key(model, options)
        if key is not None and self._read_program(key) is None:
            self._write_program(key, make())

    def get_front(
        self, model: Path, options: CompileOptions, limits: Sequence[int], kind: type[T], make: Callable[[], T]
    ) -> T:
        """The cached front (a `kind`) at `limits`, or the one that `make` gives, which is then kept."""
        key = _program_key(model, options, limits)
        known = self.store.read(key) if key is not None else None
        if known is not None:
            return msgspec.msgpack.decode(known, type=kind)
        with gather_incidents() as incidents:
            made = make()
        if key is not None and not incidents.lines:
            self.store.write(key, msgspec.msgpack.encode(made, enc_hook=str.__str__))
        return made

    def has_program(self, model: Path, options: CompileOptions) -> bool:
        """Whether the program of a compile is in the cache."""
        return self._read_program(_program_key(model, options)) is not None

    def get_check(self, artifact: Artifact, terms: object, check: Callable[[], CheckResult]) -> CheckResult:
        """The cached check of the results of `artifact`, or the one that `check` gives, which is kept where the results
        are right. `terms` say how it is checked.
        """
        key = _schema_hash("check", artifact.to_json(), terms, versions(True))
        known = self.store.read(key)
        if known is not None:
            return msgspec.msgpack.decode(known, type=CheckResult)
        result = check()
        if result.verdict in _RIGHT:
            self.store.write(key, msgspec.msgpack.encode(result))
        return result

    def _write_program(self, key: str, made: Compiled) -> None:
        sources = made.sources
        kept = _Program(
            made.artifact.to_json(), made.script, sources.texts, sources.files, sources.constants_bytes,
            sources.stream_bytes,
        )  # fmt: skip
        self.store.write(key, zlib.compress(msgspec.msgpack.encode(kept, enc_hook=str.__str__), 1))

    def _read_program(self, key: str | None) -> Compiled | None:
        kept = self.store.read(key) if key is not None else None
        if kept is None:
            return None
        found = msgspec.msgpack.decode(zlib.decompress(kept), type=_Program)
        sources = Sources(found.texts, found.constants_bytes, found.stream_bytes, {}, found.files)
        return Compiled(Artifact.from_json(found.artifact), None, found.script, sources)


def program_cache() -> ProgramCache | None:
    """The user's cache; None where the environment says that it is off."""
    text = os.environ.get(VARIABLE, "").strip()
    if text.lower() in ("off", "0"):
        return None
    try:
        size = parse_size(text or _USUAL)
    except NpuMemplanError as error:
        raise CacheError(f"{VARIABLE}: {error}; it may be off, too") from None
    try:
        return ProgramCache(ContentStore(cache_folder() / "programs", size))
    except RuntimeError:  # no home
        return None


def _program_key(model: Path, options: CompileOptions, limits: Sequence[int] | None = None) -> str | None:
    """The key of a program, or of the front at `limits`; None where the result depends on more than can be hashed."""
    if options.time_limit_s is not None or options.operators or options.host_kernels:
        return None
    try:
        data = read_bytes(model)
        named = {field: hashlib.sha256(read_bytes(path)).hexdigest() for field, path in named_files(options).items()}
        planner = find(options.planner)
    except (OSError, NpuMemplanError):  # the compile says so
        return None
    if not planner.__module__.startswith("npu_memplan.") or (model.suffix.lower() == ".onnx" and b"location" in data):
        return None  # somebody's own planner, or weights in other files
    content = hashlib.sha256(data).hexdigest()
    parts = content, model.name, plain_fields(resolve_options(options)), named, versions(False)
    return _schema_hash("program", *parts) if limits is None else _schema_hash("front", *parts, list(limits))


def _schema_hash(kind: str, *parts: object) -> str:
    return hashlib.sha256(json.dumps([_FORMAT, kind, *parts], sort_keys=True).encode()).hexdigest()
