"""The fixed set: small public networks, and the programs that are made of each.

Invariant: a network of the set is the file with this SHA-256 and no other, so that records of two machines are of the
same programs. Sources of the files: `tests/models/README.md`, `examples/digits`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from .record import EvidenceError

_SHA256 = {
    "hello_world_int8": "505ee4fae7fa46ab67bea4c08b4969eb3eb8b9114c50595ec4a29d9a27993202",
    "digits": "ae47256f5f858b5a26eeba9a0e71a8a7a344753ba77f3e0d3cd5c6ca97b311d5",
    "micro_speech_quantized": "09e5e2a9dfb2d8ed78802bf18ce297bff54281a66ca18e0c23d69ca14f822a83",
    "kws_ref_model": "aeea436800704fce17b17292e4412630ad856e9d777c044c64ef748a880bd0ae",
    "str_ww_ref_model": "3af8550895ba7d5c584277102b5075c52dcfa63ba9d2b2240f37c4e6abd5dd2b",
    "pretrainedResnet_quant": "3c002613d1b2475eb51dd78dfb85a546c8ae658dee71cf6ade43b022fe205415",
}
NETWORKS = tuple(_SHA256)

# What is made of each network: `CompileOptions` other than the accelerator, with its usual memories.
PROGRAMS: dict[str, dict[str, Any]] = {
    "lifted": {"npu_compiler": "vela"},
    "prefetch": {"npu_compiler": "vela", "prefetch": True},
    "native lowering": {"npu_compiler": "tvm"},
    "stripes": {"npu_compiler": "tvm", "stripes": True},
}


@dataclass(frozen=True, slots=True)
class ListedNetwork:
    name: str
    path: Path
    sha256: str


def networks(only: Iterable[str] = ()) -> Iterator[ListedNetwork]:
    """The set in its order, or those of it that are named; `EvidenceError` for other names or files."""
    wanted = tuple(only) or NETWORKS
    unknown = [name for name in wanted if name not in NETWORKS]
    if unknown:
        raise EvidenceError(f"the set has no network {unknown[0]!r}; it has: {', '.join(NETWORKS)}")
    for name in NETWORKS:
        if name in wanted:
            path = _file(name)
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            if found != _SHA256[name]:
                raise EvidenceError(f"{path} is not the {name} of the set (SHA-256 {found}); install the package again")
            yield ListedNetwork(name, path, found)


def _file(name: str) -> Path:
    """In an installed package next to this module, in a checkout where the repository keeps it."""
    repository = Path(__file__).resolve().parents[2]
    packaged = Path(str(resources.files(__package__))) / "networks" / f"{name}.tflite"
    places = (packaged, *(repository / folder / f"{name}.tflite" for folder in ("tests/models", "examples/digits")))
    for path in places:
        if path.is_file():
            return path
    raise EvidenceError(f"{packaged} is missing; install the package again")
