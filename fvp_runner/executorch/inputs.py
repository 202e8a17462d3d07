"""What a method, or a delegate alone, is given.

Invariant: where a transfer of the NPU takes rows by an index, wide integers are indices of rows that every such
transfer has: its stream says how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npu_memplan.errors import RefusalError
from npu_memplan.ethosu.stream.commands import Operation
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.stream.fields import DmaRegion
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.models.executorch.program import Method
from npu_memplan.models.executorch.vela_network import EthosUCall

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
        found.append(_input(f"input{number}", tensor.dtype, tensor.shape, rows))
    return found


def delegate_inputs(one: EthosUCall) -> list[MethodInput]:
    """The tensors that a delegate takes."""
    tensors, rows = [one.network.tensors[index] for index in one.call.inputs], _indexed_rows([one])
    return [_input(tensor.name, tensor.dtype, tensor.shape, rows) for tensor in tensors]


def _input(name: str, dtype: str, shape: tuple[int, ...], rows: int) -> MethodInput:
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
                if any(map(DmaRegion.INDEXED.of, sides)):
                    found.append(operation[Register.DMA0_IDX_MAX] + 1)
    return min(found, default=0)
