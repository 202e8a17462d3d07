"""A whole Vela-compiled network: NPU calls on the model, the operators between them on the host, comparison by layer,
trace.

Invariant: the model of the NPU does not depend on this module. Tensors live where Vela put them: the arena is one
array, filled with a poison pattern first; NPU regions are views of it, and host operators read and write the same
bytes. A layer is called equal only when every element of it was seen and equal, and called different only when an
operation wrote a tensor of its shape, type and zero point that is closest to it and not equal; tensors that compilation
fused away are counted as not visible and never blamed. The lanes of a trace, in Chrome's format, are those of the
estimate (`npu_memplan.ethosu.time`); what an operation is called and its notes, the model read from the stream itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.isa import SHRAM_REGION, Op, PoolMode, Register
from npu_memplan.ethosu.time import Described, Estimate, MemoryMap, lanes
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.subgraphs import OF_VARIABLES, kept_variables, variable_copies
from npu_memplan.models.tensor import Tensor
from npu_memplan.models.vela import NpuCall, check_scratch
from npu_memplan.sizes import count_text

from ..base import POISON
from ..references.kernels import ReferenceOperator
from ..result import Array
from .bound.kernels import Bound, Kernel
from .bound.memory import Dma, Shadow
from .errors import NpuModelError, OutOfRegionError, UninitialisedReadError
from .model import NpuModel, RunStats
from .spec.feature_maps import Bytes
from .spec.operations import DmaSpec, ElementwiseSpec, SumSpec
from .spec.stream import DecodedStep, DecodedStream
from .spec.u85 import ResizeSpec

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


MOST_BYTES = 1 << 30  # of one memory: a damaged file may name any address
_FEATURE_MAPS = (Register.IFM_REGION, Register.IFM2_REGION, Register.OFM_REGION)
_TRANSFER = (Register.DMA0_SRC_REGION, Register.DMA0_DST_REGION)


@dataclass(slots=True, eq=False)
class _Place:
    data: Bytes
    shadow: Shadow


def _allocate(size_bytes: int, what: str) -> tuple[Bytes, Shadow]:
    """Poisoned memory and its shadow; `OutOfRegionError` for more than is simulated."""
    if size_bytes > MOST_BYTES:
        raise OutOfRegionError(f"{what} takes {size_bytes:,} bytes; at most {MOST_BYTES:,} are simulated")
    return np.full(size_bytes, POISON, np.uint8), np.zeros(size_bytes, np.bool_)


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
        self.arena, self._arena_shadow = _allocate(end, f"the arena of {network.name}")
        self._places: dict[int, _Place] = {}
        self._regions: dict[int, tuple[list[Bytes | None], list[Shadow | None]]] = {}
        # Per call: inputs and outputs (tensor, region, offset) that are outside the arena and are copied.
        self._pooled: dict[int, tuple[list[tuple[int, int, int]], list[tuple[int, int, int]]]] = {}
        for call in network.npu_calls:
            self._bind_call(call)
        self._starts = dict(self._made_once())
        self.reset()

    def _tensor_place(self, index: int) -> _Place:
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

    def _bind_call(self, call: NpuCall) -> None:
        constants = np.ascontiguousarray(call.read_only)
        arena, arena_shadow = self.arena[: call.scratch_bytes], self._arena_shadow[: call.scratch_bytes]
        regions: list[Bytes | None] = [constants, arena, arena]
        shadows: list[Shadow | None] = [np.ones(constants.size, np.bool_), arena_shadow, arena_shadow]
        if call.scratch_fast_bytes:
            regions[2], shadows[2] = _allocate(call.scratch_fast_bytes, f"the fast scratch of NPU call {call.index}")
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
                    data, shadow = _allocate(stop, f"region {region} of NPU call {call.index}")
                    regions[region], shadows[region] = data, shadow
                if data is None or shadow is None or not 0 <= offset <= stop <= data.size:
                    raise OutOfRegionError(
                        f"tensor {index} of the NPU call {call.index} should lie at bytes {offset} to {stop} of "
                        f"region {region}, which is too small"
                    )
                self._places[index] = _Place(np.full(size, POISON, np.uint8), np.zeros(size, np.bool_))
                self._pooled[call.index][direction].append((index, region, offset))

    def _copy_tensors(self, call: NpuCall, direction: int) -> None:
        """Copy inputs (0) into the regions of their own, or outputs (1) out of them."""
        regions, shadows = self._regions[call.index]
        for index, region, offset in self._pooled[call.index][direction]:
            place, data, shadow = self._tensor_place(index), regions[region], shadows[region]
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
            tensor, place = self.network.tensors[index], self._tensor_place(index)
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

    def tensor_value(self, index: int) -> NDArray[Any]:
        """The value of tensor `index` now, as a copy in its own type and shape."""
        tensor = self.network.tensors[index]
        value: NDArray[Any] = self._tensor_place(index).data.copy().view(tensor.dtype).reshape(tensor.shape)
        return value

    def _set_tensor(self, index: int, value: NDArray[Any]) -> None:
        place = self._tensor_place(index)
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
        states = {i: self.tensor_value(i) for i in network.states}
        if self.checks:
            self._forget_tensors()
            for index, value in states.items():
                self._set_tensor(index, value)
        for index, value in zip(network.inputs, self._fit_inputs(inputs), strict=True):
            self._set_tensor(index, value)
        stats = []
        for operator in network.operators:
            if isinstance(operator, CpuOperator) and operator.name in OF_VARIABLES:
                for source, target in variable_copies(operator):
                    self._check_defined(source, f"CPU operator {operator.index} ({operator.name}) reads")
                    self._set_tensor(target, self.tensor_value(source))
                continue
            if isinstance(operator, CpuOperator):
                host = self._hosts[operator.index]
                for index in host.network.inputs:
                    self._check_defined(index, f"CPU operator {operator.index} ({operator.name}) reads")
                made = host.step([self.tensor_value(i) for i in host.network.inputs])
                for index, value in zip(host.network.outputs, made, strict=True):
                    self._set_tensor(index, value)
                continue
            stats.append(self._run_call(operator, observer, fuzz_schedules))
        for index in network.outputs:
            self._check_defined(index, "the network's output is")
        kernels = sorted({host.what for host in self._hosts.values()}, reverse=True)
        return NetworkRun(tuple(self.tensor_value(i) for i in network.outputs), tuple(stats), tuple(kernels))

    def _check_defined(self, index: int, user: str) -> None:
        """`UninitialisedReadError` when tensor `index` has bytes that were never written."""
        shadow = self._tensor_place(index).shadow
        if self.checks and not shadow.all():
            name, missing = self.network.tensors[index].name, int(np.count_nonzero(~shadow))
            raise UninitialisedReadError(
                f"{user} tensor {index} ({name}), of whose {shadow.size} bytes {missing} were never written, "
                f"the first at offset {int(np.argmin(shadow)):#x}"
            )

    def _forget_tensors(self) -> None:
        """Nothing but constants is defined when an inference starts."""
        self._arena_shadow[:] = False
        for call in self.network.npu_calls:
            constant = (0,) if call.resident is None else (0, 3)
            for region, shadow in enumerate(self._regions[call.index][1]):
                if shadow is not None and region not in constant:
                    shadow[:] = False

    def _run_call(self, call: NpuCall, observer: CallObserver | None, fuzz_schedules: int) -> RunStats:
        name = call.accelerator.name
        model = self._models.setdefault(name, NpuModel(call.accelerator, self.checks, self._where))
        regions, shadows = self._regions[call.index]
        given = shadows if self.checks else None
        self._copy_tensors(call, 0)
        if fuzz_schedules:
            stats = model.fuzz_schedule(call.words, regions, fuzz_schedules, given)
        else:
            watch = None if observer is None else partial(observer, call)
            stats = model.run(call.words, regions, given, observer=watch)
        self._copy_tensors(call, 1)
        return stats

    def _fit_inputs(self, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
        expected = [self.network.tensors[i] for i in self.network.inputs]
        if len(inputs) != len(expected):
            names = ", ".join(f"{t.name} {t.dtype}{list(t.shape)}" for t in expected)
            raise NetworkInputError(
                f"the network takes {count_text(len(expected), 'input')} ({names}), but got {len(inputs)}"
            )
        for position, (value, tensor) in enumerate(zip(inputs, expected, strict=True)):
            if value.nbytes != tensor.size_bytes or value.itemsize != np.dtype(tensor.dtype).itemsize:
                raise NetworkInputError(
                    f"input {position} ({tensor.name}) must be {tensor.dtype}{list(tensor.shape)}, "
                    f"but is {value.dtype}{list(value.shape)}"
                )
        return list(inputs)


_MAX_PLACES = 64  # candidate positions looked at for one written part


@dataclass(frozen=True, slots=True)
class Written:
    """The output of one kernel operation, copied when it was written."""

    where: str
    values: Array  # [height, width, depth]
    zero_point: int


@dataclass(frozen=True, slots=True)
class LayerDifference:
    """The first tensor that differs."""

    tensor: str
    index: int
    shape: tuple[int, ...]
    where: str  # the operation
    coordinates: tuple[int, ...]  # of the first wrong element, in the tensor's shape
    got: int
    expected: int
    mismatches: int  # in what the operation wrote
    elements: int
    max_abs_diff: int  # of these elements


@dataclass(frozen=True, slots=True)
class LayerReport:
    """How many of the reference's tensors were visible and equal, and the first that was not."""

    tensors: int
    equal: int
    first: LayerDifference | None


class LayerRecorder:
    """An observer for `NetworkModel.run` that keeps what every kernel wrote."""

    def __init__(self) -> None:
        self.written: list[Written] = []

    def __call__(self, call: NpuCall, step: DecodedStep, bound: Bound) -> None:
        if isinstance(bound, Dma):
            return
        self.written.append(Written(*kernel_output(step, bound, call.index)))


def kernel_output(step: DecodedStep, bound: Kernel, call: int) -> tuple[str, Array, int]:
    """Name, output and zero point of a kernel of NPU call number `call` that has ended, for `Written`."""
    where = step.registers.op_text + (f" of NPU call {call}" if call else "")
    return where, np.array(bound.output.map.array), bound.output.spec.layout.zero_point


def compare_layers(
    network: Network, layers: Mapping[int, Array], written: Sequence[Written], blame: bool = True
) -> LayerReport:
    """Compare the tensors `layers` of the reference with what was written; without `blame` count equal ones."""
    wholes = {index: as_map(values) for index, values in layers.items()}
    seen = {index: np.zeros(whole.shape, np.bool_) for index, whole in wholes.items()}
    claims: dict[int, tuple[float, int, Any]] = {}  # position -> best (share of equal elements, tensor, box)
    for position, part in enumerate(written):
        matched = False
        for index, whole in wholes.items():
            if part.values.dtype != whole.dtype:
                continue
            if part.values.size == whole.size and np.array_equal(part.values.reshape(-1), whole.reshape(-1)):
                seen[index][...] = matched = True
                continue
            box = _find_part(part.values, whole)
            if box is not None:
                seen[index][box] = matched = True
        if matched or not blame:
            continue
        for index, whole in wholes.items():
            if not same_form(part.values, part.zero_point, whole, network.tensors[index]):
                continue
            share, box = closest_part(part.values, whole)
            if share == 1.0:
                seen[index][box if box is not None else ...] = True
                claims.pop(position, None)
                break
            if position not in claims or share > claims[position][0]:
                claims[position] = (share, index, box)
    equal = {index for index, mask in seen.items() if mask.all()}
    first = None
    blamed = {index: position for position, (_, index, _) in reversed(claims.items())}
    for index, values in layers.items():
        if index in blamed and index not in equal:
            first = _layer_difference(network.tensors[index], values, written[blamed[index]], claims[blamed[index]][2])
            break
    return LayerReport(len(layers), len(equal), first)


def as_map(values: Array) -> Array:
    """`values` as [height, width, depth]; leading axes count as height."""
    shape = (1, 1, 1, *values.shape)
    return values.reshape(-1, shape[-2], shape[-1])


def same_form(values: Array, zero_point: int, whole: Array, tensor: Tensor) -> bool:
    """Whether `values` may be (a part of) the tensor, which is `whole` as a map: by type, zero point, extents."""
    if values.dtype != whole.dtype or zero_point != tensor.zero_point:
        return False
    return values.size == whole.size or (
        values.shape[1] == whole.shape[1] and values.shape[0] <= whole.shape[0] and values.shape[2] <= whole.shape[2]
    )


def _find_part(part: Array, whole: Array) -> tuple[slice, slice, slice] | None:
    """The place of `part` in `whole`; None when nowhere."""
    room = [n - m + 1 for n, m in zip(whole.shape, part.shape, strict=True)]
    if min(room) < 1 or part.size < 2:
        return None
    y, x, c = room
    candidates = whole[:y, :x, :c] == part[0, 0, 0]
    h, w, d = (n - 1 for n in part.shape)
    for dy, dx, dc in ((h, w, d), (0, w, 0), (0, 0, d), (h // 2, w // 2, d // 2), (h, 0, 0)):
        candidates &= whole[dy : dy + y, dx : dx + x, dc : dc + c] == part[dy, dx, dc]
    for at in islice(zip(*np.nonzero(candidates), strict=True), _MAX_PLACES):
        box = tuple(slice(int(a), int(a) + n) for a, n in zip(at, part.shape, strict=True))
        if np.array_equal(whole[box], part):
            return box[0], box[1], box[2]
    return None


def closest_part(part: Array, whole: Array) -> tuple[float, tuple[slice, slice, slice] | None]:
    """(largest share of equal elements of `part` in `whole`, where); None: element by element in memory order."""
    if part.size == whole.size:
        return float(np.mean(part.reshape(-1) == whole.reshape(-1))), None
    best: tuple[float, tuple[slice, slice, slice] | None] = (-1.0, None)
    height, _, depth = part.shape
    for y in _align_sizes(whole.shape[0], height):
        for c in _align_sizes(whole.shape[2], depth):
            box = slice(y, y + height), slice(0, whole.shape[1]), slice(c, c + depth)
            share = float(np.mean(whole[box] == part))
            if share > best[0]:
                best = share, box
    return best


def _align_sizes(total: int, size: int) -> list[int]:
    return sorted({*range(0, total - size + 1, size), total - size})


def _layer_difference(tensor: Tensor, values: Array, part: Written, box: Any) -> LayerDifference:
    whole = as_map(values)
    got = part.values.reshape(whole.shape) if box is None else part.values
    expected = whole if box is None else whole[box]
    wrong = got != expected
    inner = tuple(int(i) for i in np.argwhere(wrong)[0])
    offsets = (0, 0, 0) if box is None else tuple(s.start for s in box)
    flat = np.ravel_multi_index(tuple(i + o for i, o in zip(inner, offsets, strict=True)), whole.shape)
    return LayerDifference(
        tensor=tensor.name,
        index=tensor.index,
        shape=tuple(values.shape),
        where=part.where,
        coordinates=tuple(int(i) for i in np.unravel_index(int(flat), values.shape)),
        got=int(got[inner]),
        expected=int(expected[inner]),
        mismatches=int(np.count_nonzero(wrong)),
        elements=int(wrong.size),
        max_abs_diff=int(np.abs(got.astype(np.int64) - expected.astype(np.int64)).max()),
    )


def step_title(step: DecodedStep) -> str:
    """A short name: what the operation does, and its output."""
    spec = step.spec
    if isinstance(spec, DmaSpec):
        return f"DMA {spec.size_bytes} B"
    output = spec.output
    shape = f"{output.height}x{output.width}x{output.depth}"
    if isinstance(spec, ElementwiseSpec):
        return f"{spec.kind.name} {shape}"
    if isinstance(spec, ResizeSpec):
        return f"RESIZE {spec.kind.name} {shape}"
    kernel = f"{spec.window.height}x{spec.window.width}"
    if spec.pool is not None:
        return f"POOL {PoolMode(step.registers.operation.parameter).name} {kernel} {shape}"
    return f"{'DEPTHWISE' if spec.depthwise else 'CONV'} {kernel} {shape}"


def step_details(step: DecodedStep, call: int) -> dict[str, Any]:
    spec = step.spec
    found: dict[str, Any] = {
        "call": call,
        "operation": step.registers.index,
        "stream_offset": step.registers.operation.offset_bytes,
    }
    if isinstance(spec, DmaSpec):
        found |= {"bytes": spec.size_bytes, "from_region": spec.source.region, "from": spec.source.start}
        return found | {"to_region": spec.destination.region, "to": spec.destination.start}
    found |= {"ofm_region": spec.output.layout.region, "ofm": spec.output.layout.bases[0]}
    for source in spec.inputs:
        if source.layout is not None:
            name = source.name.lower()
            found |= {f"{name}_region": source.layout.region, name: source.layout.bases[0]}
    found |= {"macs": spec.macs}
    if isinstance(spec, SumSpec) and spec.pool is None:
        found["weight_bytes"] = sum(span.length for span in spec.weights)
    return found


def trace_json(network: Network, where: MemoryMap | None = None) -> str:
    """The whole network as JSON text; `where`: the memories (None: those of the accelerator's default system)."""
    calls = [(call.index, call.words, call.accelerator) for call in network.npu_calls]
    return json.dumps(trace_of(network.name, calls, where))


def trace_of(
    name: str, calls: Iterable[tuple[int, Sequence[int], Architecture]], where: MemoryMap | None = None
) -> dict[str, Any]:
    """(index, command stream, NPU) of each call, one after the other."""

    def described_launches() -> Iterator[tuple[Estimate, Described]]:
        for index, words, accelerator in calls:
            program = DecodedStream.decode_words(words, accelerator)
            yield (
                program.estimate_time(where),
                [(step_title(step), step_details(step, index)) for step in program.steps],
            )

    unit = "one microsecond is one estimated NPU cycle"
    return {
        "traceEvents": [*lanes(name, described_launches(), 1)],
        "displayTimeUnit": "ms",
        "otherData": {"time": unit},
    }
