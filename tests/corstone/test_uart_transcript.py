"""A transcript is believed only when everything in it agrees: each way of lying is refused."""

from __future__ import annotations

import random
import re
import zlib

import numpy as np
import pytest

from fvp_runner.base import FirmwareError
from fvp_runner.firmware_run import check_transcript, parse_transcript
from fvp_runner.guards import GuardError
from npu_memplan.artifact.model import TensorSlot
from tests.support.plain_artifacts import plain_artifact

OUTPUT = np.arange(-20, 20, dtype=np.int8).reshape(1, 40)
SECOND = np.array([[1.5, -2.0]], np.float32)


def artifact():  # type: ignore[no-untyped-def]
    return plain_artifact(
        "toy",
        "ethos-u55-256",
        1024,
        (TensorSlot("in", "int8", (1, 4), "sram", 0, 4, 1.0, 0),),
        (
            TensorSlot("out", "int8", (1, 40), "sram", 16, 40, 1.0, 0),
            TensorSlot("second", "float32", (1, 2), "sram", 64, 8, 0.0, 0),
        ),
    )


def good() -> str:
    """What the firmware prints, with a simulator's own lines around and between."""
    first, second = OUTPUT.tobytes(), SECOND.tobytes()
    return f"""telnetterminal0: Listening for serial connection on port 5000
NPU_MEMPLAN 1 model=toy board=corstone-300-u55
NPU id=10104001 config=00003008
RUN
Warning: a line of the simulator
CALLS 1
CYCLES 4711
BEATS 10 20 30 0
STATUS 0
OUTPUT 0 bytes=40 crc={zlib.crc32(first):08x}
DATA {first[:32].hex()}
DATA {first[32:].hex()}
OUTPUT 1 bytes=8 crc={zlib.crc32(second):08x}
DATA {second.hex()}
POOL 0 bytes=1024 crc=deadbeef
DIGEST {zlib.crc32(first + second):08x}
STACK used=1160 bytes=32768
NPU_MEMPLAN PASS
EXIT:00000000
EXITTHESIM
\x04
Info: /OSCI/SystemC: Simulation stopped by user.
"""


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_good_run_gives_its_outputs(newline: str) -> None:
    transcript = parse_transcript(good().replace("\n", newline).encode())
    first, second = check_transcript(transcript, artifact())
    np.testing.assert_array_equal(first, OUTPUT)
    np.testing.assert_array_equal(second, SECOND)
    assert (transcript.calls, transcript.cycles) == (1, 4711)
    assert transcript.beats == (10, 20, 30, 0)
    assert transcript.pool_rows == [(1024, 0xDEADBEEF)]
    assert transcript.stack == (1160, 32768)


@pytest.mark.parametrize(
    "pattern, new, reason",
    [
        (r"(?s).*", "", "nothing was printed"),
        (r"(?s)NPU_MEMPLAN 1.*", "", "first line never came"),
        (r"NPU_MEMPLAN PASS\n", "", "positive mark 0 times"),
        (r"NPU_MEMPLAN PASS\n", "NPU_MEMPLAN PASS\nNPU_MEMPLAN PASS\n", "positive mark 2 times"),
        (r"(?s)EXIT:.*", "", "ended early: the firmware's exit text never came"),
        (r"(?s)EXITTHESIM\n\x04.*", "", "ended early"),
        (r"EXIT:00000000", "EXIT:0000002a", "exited with code 0x2a"),
        (r"STATUS 0", "STATUS 7", "the program returned 7"),
        (r"model=toy", "model=other", "firmware is of model other"),
        (r"OUTPUT 1.*\n", "", "outputs have [40] bytes, the plan says [40, 8]"),
        (r"bytes=40", "bytes=41", "outputs have [41, 8] bytes"),
        (r"DATA eced", "DATA eced00", "output 0 arrived damaged: 41 of 40 bytes"),
        (r"DATA eced", "DATA eced.", "output 0 arrived damaged: 8 of 40 bytes"),
        (r"DATA eced", "DATA edec", "output 0 arrived damaged: 40 of 40 bytes"),
        (r"DIGEST ........\n", "", "the digest of the outputs is missing"),
        (r"DIGEST ........", "DIGEST 00000000", "the digest of the outputs is 00000000"),
        (r"RUN\n", "RUN\nERROR cpu fault: HardFault\n", "firmware reported an error\n  firmware: cpu fault: HardFault"),
        (r"NPU_MEMPLAN PASS", "NPU_MEMPLAN FAIL", "firmware reported an error"),
    ],
)
def test_each_lie_is_refused(pattern: str, new: str, reason: str) -> None:
    text, count = re.subn(pattern, new, good(), count=1)
    assert count == 1
    with pytest.raises(FirmwareError, match=re.escape(reason)):
        check_transcript(parse_transcript(text.encode()), artifact())


def test_the_model_of_the_npu_explains_an_error() -> None:
    text = good().replace("RUN\n", "RUN\nERROR npu 7 status=00010012: parse error\n")
    with pytest.raises(FirmwareError, match=r"(?s)firmware: npu 7 .*NPU model: word 3 is no command"):
        check_transcript(parse_transcript(text.encode()), artifact(), ["word 3 is no command"])


_ODD = (
    *(
        "9" * 5000,
        "-1",
        "",
        "x",
        "\x1b[2K",
        "\0",
        "\u00b2",
        "NPU_MEMPLAN PASS",
        "DATA ff",
        "STATUS -9",
        "\x04",
        "EXITTHESIM",
    ),
    *("GUARD 99 offset=0 bytes=1", "GUARD 0 offset=-4 bytes=2", "OUTPUT 0 bytes=40 crc=00000000"),
    "ERROR \x1b[31m",
    *(f"POOL 0 bytes={'9' * 5000} crc=00000000", f"BEATS {' '.join(['9' * 21] * 4)}"),
)


def damaged(rng: random.Random) -> bytes:
    lines = good().splitlines(keepends=True)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at, kind = rng.randrange(len(lines)), rng.randrange(6)
        if kind == 0 and len(lines) > 1:
            del lines[at]
        elif kind == 1:
            lines.insert(at, rng.choice(lines))
        elif kind == 2:
            lines.insert(at, rng.choice(_ODD) + "\n")
        elif kind == 3:
            words = lines[at].split(" ")
            words[rng.randrange(len(words))] = rng.choice(_ODD)
            lines[at] = " ".join(words)
        elif kind == 4:
            lines[at] = re.sub(r"\d+", lambda _: rng.choice((*_ODD[:3], "0", "18446744073709551616")), lines[at])
        else:
            rng.shuffle(lines)
    return "".join(lines).encode()


def test_a_damaged_transcript_proves_the_outputs_or_nothing() -> None:
    rng, right = random.Random(1), 0
    for _ in range(2000):
        try:
            outputs = check_transcript(parse_transcript(damaged(rng)), artifact())
        except (FirmwareError, GuardError):
            continue
        right += 1
        assert np.array_equal(outputs[0], OUTPUT)
        assert np.array_equal(outputs[1], SECOND)
    assert 100 < right < 1900
