"""Streams that decode but make no sense: every layer answers with a typed error or a result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.program.describe import describe
from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.overlap import find_overlaps
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.models.network import Network
from npu_memplan.vela.lift import lift_program


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_mutated_streams_never_raise_anything_else(compiled: Callable[..., Network], data: Any) -> None:
    network = compiled("digits")
    call = network.npu_calls[0]
    words = list(call.words)
    for _ in range(data.draw(st.integers(1, 4))):
        position = data.draw(st.integers(0, len(words) - 2))
        words[position] ^= 1 << data.draw(st.integers(0, 31))
    damaged = replace(call, payload=replace(call.payload, words=tuple(words)))
    for work in (
        lambda: find_overlaps(lift_program(network, damaged)),
        lambda: list(describe(words, call.accelerator)),
        lambda: schedule([c for c in decode(words) if isinstance(c, Operation)], call.accelerator),
    ):
        try:
            work()
        except NpuMemplanError as error:
            assert str(error)  # noqa: PT017
