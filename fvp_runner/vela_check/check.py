"""All checks of one file for one board, and then a run.

Invariant: a file that fails a check before the run is still run where that means something, so that every fault is
named at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from npu_memplan.errors import NpuMemplanError
from npu_memplan.models.network import Network
from npu_memplan.target_data import Board

from ..npu_model.errors import NpuModelError
from ..npu_model.model import NpuModel
from ..npu_model.network.layers import LayerRecorder, compare_layers
from ..npu_model.network.network import NetworkModel
from ..references.disagreement import describe_disagreements, find_disagreements
from ..references.tflite import TFLiteReference
from ..result import Array, compare
from . import container, memory
from .remark import Level, Remark

_DISTINCTIVE_ELEMENTS = 16  # a tensor with fewer elements may equal another by chance


@dataclass(frozen=True, slots=True)
class FirmwareFacts:
    """A user's description of the firmware: operators of its resolver (none: unknown), its arena, original model."""

    registered: Collection[str] = ()
    arena_bytes: int | None = None
    reference: bytes | None = None
    path: str = "MODEL.tflite"  # of the file, for commands in messages


def check_network(
    network: Network, data: bytes, board: Board, requested: FirmwareFacts, inputs: Sequence[Array]
) -> list[Remark]:
    """Every finding, in the order in which a firmware would meet them; `network` was read from `data`."""
    found = [
        *container.accelerators(network, board),
        *container.alignments(network, data),
        *container.operators(network, data, requested.registered, board, requested.path),
        *memory.regions(network),
        *memory.arena(network, requested.arena_bytes),
        *memory.fit(network, len(data), board),
        *_hazards(network),
    ]
    if network.npu_calls:
        found += _run(network, data, requested, inputs)
    return found


def _hazards(network: Network) -> Iterator[Remark]:
    """Waits and block dependencies, which hardware does not check."""
    wrong = False
    for call in network.npu_calls:
        try:
            NpuModel(call.accelerator).prepare(call.words)
        except NpuModelError as error:
            wrong = True
            yield Remark(Level.WRONG, "hazards", f"operator {call.index}: {error}")
    if not wrong and network.npu_calls:
        yield Remark(Level.RIGHT, "hazards", "no kernel or transfer starts before what it depends on has ended")


def _run(network: Network, data: bytes, requested: FirmwareFacts, values: Sequence[Array]) -> Iterator[Remark]:
    recorder = LayerRecorder()
    try:
        ran = NetworkModel(network, data).run(values, observer=recorder)
    except NpuMemplanError as error:
        yield Remark(Level.WRONG, "run", f"{type(error).__name__.removesuffix('Error')}: {error}")
        return
    cycles = sum(stats.cycles for stats in ran.stats)
    done = f"it runs in our simulator, {cycles:,} estimated cycles"
    if requested.reference is None:
        yield Remark(Level.NOTE, "run", f"{done}; compared with nothing: give --reference MODEL.tflite")
        return
    model = TFLiteReference(requested.reference, "the reference")
    expected = model.run(values)
    disagreement = describe_disagreements(find_disagreements(model, values, expected))
    if disagreement:
        yield Remark(Level.NOTE, "reference", disagreement)
    names = [network.tensors[i].name for i in network.outputs]
    first = compare_layers(model.network, model.layers(values), recorder.written).first
    where = "" if first is None else (
        f"the first layer that differs is {first.tensor!r}, made by {first.where}: {first.mismatches:,} of "
        f"{first.elements:,} elements"
    )  # fmt: skip
    if not compare("simulator", names, ran.outputs, expected).bit_exact:
        text = f"{done}; its outputs are not those of {model.what}"
        yield Remark(Level.WRONG, "run", f"{text}; {where}" if where else text)
    elif first is not None and first.elements >= _DISTINCTIVE_ELEMENTS and first.mismatches < first.elements / 2:
        yield Remark(Level.WRONG, "run", f"{done}; its outputs are right for this input, but {where}")
    else:
        yield Remark(Level.RIGHT, "run", f"{done}; bit-exact against {model.what}")
