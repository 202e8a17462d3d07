"""`link --emit vela-tflite`: TFLite Micro's interpreters with one arena, in a random order of runs."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.references.kernels import TFLiteReference
from npu_memplan.models.tflite import read_network
from tests.support.entry import invoke
from tests.support.real_data import real_model
from tests.support.tflm_npu import MicroWithNpu, SharedArena
from tests.vela_tflite.test_emit import random_inputs

pytest.importorskip("tflite_micro")
NAMES = ("kws_ref_model", "micro_speech_quantized")


def call(*arguments: object) -> tuple[int, str]:
    made = invoke(*arguments, code=None)
    return made.exit_code, made.output if made.exception is None or made.output else str(made.exception)


def test_interpreters_share_the_largest_planned_part(tmp_path: Path) -> None:
    models = [real_model(name) for name in NAMES]
    options = ("--options", "--npu-compiler tvm --objective bytes")
    options = (*options, "--resident", "all", "--json")
    code, said = call("link", *models, "--emit", "vela-tflite", *options, "-o", tmp_path / "files")
    assert code == 0, said
    needs = json.loads(said)
    assert needs == json.loads((tmp_path / "files" / "arena.json").read_text())
    planned = [network["arena_bytes"] for network in needs["networks"]]
    assert (needs["planned_bytes"], needs["apart_bytes"]) == (max(planned), sum(planned))
    assert needs["resident_bytes"] == sum(network["resident_bytes"] for network in needs["networks"]) > 0
    assert (tmp_path / "files" / f"{NAMES[0]}.S").exists()
    contents = [(tmp_path / "files" / f"{name}.tflite").read_bytes() for name in NAMES]
    assert [MicroWithNpu(content).head_bytes for content in contents] == planned
    shared = SharedArena(contents)
    assert shared.bytes_of("head") == needs["planned_bytes"]
    assert shared.bytes_of("tail") > SharedArena(contents[:1]).bytes_of("tail")
    networks = [read_network(content, name) for content, name in zip(contents, NAMES, strict=True)]
    references = [TFLiteReference(model.read_bytes(), model.name) for model in models]
    order = random.Random(3)
    for seed in range(8):
        which = order.randrange(2) if seed > 1 else seed
        inputs = random_inputs(networks[which], seed)
        found = shared.run(which, inputs, len(networks[which].outputs))
        for ours, theirs in zip(found, references[which].run(inputs), strict=True):
            assert np.array_equal(ours, np.frombuffer(theirs.tobytes(), np.uint8))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--together", "a,b"), "--together"),
        (("--resident", "8KiB"), "would be of every network by itself"),
        (("--npu", "auto"), "--npu"),
    ],
)
def test_what_interpreters_do_not_have_is_refused(tmp_path: Path, options: tuple[str, ...], words: str) -> None:
    code, said = call("link", real_model(NAMES[1]), "--emit", "vela-tflite", *options, "-o", tmp_path / "files")
    assert code != 0
    assert words in said
    assert not (tmp_path / "files").exists()


def test_states_that_another_interpreter_would_overwrite_are_refused(tmp_path: Path) -> None:
    models = real_model("trained_lstm_int8"), real_model(NAMES[1])
    code, said = call("link", *models, "--emit", "vela-tflite", "--options", "--effort quick", "-o", tmp_path / "files")
    assert code != 0
    assert "which other interpreters overwrite" in said
