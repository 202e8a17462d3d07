"""Model Library Format, version 7: the tree, `metadata.json`, the tar.

Invariant: a tree is a mapping of paths to bytes, made before anything is written; the same module, options and
date give the same tar, byte for byte. All numbers of the metadata are those of the generated C.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ..files.whole_file import write_whole
from . import CodegenError
from .entry import RUNTIME_HEADER
from .interface import Interface, PoolSpec
from .interface_c import ModuleInterface, print_entry, print_header, print_main
from .mlf_npu import SECTION, print_npu
from .mlf_runtime import runtime_files
from .program import IfElse, read_program
from .sources import print_sources

VERSION = 7
_CPU = 1  # kDLCPU
_EMPTY_PARAMETERS = bytes.fromhex("b79c04054f8de5f7") + bytes(24)  # TVM's list of named arrays, with none in it


@dataclass(frozen=True, slots=True)
class Library:
    files: Mapping[str, bytes]  # path in the tree -> content
    constants_bytes: int
    payload_bytes: int

    def tar(self) -> bytes:
        """The tar file: the same bytes for the same files."""
        sink = io.BytesIO()
        with tarfile.open(fileobj=sink, mode="w") as tar:
            for name, content in sorted(self.files.items()):
                entry = tarfile.TarInfo(f"./{name}")
                entry.size = len(content)
                entry.mode = 0o644
                tar.addfile(entry, io.BytesIO(content))
        return sink.getvalue()

    def write_tar(self, path: Path) -> None:
        """Write the tar; no half-written file is ever left under `path`."""
        write_whole(path, self.tar())


def build_library(
    module: Any,
    interface: ModuleInterface,
    pools: Sequence[PoolSpec],
    source: str,
    targets: Sequence[str],
    date: datetime,
) -> Library:
    """The tree of a planned module. `pools` are main's parameters in order; `source` is the module as text."""
    name, program = interface.module, read_program(module, interface.prefix)
    if any(isinstance(item, IfElse) for item in program.body):
        raise CodegenError(f"{name} has branches, which Model Library Format has no code for; use npu-memplan compile")
    places = Interface(interface.prefix, tuple(pools), constant_pools=interface.constant_pools, constants_passed=True)
    printed = print_sources(module, places)
    npu_text, constants_bytes, payload_bytes = print_npu(program, places)
    images = {p.name: bytes(1) for p in interface.constant_pools}  # C has no empty arrays
    images |= {pool: program.constants[index].tobytes() for index, pool in program.constant_pools.items()}
    steps = [(call.symbol, call.is_npu) for call in program.calls]
    texts = {
        f"codegen/host/include/{interface.prefix}.h": print_header(interface, images),
        f"codegen/host/src/{name}_lib0.c": print_entry(interface),
        f"codegen/host/src/{name}_lib1.c": print_main(interface, steps),
        f"src/{name}.relax": source,
    }
    number = 2
    if any(npu for _, npu in steps):
        texts[f"codegen/host/src/{name}_lib{number}.c"] = npu_text
        number += 1
    host_constants = printed.constants_bytes - constants_bytes
    if not all(npu for _, npu in steps):
        text = printed.texts[f"{interface.prefix}_host.c"]
        text = text.replace(f'#include "{interface.prefix}.h"\n#include "{RUNTIME_HEADER}"\n', SECTION)
        texts[f"codegen/host/src/{name}_lib{number}.c"] = text
    constants_bytes += max(host_constants, 0)
    metadata = _metadata(interface, steps, constants_bytes + payload_bytes, targets, date)
    texts["metadata.json"] = json.dumps(metadata, indent=2, sort_keys=True)
    texts |= runtime_files()
    files = {path: text.encode() for path, text in texts.items()}
    files[f"parameters/{name}.params"] = _EMPTY_PARAMETERS
    return Library(files, constants_bytes, payload_bytes)


def _metadata(
    interface: ModuleInterface,
    steps: Sequence[tuple[str, bool]],
    constants_bytes: int,
    targets: Sequence[str],
    date: datetime,
) -> dict[str, Any]:
    def tensors(listed: Sequence[Any]) -> dict[str, Any]:
        return {t.name: {"dtype": t.dtype, "size": t.size_bytes} for t in listed}

    io_bytes = sum(t.size_bytes for t in (*interface.inputs, *interface.outputs))
    main = {
        "device": _CPU,
        "workspace_size_bytes": interface.workspace_bytes,
        "constants_size_bytes": constants_bytes,
        "io_size_bytes": 0 if interface.workspace_io else io_bytes,
        "inputs": tensors(interface.inputs),
        "outputs": tensors(interface.outputs),
    }
    functions = [
        {"function_name": symbol, "workspace": [{"device": _CPU, "workspace_size_bytes": 0}]}
        for symbol, _ in dict.fromkeys(steps)
    ]
    dependency = {
        "short_name": "tvm_standalone_crt",
        "url": "./runtime",
        "url_type": "mlf_path",
        "version_spec": "0.14.0",
    }
    return {
        "version": VERSION,
        "modules": {
            interface.module: {
                "model_name": interface.module,
                "export_datetime": date.astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ"),
                "target": list(targets),
                "executors": ["aot"],
                "style": "full-model",
                "external_dependencies": [dependency],
                "memory": {"functions": {"main": [main], "operator_functions": functions}},
            }
        },
    }
