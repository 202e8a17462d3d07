"""Bit fields: what is packed comes back, neighbours keep apart, and groups cover the registers they speak of."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_memplan.ethosu.arch import Language
from npu_memplan.ethosu.stream import fields
from npu_memplan.ethosu.stream.fields import EncodeError, Field, KernelStride, decode_int16, encode_int16
from npu_memplan.ethosu.stream.isa import Op, Register

HOLDERS = [
    fields.InputPrecision,
    fields.OutputPrecision,
    fields.KernelStride,
    fields.Activation,
    fields.DmaRegion,
    fields.ScaleWord,
    fields.InputWord,
    fields.OutputWord,
    fields.ScaledWord,
    fields.AccumulatorWord,
    fields.TableWord,
    fields.WeightWord,
    fields.StepWord,
]


def fields_of(holder: type) -> dict[str, Field]:
    return {name: field for name in dir(holder) if isinstance(field := getattr(holder, name), Field)}


@pytest.mark.parametrize("holder", HOLDERS)
def test_fields_of_a_register_share_no_bit(holder: type) -> None:
    for (a, first), (b, second) in combinations(fields_of(holder).items(), 2):
        assert first.low + first.width <= second.low or second.low + second.width <= first.low, (a, b)


@pytest.mark.parametrize("holder", HOLDERS)
def test_a_field_holds_every_value_that_fits_and_refuses_the_next(holder: type) -> None:
    for field in fields_of(holder).values():
        top = (1 << field.width) - 1
        assert field.value_in(field.word_with(top)) == top
        assert field.value_in(~field.word_with(top)) == 0
        for value in (-1, top + 1):
            with pytest.raises(EncodeError, match=f"{value} does not fit a field of {field.width} bits"):
                field.word_with(value)


@given(st.integers(1, 16), st.integers(1, 16), st.integers(1, 2), st.integers(1, 2), st.booleans())
def test_a_kernel_stride_reads_back(y: int, x: int, dilation_y: int, dilation_x: int, part: bool) -> None:
    word = KernelStride.pack((y, x), (dilation_y, dilation_x), part)
    assert (KernelStride.stride_y(word), KernelStride.stride_x(word)) == (y, x)
    assert KernelStride.DILATION_Y.value_in(word) == dilation_y - 1
    assert KernelStride.DILATION_X.value_in(word) == dilation_x - 1
    assert KernelStride.PART_KERNEL_FIRST.value_in(word) == part


@pytest.mark.parametrize("value", [-0x8000, -1, 0, 0x7FFF])
def test_sixteen_bits_read_back(value: int) -> None:
    assert decode_int16(encode_int16(value)) == value


@pytest.mark.parametrize("value", [-0x8001, 0x10000])
def test_seventeen_bits_are_refused(value: int) -> None:
    with pytest.raises(EncodeError, match=f"{value} does not fit a register of 16 bits"):
        encode_int16(value)


def test_every_address_register_has_a_region_and_every_operation_its_registers() -> None:
    named = {r for r in Register if "BASE" in r.name}
    named |= {Register.DMA0_SRC, Register.DMA0_DST, Register.DMA0_IDX}
    assert named == fields.ADDRESS_REGISTERS
    assert {r for r in Register if r.name.endswith("REGION")} == fields.REGION_REGISTERS
    for language, known in fields.KNOWN.items():
        works = [op for op in Op if op.is_kernel or op is Op.DMA_START]
        works = [op for op in works if language is Language.U85 or op is not Op.RESIZE]
        assert frozenset().union(*(fields.registers_of(op, language) for op in works)) == known
    assert frozenset().union(*fields.KNOWN.values()) == frozenset(Register)
