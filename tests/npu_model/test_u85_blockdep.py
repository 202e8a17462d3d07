"""BLOCKDEP on Ethos-U85 against an oracle that enumerates bytes: the check, the compiler's value, and Vela's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from fvp_runner.npu_model.checks import hazards as check
from fvp_runner.npu_model.errors import BlockDependencyError
from fvp_runner.npu_model.spec.stream import DecodedStream
from npu_memplan.ethosu.arch import Architecture
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.program.hazards import largest_blockdep
from npu_memplan.ethosu.stream.decode import Marker, Operation, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.models.tflite import read_network
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.block_order import MOST, largest, pairs
from tests.support.real_data import REPOSITORY

# Name -> (kernels or chains that follow another, those that must wait for its blocks, those where Vela waits longer).
STREAMS = {
    "kws_ref_model": (129, 120, 1),
    "pretrainedResnet_quant": (126, 118, 0),
    "str_ww_ref_model": (123, 108, 2),
    "micro_speech_quantized": (80, 71, 5),
}


def is_clean(npu: Architecture, before: Sequence[Operation], after: Sequence[Operation], value: int) -> bool:
    """What the model says of the two with this BLOCKDEP."""
    first = after[0].with_registers({Register.BLOCKDEP: value})
    stream = encode([*before, first, *after[1:], Marker(Op.STOP, 0xFFFF)])
    try:
        return check.check_blockdep(DecodedStream.decode_words(stream, npu)) == ()
    except BlockDependencyError:
        return False


@pytest.mark.parametrize("name", STREAMS)
def test_raising_any_blockdep_beyond_what_is_safe_is_reported(name: str) -> None:
    """20 streams in all: the largest safe value is never an alarm, one more always is, and Vela never goes beyond."""
    found: Counter[str] = Counter()
    model = (REPOSITORY / "tests" / "models" / f"{name}.tflite").read_bytes()
    for npu in ETHOS_U85:
        (call,) = read_network(compile_tflite(model, VelaOptions(npu.name), name).network).npu_calls
        for before, after, _ in pairs(decode(call.words, npu.language)):
            safe, vela = largest(before, after, npu.macs), after[0][Register.BLOCKDEP]
            assert vela <= safe
            assert is_clean(npu, before, after, safe)
            assert safe == MOST or not is_clean(npu, before, after, safe + 1)
            assert vela <= min(largest_blockdep(before[-1], one, npu) for one in after) <= safe
            found.update(all=1, waits=safe < MOST, longer=vela < safe)
    assert (found["all"], found["waits"], found["longer"]) == STREAMS[name]
