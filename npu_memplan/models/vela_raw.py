"""Vela's raw output (`--output-format raw`): one NPU call in a NumPy archive.

Invariant: nothing in the archive is unpickled, and what is missing or of no known type is a `NetworkError`.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from typing import Any

import numpy as np

from ..ethosu.stream.container import parse_payload
from .file import NetworkError
from .network import Network
from .tensor import Tensor
from .tflite_checks import DamagedError, check_tensor
from .vela import NpuCall, uses_region

_LARGEST_BYTES = 1 << 30  # of all entries unpacked
# What zipfile, zlib and numpy raise for archives that are damaged, and we for entries that are missing or odd.
_FAULTS = (KeyError, ValueError, TypeError, OSError, EOFError, IndexError, NotImplementedError, zipfile.BadZipFile,
           zlib.error, DamagedError)  # fmt: skip
_TYPES = {1: "int8", 2: "int16", 4: "int32", 8: "int64"}


def read_raw(data: bytes, name: str) -> Network:
    """The network in the bytes of an archive; `NetworkError` says what is wrong with it."""
    try:
        unpacked = sum(entry.file_size for entry in zipfile.ZipFile(io.BytesIO(data)).infolist())
        if unpacked > _LARGEST_BYTES:
            raise ValueError(f"its entries have {unpacked} bytes; at most {_LARGEST_BYTES} are read")
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            # The quantisation entries are pickled objects; they are left out rather than trusted.
            fields = {k: archive[k] for k in archive.files if not k.endswith("_quantization")}
            payload = parse_payload(fields["cmd_data"].tobytes())
            constants = np.frombuffer(fields["weight_data"].tobytes(), np.uint8)
            scratch, fast = int(fields["scratch_size"]), int(fields["scratch_fast_size"])
            if not uses_region(payload.words, 2):
                fast = 0
            kinds = ("input", "variable", "output")
            listed = [(kind, *entry) for kind in kinds for entry in _raw_tensors(fields, kind)]
        tensors = tuple(
            Tensor(
                index,
                f"{kind}_{index}",
                shape,
                _TYPES[element_bytes],
                is_variable=kind == "variable",
                arena_offset=offset if region == 1 else -1,
            )
            for index, (kind, shape, element_bytes, region, offset) in enumerate(listed)
        )
        for tensor in tensors:
            check_tensor(tensor)
    except _FAULTS as error:
        raise NetworkError(f"{name} is no raw Vela network (.npz): {error}") from error
    addresses = tuple((region, offset) for *_, region, offset in listed)
    inputs = sum(kind == "input" for kind, *_ in listed)
    given = sum(kind != "output" for kind, *_ in listed)
    call = NpuCall(
        index=0,
        payload=payload,
        read_only=constants,
        scratch_bytes=scratch,
        scratch_fast_bytes=fast,
        inputs=tuple(range(given)),
        outputs=tuple(range(given, len(listed))),
        input_addresses=addresses[:given],
        output_addresses=addresses[given:],
    )
    return Network(name, tensors, (call,), call.inputs[:inputs], call.outputs, True)


def _raw_tensors(fields: dict[str, Any], kind: str) -> list[tuple[tuple[int, ...], int, int, int]]:
    columns = (fields[f"{kind}_{what}"] for what in ("shape", "elem_size", "region", "offset"))
    shapes, sizes, regions, offsets = columns
    return [
        (tuple(int(d) for d in shape), int(sizes[i]), int(regions[i]), int(offsets[i]))
        for i, shape in enumerate(shapes)
    ]
