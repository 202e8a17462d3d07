"""The versions of the code that makes a result, on which it depends besides its case.

Invariant: two installations with the same versions give the same results. A checkout, or an installation that is not
from a release, is the hash of its sources, so that a changed line makes new results.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from importlib import metadata
from pathlib import Path

from .target_data import targets_folder

_PACKAGE = Path(__file__).resolve().parent
_COMPILER = {"tvm": "apache-tvm", "vela": "ethos-u-vela"}
_REFERENCES = {"tflite-micro": "tflite-micro", "litert": "ai-edge-litert"}
_NO_RESULT = {"report/page", "sweep/table"}  # what only draws


@lru_cache(maxsize=2)
def versions(with_references: bool) -> tuple[tuple[str, str], ...]:
    """(name, version) of everything that makes a result; the references only where artifacts are run against them."""
    names = _COMPILER | (_REFERENCES if with_references else {})
    return (("npu_memplan", _own_version()), *((name, _installed_version(package)) for name, package in names.items()))


def _installed_version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def _own_version() -> str:
    """The version of a release, or that and a hash of the sources."""
    try:
        found = metadata.distribution("npu_memplan")
    except metadata.PackageNotFoundError:
        return f"sources {source_hash()}"
    here = Path(str(found.locate_file("npu_memplan"))).resolve()
    released = found.read_text("direct_url.json") is None and here == _PACKAGE
    return found.version if released else f"{found.version} sources {source_hash()}"


@lru_cache(maxsize=1)
def source_hash() -> str:
    """16 hex digits of everything in the packages and `targets/` that can change a result."""
    total = hashlib.sha256()
    for root in (_PACKAGE, _PACKAGE.parent / "fvp_runner", targets_folder()):
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if not path.is_file() or path.suffix == ".pyc" or any(name.startswith(part) for part in _NO_RESULT):
                continue
            total.update(f"{root.name}/{name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]
