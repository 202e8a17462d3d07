"""A layer is one record, and a record has all of its parts; adding one is docs/howto/add-npu-operator.md."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import pytest

import npu_memplan.ethosu.layers as layers
from npu_memplan.ethosu.layers import COMPOSITES, DESCRIBED, Composite, Record, register
from npu_memplan.ethosu.layers.elementwise import OfTwo
from npu_memplan.ethosu.layers.matrix import ProductSums, Weighted
from npu_memplan.ethosu.lower.emit import EmitContext
from npu_memplan.ethosu.lower.layer import Layer, Limits, StorageTraits
from npu_memplan.ethosu.lower.operands import LayerTensor
from npu_memplan.ethosu.reading.reader import Match, Reader, RecordError

MODULES = [module for module in vars(layers).values() if isinstance(module, ModuleType)]
RECORDS = [value for module in MODULES for value in vars(module).values() if isinstance(value, Record)]
WITHOUT = {Weighted, OfTwo, ProductSums}  # bases, and what only TOSA is read as


def descendants(kind: type[Layer]) -> Iterator[type[Layer]]:
    for child in kind.__subclasses__():
        yield child
        yield from descendants(child)


def test_every_layer_of_the_package_is_in_one_record() -> None:
    registered = [layer for record in RECORDS for layer in record.layers]
    ours = {layer.__qualname__ for layer in descendants(Layer) if layer.__module__.startswith(layers.__name__)}
    assert sorted(layer.__qualname__ for layer in registered) == sorted(ours - {b.__qualname__ for b in WITHOUT})


def test_every_composite_of_a_record_is_registered_once() -> None:
    kinds = [composite.kind for record in RECORDS for composite in record.composites]
    assert len(kinds) == len(set(kinds))
    registered = {**COMPOSITES, **DESCRIBED}
    assert set(kinds) == set(registered)
    assert all(registered[c.kind] is c for record in RECORDS for c in record.composites)


@dataclass(frozen=True, slots=True, eq=False)
class Whole(Layer):
    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits()

    def emit(self, context: EmitContext) -> None:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class WithoutEmitter(Layer):
    limits: ClassVar[Limits] = Limits()

    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits()


@dataclass(frozen=True, slots=True, eq=False)
class WithoutStorage(Layer):
    limits: ClassVar[Limits] = Limits()

    def emit(self, context: EmitContext) -> None:
        return None


@dataclass(frozen=True, slots=True, eq=False)
class WithoutLimits(Layer):
    def storage(self, tensors: Mapping[str, LayerTensor]) -> StorageTraits:
        return StorageTraits()

    def emit(self, context: EmitContext) -> None:
        return None


def patterns() -> Iterator[Any]:
    yield from ()


def parse(reader: Reader, root: Any) -> Match:
    raise AssertionError


WHOLE = Composite("whole", patterns, parse)
MISSING: Any = None


@pytest.mark.parametrize(
    "kinds, composites, lacks",
    [
        ((WithoutEmitter,), (WHOLE,), "emit of WithoutEmitter"),
        ((WithoutStorage,), (WHOLE,), "storage of WithoutStorage"),
        ((WithoutLimits,), (WHOLE,), "limits of WithoutLimits"),
        ((Whole,), (Composite("whole", MISSING, parse),), "patterns of whole"),
        ((Whole,), (Composite("whole", patterns, MISSING),), "parse of whole"),
        ((Whole,), (), "a composite"),
        ((), (WHOLE,), "a layer"),
        ((Whole, WithoutEmitter, WithoutLimits), (WHOLE,), "emit of WithoutEmitter, limits of WithoutLimits"),
    ],
)
def test_a_layer_that_lacks_a_part_has_no_record(
    kinds: tuple[type[Layer], ...], composites: tuple[Composite, ...], lacks: str
) -> None:
    with pytest.raises(RecordError) as refused:
        Record(kinds, composites)
    assert str(refused.value) == f"a record of a layer lacks {lacks}; see docs/howto/add-npu-operator.md"


def test_a_kind_of_composite_has_one_owner() -> None:
    record = Record((Whole,), (Composite("conv2d", patterns, parse),))
    with pytest.raises(RecordError, match=r"^the composite 'conv2d' is registered already; choose another name$"):
        register(record)


def test_layers_are_data_without_tvm_and_vela() -> None:
    code = f"import sys, {layers.__name__}; print([m for m in ('tvm', 'tvm_ffi', 'ethosu') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
