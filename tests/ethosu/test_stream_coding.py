"""Words to commands and back, for any commands and for damaged words."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import Language
from npu_memplan.ethosu.stream import fields
from npu_memplan.ethosu.stream.decode import Command, Marker, Operation, StreamError, Wait, decode
from npu_memplan.ethosu.stream.encode import chained_maps, encode
from npu_memplan.ethosu.stream.fields import EncodeError, Field
from npu_memplan.ethosu.stream.isa import REGISTERS, Op, Register

GOLDEN = Path(__file__).parents[1] / "golden"
STOP = Marker(Op.STOP, 0xFFFF)
LANGUAGES = tuple(Language)
_WORK = (Op.CONV, Op.DEPTHWISE, Op.POOL, Op.ELEMENTWISE, Op.DMA_START)


@st.composite
def _registers(draw: Any, language: Language) -> dict[Register, int]:
    known = sorted(REGISTERS[language].values())
    chosen = draw(st.lists(st.sampled_from(known), max_size=8, unique=True))
    return {r: draw(st.integers(0, (1 << (48 if r.has_payload else 16)) - 1)) for r in chosen}


_waits = st.builds(Wait, st.sampled_from((Op.DMA_WAIT, Op.KERNEL_WAIT)), st.integers(0, 3))
_markers = st.builds(Marker, st.just(Op.IRQ), st.integers(0, 9))
_branches = st.builds(Marker, st.just(Op.BRANCH), st.integers(0, 1), st.just(-1), st.integers(0, 0xFFFFFFFF))


@st.composite
def _streams(draw: Any) -> tuple[Language, list[Command]]:
    language = draw(st.sampled_from(LANGUAGES))
    works = _WORK if language is Language.U55_U65 else (*_WORK, Op.RESIZE)
    made = st.builds(
        Operation, st.sampled_from(works), st.integers(0, 0xFFFF), _registers(language), language=st.just(language)
    )
    kinds = [made, _waits, _markers] + ([_branches] if language is Language.U85 else [])
    return language, draw(st.lists(st.one_of(kinds), max_size=12))


def _plain(commands: list[Command] | tuple[Command, ...]) -> list[Any]:
    """Commands with accumulated registers and without stream offsets."""
    state: dict[Register, int] = {}
    found: list[Any] = []
    for c in commands:
        if isinstance(c, Operation):
            state = {**state, **c.registers}
            found.append((c.op, c.parameter, state))
        else:
            found.append((c.op, c.outstanding if isinstance(c, Wait) else (c.parameter, c.target)))
    return found


@given(_streams())
def test_what_is_encoded_is_decoded(stream: tuple[Language, list[Command]]) -> None:
    language, commands = stream
    words = encode([*commands, STOP])
    assert _plain(decode(words, language)) == _plain([*commands, STOP])


def _complete(commands: list[Command]) -> list[Command]:
    """Operations with all registers that are set when they start, as a stream has them."""
    state: dict[Register, int] = {}
    found: list[Command] = []
    for command in commands:
        if isinstance(command, Operation):
            state = {**state, **command.registers}
            command = command.with_registers(state)
        found.append(command)
    return found


_CHAINED = Operation(Op.CONV, 0, {Register.OFM_PRECISION: 1 << 15}, language=Language.U85)


@given(_streams())
@example((Language.U85, [_CHAINED, Operation(Op.CONV, 0, {}, language=Language.U85)]))
def test_encoding_is_a_fixed_point_and_repeatable(stream: tuple[Language, list[Command]]) -> None:
    """Around chains maps are written anew, so an operation has to come with the registers that it inherits."""
    language, commands = stream[0], _complete(stream[1])
    words = encode([*commands, STOP])
    assert encode(decode(words, language)) == words == encode([*commands, STOP])


@pytest.mark.parametrize(
    ("file", "language"),
    [("u55_u65_streams_of_vela_5_0.npz", Language.U55_U65), ("u85_streams_of_vela_5_0.npz", Language.U85)],
)
def test_streams_have_the_words_of_vela(file: str, language: Language) -> None:
    """Neither more nor fewer registers are written, around chains as well: only the order of words is our own."""
    chains = 0
    for stream in np.load(GOLDEN / file).values():
        words = tuple(map(int, stream))
        commands = decode(words, language)
        chains += sum(bool(chained_maps(c)) for c in commands if isinstance(c, Operation))
        assert sorted(encode(commands)) == sorted(words)
    assert bool(chains) == (language is Language.U85)


def test_a_second_input_that_a_kernel_does_not_read_is_not_written_anew() -> None:
    """Registers of IFM2 stay in the NPU's state behind a chain: a CONV reads them only as a matrix or as its sums."""
    left = dict.fromkeys((*fields.IFM.all, *fields.IFM2.all), 0) | {Register.OFM_PRECISION: 0, Register.ACC_FORMAT: 0}
    left[Register.IFM2_PRECISION] = 2 << 14
    plain = Operation(Op.CONV, 0, left, language=Language.U85)
    assert not chained_maps(plain)
    assert len(encode([plain, plain])) == len(encode([plain])) + 1
    reads = (
        plain.with_registers(left | {Register.ACC_FORMAT: 2 << 4}),
        Operation(Op.CONV, 1, left, language=Language.U85),
    )
    for operation in reads:
        assert chained_maps(operation) == [fields.IFM2]
        assert len(encode([operation, operation])) > len(encode([operation])) + 1


def test_an_unchanged_register_is_written_once() -> None:
    op = Operation(Op.POOL, 1, {Register.IFM_REGION: 1, Register.IFM_BASE0: 0x1_0000_0010})
    assert len(encode([op, op, STOP])) == 1 + 2 + 1 + 1 + 1
    assert encode([op])[:2] == (0x010F | 1 << 16, 0x4000 | 1 << 16) or encode([op])[:1] == (0x010F | 1 << 16,)


@given(st.lists(st.integers(0, 0xFFFFFFFF), max_size=40))
@settings(max_examples=300)
def test_any_words_decode_or_say_why_not(words: list[int]) -> None:
    for language in LANGUAGES:
        try:
            commands = decode(words, language)
        except StreamError as error:
            assert str(error)  # noqa: PT017 - nothing else may be raised
        else:
            assert commands[-1].op is Op.STOP


def test_every_truncation_of_a_real_stream_is_an_error(compiled: Callable[..., Any]) -> None:
    words = compiled("digits").npu_calls[0].words
    for length in range(0, len(words) - 1, 7):
        with pytest.raises(StreamError, match=r"truncated|missing|no STOP"):
            decode(words[:length])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([0x8000], "payload mode 2"),
        ([0x3FF], "unknown command 0x3ff .mode 0. at stream offset 0x0"),
        ([0x43FF, 0], "unknown register 0x3ff"),
        ([0x4000], "ends inside IFM_BASE0 at stream offset 0x0"),
        ([0xFFFF0000, 1], "goes on after its STOP"),
    ],
)
def test_damage_is_named_with_its_offset(words: list[int], message: str) -> None:
    with pytest.raises(StreamError, match=message):
        decode(words)


@pytest.mark.parametrize(
    ("register", "value", "bits"),
    [(Register.IFM_REGION, 1 << 16, 16), (Register.IFM_BASE0, 1 << 48, 48), (Register.OFM_ZERO_POINT, -1, 16)],
)
def test_values_that_do_not_fit_are_refused(register: Register, value: int, bits: int) -> None:
    with pytest.raises(EncodeError, match=f"{register.name} = {value} does not fit its {bits} bits"):
        encode([Operation(Op.POOL, 0, {register: value})])


def test_a_parameter_that_does_not_fit_is_refused() -> None:
    with pytest.raises(NpuMemplanError, match="parameter 65536 of POOL"):
        encode([Operation(Op.POOL, 1 << 16, {})])


@pytest.mark.parametrize("core", ["regor", "legacy"])
def test_a_real_stream_keeps_its_words(compiled: Callable[..., Any], core: str) -> None:
    """Both compilers write a register only when it changes; so do we, in another order."""
    for call in compiled("digits", core=core).npu_calls:
        again = encode(decode(call.words))
        assert _plain(decode(again)) == _plain(decode(call.words))
        assert len(again) <= len(call.words)


# -- Bit fields: what is packed comes back, neighbours keep apart, and groups cover the registers they speak of


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
