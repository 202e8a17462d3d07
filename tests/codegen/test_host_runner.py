"""The local runner: one memory, poisoned, checked, and honest about what goes wrong, also without sanitizers."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest

from fvp_runner import runner
from fvp_runner.base import RunOptions, RunTimeoutError
from fvp_runner.host import runner as host
from fvp_runner.host import shared_object
from fvp_runner.host.runner import LocalRunner
from fvp_runner.host.shadow import UnwrittenInputError
from fvp_runner.npu_model.errors import NpuModelError
from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.compiler import compile_model
from npu_memplan.ethosu.program.overlap import WebBuilder
from npu_memplan.frontend.tflite import lifted
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import build, extract_problem, lower, plan, read
from npu_memplan.problem import BufferKind
from npu_memplan.report.files import write_artifact
from npu_memplan.request import request
from npu_memplan.stages import Planned
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from npu_memplan.verify import constraints
from tests.extract.test_accesses import joined_by_two_calls
from tests.pipeline.test_broken_plan import on_top
from tests.support.inputs import load_inputs
from tests.support.plain_artifacts import plain_artifact
from tests.support.plain_artifacts import write as write_plain
from tests.support.saving import save
from tests.support.tflite_builder import ModelBuilder


def _inputs(folder, seed=3):
    return load_inputs(Artifact.load(folder), [f"random:{seed}"])


def test_host_scratch_is_planned(digits):
    problem = Artifact.load(digits("SOFTMAX")).problem
    scratch = [b for b in problem.buffers if b.kind.value == "host_scratch"]
    assert [b.size_bytes for b in scratch] == [40]


def test_pools_are_poisoned_and_come_back(digits):
    folder = digits("SOFTMAX")
    ran = host.LocalRunner(folder, runner.RunOptions(pools_after=True)).run(_inputs(folder))
    artifact = Artifact.load(folder)
    assert ran.pools_after is not None
    assert [len(p) for p in ran.pools_after] == [artifact.pool_bytes(p.name) for p in artifact.problem.pools]
    (slot,) = artifact.outputs
    end = slot.offset_bytes + slot.size_bytes
    np.testing.assert_array_equal(
        ran.pools_after[0][slot.offset_bytes : end].view(slot.dtype).reshape(slot.shape), ran.outputs[0]
    )
    assert host.LocalRunner(folder, runner.RunOptions(pools_after=False)).run(_inputs(folder)).pools_after is None


def test_outputs_do_not_depend_on_the_poison(digits, monkeypatch):
    folder = digits()
    first = host.LocalRunner(folder).run(_inputs(folder))
    monkeypatch.setattr(host, "POISON", 0x3C)
    second = host.LocalRunner(folder).run(_inputs(folder))
    np.testing.assert_array_equal(first.outputs[0], second.outputs[0])


def test_two_models_in_one_process(digits):
    one, two = host.LocalRunner(digits()), host.LocalRunner(digits("SOFTMAX"))
    inputs = _inputs(digits())
    np.testing.assert_array_equal(one.run(inputs).outputs[0], two.run(inputs).outputs[0])
    np.testing.assert_array_equal(one.run(inputs).outputs[0], two.run(inputs).outputs[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a: [], "has 1 input, 0 were given"),
        (lambda a: [a[0].astype(np.int16)], "is int8.*but int16.*was given"),
        (lambda a: [a[0][:, :-1]], "is int8.*was given"),
    ],
)
def test_wrong_inputs(digits, change, message):
    with pytest.raises(runner.RunnerError, match=message):
        host.LocalRunner(digits()).run(change(_inputs(digits())))


def test_time_limit(digits):
    with pytest.raises(RunTimeoutError, match="took longer than 1e-09 s"):
        host.LocalRunner(digits(), runner.RunOptions(timeout_s=1e-9)).run(_inputs(digits()))


HANG = "int32_t toy_step(uint8_t *const pools[]) { for (;;) ((volatile uint8_t *)pools[0])[63]++; return 0; }\n"


@pytest.fixture
def hanging(tmp_path):
    slot = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
    write_plain(plain_artifact("toy", "ethos-u55-128", 64, (slot,), (slot,)), tmp_path / "toy", HANG)
    return tmp_path / "toy"


def test_c_that_hangs_is_given_up(hanging):
    runs = host.LocalRunner(hanging, runner.RunOptions(timeout_s=0.3))
    values = [np.zeros((1, 16), np.int8)]
    with pytest.raises(RunTimeoutError, match=r"toy on local took longer than 0\.3 s and was given up"):
        runs.run(values)
    with pytest.raises(runner.RunnerError, match="the last run of toy has not ended yet; create another runner"):
        runs.run(values)


def test_a_c_compiler_that_hangs_is_ended(hanging, tmp_path, monkeypatch):
    script = tmp_path / "cc"
    script.write_text("#!/bin/sh\nexec sleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("CC", str(script))
    with pytest.raises(runner.RunnerError, match=r"cc took longer than 0\.2 s for the C of"):
        shared_object.build_library(hanging, Artifact.load(hanging), timeout_s=0.2)


@pytest.mark.parametrize(("how", "words"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_c_that_hangs_does_not_keep_the_command(hanging, how, words):
    command = [sys.executable, "-m", "npu_memplan", "run", str(hanging), "--on", "local", "--timeout", "60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as ours:
        first = ours.stderr.readline()
        time.sleep(1.5)  # it may still compile; then it is ended there
        ours.send_signal(how)
        said = ours.communicate()[1]
    assert (first.split()[0], said.split()) == ("compile", [words])
    assert ours.returncode in (128 + how, -how)


def test_no_compiler(digits, monkeypatch):
    folder = digits()  # compiled before anything is hidden
    monkeypatch.setattr("npu_memplan.c_compiler.shutil.which", lambda name: None)
    monkeypatch.setattr("npu_memplan.c_compiler.importlib.util.find_spec", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    assert "no C compiler found; set CC" in (host.missing(runner.RunOptions()) or "")
    with pytest.raises(runner.RunnerMissingError, match="no C compiler found"):
        host.LocalRunner(folder)


@pytest.mark.edited_c
def test_sources_that_do_not_compile(digits, tmp_path):
    folder = tmp_path / "bad"
    shutil.copytree(digits(), folder)
    (folder / "src" / "digits.c").write_text("int digits_run(void) { return missing; }\n")
    with pytest.raises(runner.RunnerError, match=r"could not compile the C of [^\n]*\n(.|\n)*missing"):
        host.LocalRunner(folder)
    (folder / "src" / "digits_npu.c").unlink()
    with pytest.raises(runner.RunnerError, match=r"lacks digits_npu\.c in .*; compile the model again"):
        host.LocalRunner(folder)


def test_reads_of_what_nobody_wrote_are_found(digits, tmp_path):
    folder = tmp_path / "skipped"
    shutil.copytree(digits("SOFTMAX"), folder)
    source = folder / "src" / "digits.c"
    text = source.read_text()
    first = text.index("  status = ")
    source.write_text(text[:first] + text[text.index("  status = ", first + 5) :])  # the first step is left out
    with pytest.raises((runner.RunnerError, NpuModelError)):
        host.LocalRunner(folder).run(_inputs(folder))


def test_states_start_at_their_zero_point_and_are_kept(shared_model, tmp_path):
    model = shared_model("keyword_scrambled_8bit")
    folder = tmp_path / "keyword"
    compile_model(model, CompileOptions(accelerator="ethos-u55-128", objective="bytes", effort="quick"), folder)
    runs = host.LocalRunner(folder)
    inputs = [_inputs(folder, seed) for seed in range(4)]
    from tflite_micro.python.tflite_micro import runtime

    interpreter = runtime.Interpreter.from_bytes(model.read_bytes(), arena_size=1 << 20)
    runs.reset()
    for values in inputs:
        interpreter.set_input(values[0], 0)
        interpreter.invoke()
        np.testing.assert_array_equal(runs.run_next(values).outputs[0], np.array(interpreter.get_output(0)))
    np.testing.assert_array_equal(runs.run(inputs[0]).outputs[0], runs.run(inputs[0]).outputs[0])


PLAIN = RunOptions(verify=False, sanitize=False)
SHAPE = (1, 4, 4, 8)


def two_sums() -> bytes:
    """Two sums with a constant, added; the first one is a result, too."""
    graph = ModelBuilder()
    data, first, second, both = (graph.tensor(SHAPE, "int8", 0.05, 3) for _ in range(4))
    for k, made in enumerate((first, second)):
        graph.operator("ADD", [data, graph.constant(np.full(SHAPE, 5 + k, np.int8), 0.1, 1)], [made], "AddOptions")
    graph.operator("MUL", [first, second], [both], "MulOptions")
    return graph.made([data], [both, first]).finish()


def planned_sums(folder: Path) -> Planned:
    source = save(folder / "sums.tflite", two_sums())
    return plan(extract_problem(lower(read(source, request(CompileOptions("none"))))))


def run(folder: Path) -> None:
    runner = LocalRunner(folder, PLAIN)
    runner.run(load_inputs(runner.artifact, ["random:3"]))


@pytest.mark.parametrize(
    ("moved", "upon", "message"),
    [
        (1, 0, r"host operator mul reads 128 of 128 bytes of buffer \w+ that buffer \w+ wrote last; the first is its "
               r"byte 0, byte \d+ of pool sram; check plan\.json with npu-memplan verify"),
        (2, 0, r"the caller reads 128 of 128 bytes of buffer \w+ that buffer \w+ wrote last"),
    ],
    ids=["an operator's input", "a result"],
)  # fmt: skip
def test_bytes_that_another_buffer_took_are_noticed(moved, upon, message, tmp_path):
    planned = planned_sums(tmp_path)
    problem = planned.extracted.problem
    made = sorted((b for b in problem.buffers if b.kind is not BufferKind.INPUT), key=lambda b: b.lifetimes[0].first)
    broken = on_top(problem, planned.plan, made[upon], made[moved])
    for name, answer in (("right", planned.plan), ("broken", broken)):
        (tmp_path / name).mkdir()
        write_artifact(build(replace(planned, plan=answer)), tmp_path / name)
    run(tmp_path / "right")
    with pytest.raises(UnwrittenInputError, match=message):
        run(tmp_path / "broken")


def test_a_slice_that_no_npu_call_writes_is_noticed(tmp_path, monkeypatch):
    """A part of a tensor is in another buffer; earlier writes of the same bytes count for nothing."""
    network = save(tmp_path / "vela.tflite", compile_tflite(joined_by_two_calls(), VelaOptions()).network)
    compile_model(network, CompileOptions(objective="bytes", effort="quick"), tmp_path / "right")
    run(tmp_path / "right")
    monkeypatch.setattr(lifted, "with_cross_call_tensors", lambda network: network)
    monkeypatch.setattr(WebBuilder, "read", partialmethod(WebBuilder.read, partly=True))  # lifting refuses it otherwise
    monkeypatch.setattr(constraints, "stale_reads", lambda problem, placed: ())
    compile_model(network, CompileOptions(objective="bytes", effort="quick"), tmp_path / "wrong")
    with pytest.raises(
        UnwrittenInputError, match=r"the caller reads 288 of 576 bytes of buffer \w+ that buffer \w+ wrote last"
    ):
        run(tmp_path / "wrong")
