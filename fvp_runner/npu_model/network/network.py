"""A whole Vela-compiled network: NPU calls on the model, the operators between them on the host.

Invariant: tensors live where Vela put them. The arena is one array, filled with a poison pattern first;
NPU regions are views of it, and host operators read and write the same bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.stream.commands import Operation
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.stream.isa import SHRAM_REGION, Op, Register
from npu_memplan.ethosu.time import MemoryMap
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.variables import OF_VARIABLES, kept_variables, moved
from npu_memplan.models.vela import NpuCall, check_scratch
from npu_memplan.sizes import counted

from ...base import POISON
from ...references.kernels import ReferenceOperator
from ..bound.memory import Shadow
from ..bound.operation import Bound
from ..errors import NpuModelError, OutOfRegionError, UninitialisedReadError
from ..model import NpuModel, RunStats
from ..spec.layout import Bytes
from ..spec.stream import DecodedStep

CallObserver = Callable[[NpuCall, DecodedStep, Bound], None]


class NetworkInputError(NpuModelError):
    """The inputs given do not fit the network."""


@dataclass(frozen=True, slots=True)
class NetworkRun:
    outputs: tuple[NDArray[Any], ...]
    stats: tuple[RunStats, ...]
    host_kernels: tuple[str, ...]  # whose kernels ran the operators that Vela left on the CPU


def _uses_own_regions(call: NpuCall) -> bool:
    """Whether the stream addresses inputs or outputs through regions 3 and up."""
    return any(
        value >= (3 if call.resident is None else 4)
        for command in decode(call.words, call.accelerator.language)
        if isinstance(command, Operation)
        for register in (_TRANSFER if command.op is Op.DMA_START else _FEATURE_MAPS)
        if (value := command.get(register)) < SHRAM_REGION
    )


_FEATURE_MAPS = (Register.IFM_REGION, Register.IFM2_REGION, Register.OFM_REGION)
_TRANSFER = (Register.DMA0_SRC_REGION, Register.DMA0_DST_REGION)


@dataclass(slots=True, eq=False)
class _Place:
    data: Bytes
    shadow: Shadow


class NetworkModel:
    """Runs a `Network`; `data` is its file, needed only when operators were left on the CPU.

    `where`: the memories that cycles are estimated with (None: those of the accelerator's default system).
    """

    def __init__(self, network: Network, data: bytes, checks: bool = True, where: MemoryMap | None = None) -> None:
        self.network, self.checks, self._where = network, checks, where
        for call in network.npu_calls:
            check_scratch(call, network.name)
        self._models: dict[str, NpuModel] = {}
        self._hosts = {
            o.index: ReferenceOperator(data, network, o) for o in network.cpu_operators if o.name not in OF_VARIABLES
        }
        administrative = {
            t for call in network.npu_calls for t in (call.scratch_tensor, call.scratch_fast_tensor) if t >= 0
        }
        end = max((call.scratch_bytes for call in network.npu_calls), default=0)
        for tensor in network.tensors:
            if tensor.arena_offset >= 0 and tensor.index not in administrative:
                end = max(end, tensor.arena_offset + tensor.size_bytes)
        self.arena = np.full(end, POISON, np.uint8)
        self._arena_shadow = np.zeros(end, np.bool_)
        self._places: dict[int, _Place] = {}
        self._regions: dict[int, tuple[list[Bytes | None], list[Shadow | None]]] = {}
        # Per call: inputs and outputs (tensor, region, offset) that are outside the arena and are copied.
        self._pooled: dict[int, tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]] = {}
        for call in network.npu_calls:
            self._bind(call)
        self._starts = dict(self._made_once())
        self.reset()

    def _place(self, index: int) -> _Place:
        place = self._places.get(index)
        if place is None:
            tensor = self.network.tensors[index]
            size, offset = tensor.size_bytes, tensor.arena_offset
            if tensor.data is not None:
                given = index in self.network.inputs  # what the user gives takes the constant's place
                data = tensor.data.copy() if given else tensor.data
                place = _Place(data, np.ones(tensor.data.size, np.bool_))
            elif offset >= 0:
                place = _Place(self.arena[offset : offset + size], self._arena_shadow[offset : offset + size])
            else:
                place = _Place(np.full(size, POISON, np.uint8), np.zeros(size, np.bool_))
            self._places[index] = place
        return place

    def _bind(self, call: NpuCall) -> None:
        constants = np.ascontiguousarray(call.read_only)
        arena, arena_shadow = self.arena[: call.scratch_bytes], self._arena_shadow[: call.scratch_bytes]
        regions: list[Bytes | None] = [constants, arena, arena]
        shadows: list[Shadow | None] = [np.ones(constants.size, np.bool_), arena_shadow, arena_shadow]
        if call.scratch_fast_bytes:
            regions[2] = np.full(call.scratch_fast_bytes, POISON, np.uint8)
            shadows[2] = np.zeros(call.scratch_fast_bytes, np.bool_)
        if call.resident is not None:
            regions.append(call.resident.copy())
            shadows.append(np.ones(call.resident.size, np.bool_))
        self._regions[call.index] = regions, shadows
        tensors = self.network.tensors
        separate = _uses_own_regions(call)
        one_each_way = separate and all(tensors[i].arena_offset >= 0 for i in (*call.inputs, *call.outputs))
        self._pooled[call.index] = [], []
        for direction, (indices, addresses) in enumerate(
            ((call.inputs, call.input_addresses), (call.outputs, call.output_addresses))
        ):
            for index, (region, offset) in zip(indices, addresses, strict=True):
                size, from_arena = tensors[index].size_bytes, tensors[index].arena_offset
                if one_each_way:  # Vela's --separate-io-regions
                    region, offset = 3 + direction, from_arena
                if region >= 3 and not separate:
                    continue
                if region < 3 and from_arena >= 0:
                    continue
                stop = offset + size
                while len(regions) <= region:
                    regions.append(None)
                    shadows.append(None)
                data, shadow = regions[region], shadows[region]
                if region >= 3 and (data is None or data.size < stop):
                    data, shadow = np.full(stop, POISON, np.uint8), np.zeros(stop, np.bool_)
                    regions[region], shadows[region] = data, shadow
                if data is None or shadow is None or not 0 <= offset <= stop <= data.size:
                    raise OutOfRegionError(
                        f"tensor {index} of the NPU call {call.index} should lie at bytes {offset} to {stop} of "
                        f"region {region}, which is too small"
                    )
                self._places[index] = _Place(np.full(size, POISON, np.uint8), np.zeros(size, np.bool_))
                self._pooled[call.index][direction].append((index, region, offset))

    def _exchange(self, call: NpuCall, direction: int) -> None:
        """Copy inputs (0) into the regions of their own, or outputs (1) out of them."""
        regions, shadows = self._regions[call.index]
        for index, region, offset in self._pooled[call.index][direction]:
            place, data, shadow = self._place(index), regions[region], shadows[region]
            assert data is not None
            assert shadow is not None
            there = slice(offset, offset + place.data.size)
            if direction:
                place.data[:], place.shadow[:] = data[there], shadow[there]
            else:
                data[there], shadow[there] = place.data, place.shadow

    def reset(self) -> None:
        """State tensors back to what they start with, host operators to their initial state."""
        for index in self.network.states:
            tensor, place = self.network.tensors[index], self._place(index)
            place.data[:] = self._starts.get(index, tensor.start())
            place.shadow[:] = True
        for host in self._hosts.values():
            host.reset()

    def _made_once(self) -> Iterator[tuple[int, Bytes]]:
        """States that the NPU itself makes, in a stream that CALL_ONCE calls, where the first call has them."""
        kept = {self.network.tensors[i].name: i for i, _ in kept_variables(self.network)}
        read = {o.inputs[0]: o.outputs[0] for o in self.network.cpu_operators if o.name == "READ_VARIABLE"}
        for graph in self.network.subgraphs[1:] if kept else ():
            for call in graph.npu_calls:
                arena = np.full(max(call.scratch_bytes, self.arena.size), POISON, np.uint8)
                fast = np.full(max(call.scratch_fast_bytes, 1), POISON, np.uint8)
                NpuModel(call.accelerator, self.checks).run(call.words, [call.read_only, arena, fast])
                for output in call.outputs:
                    state = kept.get(graph.tensors[output].name)
                    if state is not None:
                        tensor = self.network.tensors[read[state]]
                        yield state, arena[tensor.arena_offset : tensor.arena_offset + tensor.size_bytes]

    def value(self, index: int) -> NDArray[Any]:
        """What tensor `index` holds now, as a copy in its own type and shape."""
        tensor = self.network.tensors[index]
        value: NDArray[Any] = self._place(index).data.copy().view(tensor.dtype).reshape(tensor.shape)
        return value

    def _set(self, index: int, value: NDArray[Any]) -> None:
        place = self._place(index)
        if value.nbytes != place.data.size:
            name, kind = self.network.tensors[index].name, f"{value.dtype}{list(value.shape)}"
            raise NpuModelError(
                f"tensor {index} ({name}) turned out to be {kind}, {value.nbytes} bytes, but has {place.data.size} in "
                f"{self.network.name}: shapes that are known only when an operator runs are not modelled"
            )
        place.data[:] = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        place.shadow[:] = True

    def run(
        self, inputs: Sequence[NDArray[Any]], observer: CallObserver | None = None, fuzz_schedules: int = 0
    ) -> NetworkRun:
        """One inference. `inputs` are in the network's order and types; states keep their values.

        With `fuzz_schedules`, every NPU call is repeated under that many completion orders.
        Raises `NetworkInputError` for inputs that do not fit, and all errors of `NpuModel.run`.
        """
        network = self.network
        states = {i: self.value(i) for i in network.states}
        if self.checks:
            self._forget()
            for index, value in states.items():
                self._set(index, value)
        for index, value in zip(network.inputs, self._fitting(inputs), strict=True):
            self._set(index, value)
        stats = []
        for operator in network.operators:
            if isinstance(operator, CpuOperator) and operator.name in OF_VARIABLES:
                for source, target in moved(operator):
                    self._check_defined(source, f"CPU operator {operator.index} ({operator.name}) reads")
                    self._set(target, self.value(source))
                continue
            if isinstance(operator, CpuOperator):
                host = self._hosts[operator.index]
                for index in host.network.inputs:
                    self._check_defined(index, f"CPU operator {operator.index} ({operator.name}) reads")
                made = host.step([self.value(i) for i in host.network.inputs])
                for index, value in zip(host.network.outputs, made, strict=True):
                    self._set(index, value)
                continue
            stats.append(self._call(operator, observer, fuzz_schedules))
        for index in network.outputs:
            self._check_defined(index, "the network's output is")
        kernels = sorted({host.what for host in self._hosts.values()}, reverse=True)
        return NetworkRun(tuple(self.value(i) for i in network.outputs), tuple(stats), tuple(kernels))

    def _check_defined(self, index: int, user: str) -> None:
        """`UninitialisedReadError` when tensor `index` has bytes that were never written."""
        shadow = self._place(index).shadow
        if self.checks and not shadow.all():
            name, missing = self.network.tensors[index].name, int(np.count_nonzero(~shadow))
            raise UninitialisedReadError(
                f"{user} tensor {index} ({name}), of whose {shadow.size} bytes {missing} were never written, "
                f"the first at offset {int(np.argmin(shadow)):#x}"
            )

    def _forget(self) -> None:
        """Nothing but constants is defined when an inference starts."""
        self._arena_shadow[:] = False
        for call in self.network.npu_calls:
            constant = (0,) if call.resident is None else (0, 3)
            for region, shadow in enumerate(self._regions[call.index][1]):
                if shadow is not None and region not in constant:
                    shadow[:] = False

    def _call(self, call: NpuCall, observer: CallObserver | None, fuzz_schedules: int) -> RunStats:
        name = call.accelerator.name
        model = self._models.setdefault(name, NpuModel(call.accelerator, self.checks, self._where))
        regions, shadows = self._regions[call.index]
        given = shadows if self.checks else None
        self._exchange(call, 0)
        if fuzz_schedules:
            stats = model.fuzz_schedule(call.words, regions, fuzz_schedules, given)
        else:
            watch = None if observer is None else partial(observer, call)
            stats = model.run(call.words, regions, given, observer=watch)
        self._exchange(call, 1)
        return stats

    def _fitting(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        expected = [self.network.tensors[i] for i in self.network.inputs]
        if len(inputs) != len(expected):
            names = ", ".join(f"{t.name} {t.dtype}{list(t.shape)}" for t in expected)
            raise NetworkInputError(
                f"the network takes {counted(len(expected), 'input')} ({names}), but got {len(inputs)}"
            )
        for position, (value, tensor) in enumerate(zip(inputs, expected, strict=True)):
            if value.nbytes != tensor.size_bytes or value.itemsize != np.dtype(tensor.dtype).itemsize:
                raise NetworkInputError(
                    f"input {position} ({tensor.name}) must be {tensor.dtype}{list(tensor.shape)}, "
                    f"but is {value.dtype}{list(value.shape)}"
                )
        return list(inputs)
