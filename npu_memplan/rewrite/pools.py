"""The pools of a planned function, and what a plan puts into them.

Invariant: a pool's constants are in it as bytes at their planned offsets; a read-only pool has
nothing else in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, tirx

from ..extract.devices import device_of, labels
from ..extract.program import Program
from ..extract.sizes import static_extent
from ..problem import BufferKind, Plan, Problem, used_bytes


@dataclass(frozen=True, slots=True)
class PoolSlot:
    """Bytes of a pool: index of the pool, offset in bytes (an int, or an expression of symbols).

    An offset that is an expression is a multiple of `unit` for all values of the symbols.
    """

    pool: int
    offset: Any
    unit: int = 1


@dataclass(frozen=True, slots=True)
class PlannedPool:
    """A pool as the module has it. `size` in bytes is what the plan uses: an int, or an expression of symbols.

    `constants` are (offset in bytes, content) in ascending order. `device` is the number of its virtual
    device and `vdevice` that device, None in a module without any.
    """

    name: str
    size: Any
    read_only: bool = False
    constants: tuple[tuple[int, bytes], ...] = ()
    device: int = 0
    vdevice: Any = None

    @property
    def extent(self) -> Any:
        """Its length as a tensor, at least 1: an int, or an expression of symbols."""
        known = static_extent(self.size)
        return self.size if known is None else max(1, known)

    @property
    def type(self) -> Any:
        """The type of its Relax value."""
        return relax.TensorType((self.extent,), "uint8", self.vdevice)

    def image(self) -> npt.NDArray[np.uint8]:
        """The bytes of the whole pool, 0 between constants."""
        image = np.zeros(int(self.extent), np.uint8)
        for offset, content in self.constants:
            image[offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        return image


def pools_of(problem: Problem, plan: Plan, program: Program) -> tuple[list[PlannedPool], dict[str, PoolSlot]]:
    """The pools in the problem's order, and where each buffer lies."""
    heights = used_bytes(problem, plan.placements)
    index = {pool.name: i for i, pool in enumerate(problem.pools)}
    slots = {p.buffer: PoolSlot(index[p.pool], p.offset_bytes) for p in plan.placements}
    constants: list[list[tuple[int, bytes]]] = [[] for _ in problem.pools]
    for tensor in program.tensors:
        if tensor.kind in (BufferKind.CONSTANT, BufferKind.RESIDENT):
            slot = slots[tensor.name]
            constants[slot.pool].append((slot.offset, tensor.content))
    found = []
    devices = labels(program.vdevices)
    for pool, content in zip(problem.pools, constants, strict=True):
        device = device_of(pool, devices)
        virtual = program.vdevices[device] if devices else None
        size = heights[pool.name]
        found.append(PlannedPool(pool.name, size, pool.read_only, tuple(sorted(content)), device, virtual))
    return found, slots


def holds_boundary(program: Program, slots: Mapping[str, PoolSlot]) -> bool:
    """Whether all inputs and results of a program are in pools, which its caller supplies then."""
    boundary = [*program.inputs, *(view.tensor for view in program.results)]
    return bool(boundary) and all(t.name in slots for t in boundary)


def initialiser(pool: PlannedPool) -> tuple[Any, npt.NDArray[np.uint8]]:
    """A PrimFunc (image, pool) that copies a writable pool's constants to their places, and the image.

    The image has the constants only, one behind the other.
    """
    image = np.frombuffer(b"".join(content for _, content in pool.constants), np.uint8)
    source = tirx.decl_buffer((max(1, image.size),), "uint8", name="image", layout=None)
    target = tirx.decl_buffer((int(pool.extent),), "uint8", name="pool", layout=None)
    copies, start = [], 0
    for offset, content in pool.constants:
        i = tirx.Var("i", "int64")
        store = tirx.BufferStore(target, tirx.BufferLoad(source, [i + start]), [i + offset])
        copies.append(tirx.For(i, 0, len(content), tirx.ForKind.SERIAL, store))
        start += len(content)
    body = tirx.SeqStmt(copies) if len(copies) != 1 else copies[0]
    return tirx.PrimFunc([source, target], body).with_attr({"s_tir": True, "tirx.noalias": True}), image


def fill(pool: PlannedPool, byte: int) -> Any:
    """A PrimFunc that fills a pool with `byte`."""
    known = static_extent(pool.extent)
    extent: Any = tirx.Var("size", "int64") if known is None else tirx.IntImm("int64", known)
    target = tirx.decl_buffer((extent if known is None else known,), "uint8", name="pool", layout=None)
    i = tirx.Var("i", "int64")
    store = tirx.BufferStore(target, tirx.IntImm("uint8", byte), [i])
    body = tirx.For(i, 0, extent, tirx.ForKind.SERIAL, store)
    return tirx.PrimFunc([target], body).with_attr({"s_tir": True, "tirx.noalias": True})
