"""One inference of an ExecuTorch method, run as its runtime runs it: delegates on the NPU model, kernels in NumPy.

Invariant: tensors live where the file's plan puts them. Planned buffers and, at every call of a delegate, the scratch
are filled with a poison pattern first; inputs are copied into the scratch one after another, outputs out of it, and no
other byte of it outlives the call. A kernel computes what ExecuTorch's portable kernel does, in the same precision;
`out` comes last, twice. Where not all kernels are known, delegates run alone, with inputs of their own, and the result
says so. Where a transfer of the NPU takes rows by an index, wide integers are indices of rows that every such transfer
has: its stream says how many.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from npu_memplan.errors import RefusalError
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.fields import DmaRegion
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.ethosu.time import MemoryMap
from npu_memplan.files.arrays import random_array
from npu_memplan.models.executorch.delegates import EthosUCall, npu_calls
from npu_memplan.models.executorch.program import (
    VIEW,
    DelegateCall,
    ExecutorchProgram,
    FreeCall,
    JumpFalseCall,
    KernelCall,
    Method,
    MoveCall,
    ValueList,
    ValueTensor,
)
from npu_memplan.models.tensor import Tensor

from ..base import POISON
from ..npu_model.bound.kernels import Bound
from ..npu_model.bound.memory import Dma
from ..npu_model.checks.footprint import region_extents
from ..npu_model.errors import NpuModelError, OutOfRegionError, UninitialisedReadError
from ..npu_model.model import NpuModel, RunStats
from ..npu_model.network import MOST_BYTES
from ..npu_model.spec.feature_maps import Bytes

_INDEX_BYTES = 4  # what the NPU takes


class MissingKernelError(RefusalError):
    """An operator of the program is none of those that are run here."""


@dataclass(frozen=True, slots=True, eq=False)
class MethodInput:
    """An input of a method, as a user gives it."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    index_range: tuple[int, int] | None = None


def method_inputs(method: Method, calls: Sequence[EthosUCall]) -> list[MethodInput]:
    """The tensors that a method takes, which has these `calls`; `MissingKernelError` where it takes something else."""
    found, rows = [], _indexed_rows(calls)
    for number, index in enumerate(method.inputs):
        tensor = method.tensor(index)
        if tensor is None or tensor.dtype in ("bfloat16", "complex32"):
            what = "no tensor" if tensor is None else f"of {tensor.dtype}"
            raise MissingKernelError(f"input {number} of method {method.name!r} is {what}, which is not run here")
        found.append(_method_input(f"input{number}", tensor.dtype, tensor.shape, rows))
    return found


def delegate_inputs(one: EthosUCall) -> list[MethodInput]:
    """The tensors that a delegate takes."""
    tensors, rows = [one.network.tensors[index] for index in one.call.inputs], _indexed_rows([one])
    return [_method_input(tensor.name, tensor.dtype, tensor.shape, rows) for tensor in tensors]


def _method_input(name: str, dtype: str, shape: tuple[int, ...], rows: int) -> MethodInput:
    kind = np.dtype(dtype)
    is_index = rows and kind.kind in "iu" and kind.itemsize >= _INDEX_BYTES
    return MethodInput(name, dtype, shape, (0, rows) if is_index else None)


def _indexed_rows(calls: Sequence[EthosUCall]) -> int:
    """How many rows an index may name in every transfer that takes some; 0: no transfer does."""
    found = []
    for one in calls:
        for operation in decode(one.call.words, one.call.accelerator.language):
            if isinstance(operation, Operation) and operation.op is Op.DMA_START:
                sides = operation.get(Register.DMA0_SRC_REGION), operation.get(Register.DMA0_DST_REGION)
                if any(map(DmaRegion.INDEXED.value_in, sides)):
                    found.append(operation[Register.DMA0_IDX_MAX] + 1)
    return min(found, default=0)


Kernel: TypeAlias = Callable[[list[Any]], NDArray[Any]]
_TINY = np.float32


def _quantize_input(given: list[Any]) -> NDArray[Any]:
    values, scale, zero_point, least, most = given[:5]
    inverse = _TINY(1.0) / _TINY(scale)
    steps = np.rint(values.astype(_TINY) * inverse).astype(np.int64) + int(zero_point)
    found: NDArray[Any] = np.clip(steps, least, most)
    return found


def _dequantize_input(given: list[Any]) -> NDArray[Any]:
    values, scale, zero_point = given[:3]
    found: NDArray[Any] = (values.astype(np.int32) - int(zero_point)).astype(_TINY) * _TINY(scale)
    return found


def _copy_value(given: list[Any]) -> NDArray[Any]:
    found: NDArray[Any] = given[0]
    return found


def _reshape_value(given: list[Any]) -> NDArray[Any]:
    found: NDArray[Any] = np.ascontiguousarray(given[0]).reshape(given[-1].shape)
    return found


def _permute_value(given: list[Any]) -> NDArray[Any]:
    found: NDArray[Any] = given[0].transpose(given[1])
    return found


KERNELS: Mapping[str, Kernel] = {
    "quantized_decomposed::quantize_per_tensor.out": _quantize_input,
    "quantized_decomposed::dequantize_per_tensor.out": _dequantize_input,
    "aten::clone.out": _copy_value,
    "aten::alias_copy.out": _copy_value,
    "dim_order_ops::_clone_dim_order.out": _copy_value,
    "dim_order_ops::_to_dim_order_copy.out": _copy_value,
    "aten::_to_copy.out": _copy_value,
    "aten::view_copy.out": _reshape_value,
    "aten::squeeze_copy.dims_out": _reshape_value,
    "aten::unsqueeze_copy.out": _reshape_value,
    "aten::permute_copy.out": _permute_value,
}


_MOST_STEPS = 1_000_000  # of one inference


@dataclass(frozen=True, slots=True, eq=False)
class MethodRun:
    """The results of one inference."""

    outputs: tuple[NDArray[Any], ...]
    stats: tuple[RunStats, ...]  # of each call of a delegate
    kernels: tuple[int, ...] = ()  # a checksum of what each kernel of the NPU wrote


@dataclass(slots=True, eq=False)
class TensorMemory:
    """The memory of a tensor and which of its bytes were written."""

    data: Bytes
    defined: NDArray[np.bool_]


def _delegate_backends(method: Method) -> set[str]:
    return {delegate.backend for delegate in method.delegates}


def missing_kernels(method: Method) -> list[str]:
    """Operators and backends that are not run here, each once."""
    calls = [i for i in method.instructions if isinstance(i, KernelCall)]
    missing = [call.name for call in calls if call.name not in KERNELS and call.name != VIEW]
    missing += [delegate.backend for delegate in method.delegates if delegate.backend != "EthosUBackend"]
    return list(dict.fromkeys(missing))


class ExecutorchModel:
    """Runs one method of `program`; `where`: the memories that cycles are estimated with.

    `one_arena`: the scratch is at the start of planned buffer 1. `stand_ins`: kernels that are not known give values
    that depend on their inputs alone, which shows where the data goes.
    """

    def __init__(
        self,
        program: ExecutorchProgram,
        method: Method,
        checks: bool = True,
        where: MemoryMap | None = None,
        *,
        one_arena: bool = False,
        stand_ins: bool = False,
    ) -> None:
        missing = [name for name in missing_kernels(method) if not stand_ins or name in _delegate_backends(method)]
        if missing:
            raise MissingKernelError(
                f"{program.name}: method {method.name!r} calls {', '.join(missing)}, not run here; only the delegates "
                "can be simulated (npu-memplan simulate), or the program in ExecuTorch's runtime"
            )
        self.method, self.checks, self.where, self.one_arena = method, checks, where, one_arena
        self.calls = {one.position: one for one in npu_calls(program) if one.method is method}
        self.scratch_bytes = max((c.blocks.scratch_bytes for c in self.calls.values()), default=0)
        self._models: dict[str, NpuModel] = {}

    def run(self, inputs: Sequence[NDArray[Any]]) -> MethodRun:
        """One inference. Subclasses of `NpuModelError` for what breaks a rule."""
        method = self.method
        self._pools = {
            memory: TensorMemory(np.full(size, POISON, np.uint8), np.zeros(size, np.bool_))
            for memory, size in method.planned_bytes.items()
        }
        self._held: dict[int, TensorMemory] = {}
        self._stats: list[RunStats] = []
        self._kernels: list[int] = []
        for index, value in zip(method.inputs, inputs, strict=True):
            self._write_tensor(index, np.asarray(value))
        at = steps = 0
        while at < len(method.instructions):
            at = self._run_step(at)
            steps += 1
            if steps > _MOST_STEPS:
                raise NpuModelError(f"method {method.name!r} has not ended after {_MOST_STEPS:,} instructions")
        outputs = tuple(self._output_value(index) for index in method.outputs)
        return MethodRun(outputs, tuple(self._stats), tuple(self._kernels))

    def _output_value(self, index: int) -> NDArray[Any]:
        """A tensor, or a number that the file has: of methods that say how inputs are quantised."""
        value = self.method.values[index]
        if isinstance(value, (int, float)):
            return np.asarray(value)
        return self._read_tensor(index, "the method's output is")

    # -- instructions -------------------------------------------------------------------------------

    def _run_step(self, at: int) -> int:
        instruction = self.method.instructions[at]
        if isinstance(instruction, DelegateCall):
            self._run_call(self.calls[at])
        elif isinstance(instruction, KernelCall):
            self._run_kernel(instruction, at)
        elif isinstance(instruction, MoveCall):
            self._held[instruction.target] = self._hold_tensor(instruction.source)
        elif isinstance(instruction, JumpFalseCall):
            if not np.any(np.asarray(self._argument_value(instruction.condition, f"instruction {at} reads"))):
                return instruction.destination
        else:
            assert isinstance(instruction, FreeCall)
        return at + 1

    def _run_kernel(self, call: KernelCall, at: int) -> None:
        if len(call.arguments) < 2:
            raise NpuModelError(f"instruction {at} gives {call.name} {len(call.arguments)} arguments")
        target = call.arguments[-1]
        if call.name == VIEW:
            self._held[target] = self._hold_tensor(call.arguments[0])
            return
        who = f"instruction {at} ({call.name}) reads"
        if call.name not in KERNELS:
            self._stand_in(call, who)
            return
        given = [self._argument_value(index, who) for index in call.arguments[:-2]]
        out = self.method.tensor(target)
        if out is None:
            raise NpuModelError(f"instruction {at} ({call.name}) writes value {target}, which is no tensor")
        self._check_apart(call, at)
        try:
            made = KERNELS[call.name]([*given, np.empty(out.shape, out.dtype)])
            self._write_tensor(target, np.broadcast_to(made, out.shape).astype(out.dtype))
        except (ValueError, TypeError, IndexError, ArithmeticError, AttributeError) as error:
            raise NpuModelError(f"instruction {at} ({call.name}) cannot run on its arguments: {error}") from None

    def _stand_in(self, call: KernelCall, who: str) -> None:
        """A kernel that is not known: values that depend on every byte of its inputs."""
        made = [*self.method.tensors_in(call.arguments[-1])]
        in_place = {*self.method.tensors_in(call.arguments[0])} & {*made}
        named = dict.fromkeys(index for value in call.arguments[:-1] for index in self.method.tensors_in(value))
        read = [index for index in named if index not in made or index in in_place]
        seeds = [zlib.crc32(call.name.encode())]
        for index in read:
            self._check_written(index, self._hold_tensor(index), who)
            seeds.append(zlib.crc32(self._hold_tensor(index).data.tobytes()))
        generator = np.random.default_rng(seeds)
        for index in made:
            tensor = self.method.tensor(index)
            assert tensor is not None
            self._write_tensor(index, random_array(MethodInput("", tensor.dtype, tensor.shape), generator))

    def _check_apart(self, call: KernelCall, at: int) -> None:
        """Kernels go element by element: an output over part of an input would change what is still to be read."""
        out = self._hold_tensor(call.arguments[-1]).data
        for value in call.arguments[:-2]:
            for index in self.method.tensors_in(value):
                data = self._hold_tensor(index).data
                same = data.ctypes.data == out.ctypes.data and len(data) == len(out)
                if not same and np.may_share_memory(data, out):
                    raise NpuModelError(
                        f"instruction {at} ({call.name}) writes value {call.arguments[-1]} over value {index}, which "
                        "it reads: they share bytes of a planned buffer"
                    )

    def _run_call(self, one: EthosUCall) -> None:
        name, tensors = one.call.accelerator.name, one.network.tensors
        model = self._models.setdefault(name, NpuModel(one.call.accelerator, self.checks, self.where))
        given = []
        for index, number in zip(one.inputs, one.call.inputs, strict=True):
            held = self._hold_tensor(index)
            self._check_written(index, held, f"the delegate at instruction {one.position} reads")
            _check_copy(len(held.data), tensors[number], one)
            given.append(held.data)
        stats, made = run_delegate(one, model, given, self._pools[1] if self.one_arena else None, self._kernels)
        self._stats.append(stats)
        for index, (data, defined) in zip(one.outputs, made, strict=True):
            target = self._hold_tensor(index)
            _check_copy(len(target.data), tensors[one.call.outputs[one.outputs.index(index)]], one)
            if not target.data.flags.writeable:
                raise NpuModelError(f"value {index} of method {self.method.name!r} is written, but is a constant")
            target.data[:], target.defined[:] = data, defined

    # -- values -------------------------------------------------------------------------------------

    def _argument_value(self, index: int, who: str) -> Any:
        value = self.method.values[index]
        if isinstance(value, ValueList):
            return [None if item < 0 else self._argument_value(item, who) for item in value.items]
        return self._read_tensor(index, who) if isinstance(value, ValueTensor) else value

    def _hold_tensor(self, index: int) -> TensorMemory:
        found = self._held.get(index)
        if found is None:
            found = self._held[index] = self._planned_tensor(index)
        return found

    def _planned_tensor(self, index: int) -> TensorMemory:
        tensor = self.method.tensor(index)
        if tensor is None:
            raise NpuModelError(f"value {index} of method {self.method.name!r} is used as a tensor, but is none")
        size, place = tensor.size_bytes, tensor.place
        if place is None:
            if tensor.data is not None:
                return TensorMemory(np.frombuffer(tensor.data, np.uint8), np.ones(size, np.bool_))
            return TensorMemory(np.full(size, POISON, np.uint8), np.zeros(size, np.bool_))
        pool = self._pools.get(place.memory_id)
        end = place.offset_bytes + size
        if pool is None or end > len(pool.data):
            has = 0 if pool is None else len(pool.data)
            raise OutOfRegionError(
                f"value {index} of method {self.method.name!r} ends at byte {end:,} of planned buffer "
                f"{place.memory_id}, which has {has:,}: {end - has:,} too few"
            )
        part = slice(place.offset_bytes, end)
        found = TensorMemory(pool.data[part], pool.defined[part])
        if tensor.data is not None:
            found.data[:], found.defined[:] = np.frombuffer(tensor.data, np.uint8), True
        return found

    def _check_written(self, index: int, held: TensorMemory, who: str) -> None:
        if self.checks and not held.defined.all():
            missing = int(np.count_nonzero(~held.defined))
            raise UninitialisedReadError(
                f"{who} value {index}, but nothing wrote {missing:,} of its {len(held.data):,} bytes, the first at "
                f"offset {int(np.argmin(held.defined)):#x}"
            )

    def _read_tensor(self, index: int, who: str) -> NDArray[Any]:
        held, tensor = self._hold_tensor(index), self.method.tensor(index)
        assert tensor is not None
        self._check_written(index, held, who)
        found: NDArray[Any] = shape_bytes(held.data, tensor).copy()
        return found

    def _write_tensor(self, index: int, value: NDArray[Any]) -> None:
        held, tensor = self._hold_tensor(index), self.method.tensor(index)
        assert tensor is not None
        if not held.data.flags.writeable:
            raise NpuModelError(f"value {index} of method {self.method.name!r} is written, but is a constant")
        shape_bytes(held.data, tensor)[...] = value.reshape(tensor.shape)
        held.defined[:] = True


def same_outputs(left: Sequence[NDArray[Any]], right: Sequence[NDArray[Any]]) -> bool:
    """Whether two runs of a method gave the same, NaN where the other has NaN."""
    pairs = zip(left, right, strict=True)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def shape_bytes(data: Bytes, tensor: ValueTensor) -> NDArray[Any]:
    """The bytes of a tensor in its own shape, whatever the order of its dimensions in memory."""
    order = tensor.dim_order or tuple(range(len(tensor.shape)))
    if len(data) != math.prod(tensor.shape) * tensor.element_bytes:
        raise NpuModelError(f"a tensor of {tensor.size_bytes:,} bytes is given {len(data):,}")
    stored = data.view(tensor.dtype).reshape([tensor.shape[d] for d in order])
    found: NDArray[Any] = stored.transpose(np.argsort(order)) if order else stored
    return found


def run_delegate(
    one: EthosUCall,
    model: NpuModel,
    given: Sequence[Bytes],
    arena: TensorMemory | None = None,
    kernels: list[int] | None = None,
) -> tuple[RunStats, list[tuple[Bytes, NDArray[np.bool_]]]]:
    """One call of a delegate on the bytes of its inputs: its outputs, and which of their bytes were written.

    `arena`: memory that the scratch is the start of; what the stream writes there holds nothing else afterwards.
    `kernels` gets a checksum of what each kernel wrote.
    """
    call, tensors = one.call, one.network.tensors
    size = region_extents(model.prepare_stream(call.words)).get(2, 0) if one.uses_fast_scratch else 0
    if call.scratch_bytes + size > MOST_BYTES:
        raise OutOfRegionError(
            f"the delegate at instruction {one.position} takes {call.scratch_bytes:,} bytes of scratch and {size:,} of "
            f"fast scratch; at most {MOST_BYTES:,} together are simulated"
        )
    memory = [np.full(n, POISON, np.uint8) for n in (call.scratch_bytes, size)]
    if arena is not None:
        memory[0] = _scratch_in(arena, one)
    defined = [np.zeros(len(data), np.bool_) for data in memory]
    for number, data in zip(call.inputs, given, strict=True):
        part = _tensor_slice(tensors[number], one)
        memory[0][part], defined[0][part] = data, True
    copied, before = defined[0].copy(), memory[0].copy()
    regions = [np.ascontiguousarray(call.read_only), *memory]
    shadows = [np.ones(call.read_only.size, np.bool_), *defined]

    def keep_output(_: object, bound: Bound) -> None:
        if kernels is not None and not isinstance(bound, Dma):
            kernels.append(zlib.crc32(bound.output.map.array.tobytes()))

    stats = model.run(call.words, regions, shadows if model.checks else None, observer=keep_output)
    if not model.checks:
        defined[0][:] = True
    if arena is not None:
        arena.defined[: len(copied)] &= np.where(copied, memory[0] == before, ~defined[0])
    parts = [_tensor_slice(tensors[number], one) for number in call.outputs]
    return stats, [(memory[0][part].copy(), defined[0][part].copy()) for part in parts]


def _scratch_in(arena: TensorMemory, one: EthosUCall) -> Bytes:
    size, has = one.call.scratch_bytes, len(arena.data)
    if size > has:
        raise OutOfRegionError(
            f"the scratch of the delegate at instruction {one.position} has {size:,} bytes, the planned buffer that it "
            f"lies in {has:,}: {size - has:,} too few"
        )
    return arena.data[:size]


def _tensor_slice(tensor: Tensor, one: EthosUCall) -> slice:
    end, has = tensor.arena_offset + tensor.size_bytes, one.call.scratch_bytes
    if end > has:
        raise OutOfRegionError(
            f"{tensor.name} of the delegate at instruction {one.position} ends at byte {end:,} of its scratch, which "
            f"has {has:,}: {end - has:,} too few"
        )
    return slice(tensor.arena_offset, end)


def _check_copy(size: int, tensor: Tensor, one: EthosUCall) -> None:
    if size != tensor.size_bytes:
        raise NpuModelError(
            f"{tensor.name} of the delegate at instruction {one.position} has {tensor.size_bytes:,} bytes, the tensor "
            f"of the method {size:,}: copies that change the layout are not modelled"
        )


Given = Callable[[str, Sequence[MethodInput]], Sequence[NDArray[Any]]]


@dataclass(frozen=True, slots=True, eq=False)
class Simulated:
    """The results of one inference; `outputs` are None where only delegates were run."""

    method: Method
    calls: tuple[EthosUCall, ...]
    stats: tuple[RunStats, ...]
    outputs: tuple[NDArray[Any], ...] | None
    missing: tuple[str, ...]  # operators that are not run here

    @property
    def operator_names(self) -> list[str]:
        """The method's own operators, in its order."""
        return [i.name for i in self.method.instructions if isinstance(i, KernelCall)]

    @property
    def copied_bytes(self) -> tuple[int, int]:
        """Bytes that the runtime copies into the scratch and out of it, each call once."""
        tensors = [(c.network.tensors, c.call) for c in self.calls]
        return (
            sum(t[i].size_bytes for t, call in tensors for i in call.inputs),
            sum(t[i].size_bytes for t, call in tensors for i in call.outputs),
        )

    @property
    def scratch_bytes(self) -> int:
        """The bytes that the temporary allocator needs: the calls come one after another."""
        return max((c.blocks.scratch_bytes for c in self.calls), default=0)


def simulate_method(
    program: ExecutorchProgram, method: Method, given: Given, where: MemoryMap, checks: bool
) -> Simulated:
    """Run `method` on what `given` makes for its inputs; errors of `NpuModel.run`."""
    calls = tuple(one for one in npu_calls(program) if one.method is method)
    missing = tuple(missing_kernels(method))
    if not missing:
        inputs = given(program.name, method_inputs(method, calls))
        ran = ExecutorchModel(program, method, checks, where).run(inputs)
        return Simulated(method, calls, ran.stats, ran.outputs, ())
    stats = []
    for one in calls:
        wanted = delegate_inputs(one)
        values = [np.ascontiguousarray(value).reshape(-1).view(np.uint8) for value in given(one.network.name, wanted)]
        model = NpuModel(one.call.accelerator, checks, where)
        stats.append(run_delegate(one, model, values)[0])
    return Simulated(method, calls, tuple(stats), None, missing)


def fast_scratch_bytes(one: EthosUCall) -> int:
    """Bytes that the stream touches behind base pointer 2, which the firmware has to give."""
    if not one.uses_fast_scratch:
        return 0
    return region_extents(NpuModel(one.call.accelerator, checks=False).prepare_stream(one.call.words)).get(2, 0)
