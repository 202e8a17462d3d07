"""Sizes on the command line."""

import pytest

from npu_memplan.sizes import SizeError, format_size, parse_named_size, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("98304", 98304),
        ("96KiB", 98304),
        ("96 kib", 98304),
        ("1.5MiB", 1572864),
        ("2kB", 2000),
        ("1GiB", 2**30),
    ],
)
def test_sizes_are_read_with_their_units(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "-1", "12 parsecs", "1e3", "0x10"])
def test_what_is_no_size_is_refused_with_examples(text: str) -> None:
    with pytest.raises(SizeError) as error:
        parse_size(text)
    assert str(error.value) == f"cannot read the size {text!r}; write bytes or a unit, e.g. 98304, 96KiB or 1.5MiB"


def test_a_fraction_of_a_byte_is_refused() -> None:
    with pytest.raises(SizeError) as error:
        parse_size("0.3KiB")
    assert str(error.value) == "the size '0.3KiB' is 307.2 bytes: not a whole number"


@pytest.mark.parametrize("text", ["9007199254740992", "9" * 400, "9000000GiB"])
def test_what_no_memory_has_is_refused(text: str) -> None:
    with pytest.raises(SizeError, match=r"is 9,007,199,254,740,992 bytes or more: no memory has as many"):
        parse_size(text)


def test_pools_are_named() -> None:
    assert parse_named_size("sram=96KiB") == ("sram", 98304)
    with pytest.raises(SizeError) as error:
        parse_named_size("96KiB")
    assert str(error.value) == "cannot read the pool '96KiB'; write NAME=SIZE, e.g. sram=96KiB"


@pytest.mark.parametrize(
    ("size", "text"), [(16, "16 bytes"), (16000, "15.62 KiB (16000 bytes)"), (2 * 1024**2, "2.00 MiB (2097152 bytes)")]
)
def test_bytes_stand_beside_kib(size: int, text: str) -> None:
    assert format_size(size) == text
