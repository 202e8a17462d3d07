"""The host's C under the sanitizers: an operator touches its own bytes, reads what is written, is defined."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from fvp_runner.base import RunnerMissingError, RunOptions
from fvp_runner.host.instrumented import called_steps
from fvp_runner.host.runner import LocalRunner
from fvp_runner.host.sanitizer import SanitizerError
from npu_memplan.artifact.model import Call, TensorSlot
from npu_memplan.cli import main
from npu_memplan.problem import Agent, Buffer, BufferKind, Lifetime, Placement
from tests.support.plain_artifacts import plain_artifact, write

IN = TensorSlot("in", "int8", (1, 17), "sram", 0, 17, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)
OLD = Buffer("old", 16, (Lifetime(0, 1),))  # lies at 48, and is of no concern to the operator
VALUES = np.arange(-8, 9, dtype=np.int8).reshape(1, 17)
POOL_BYTES = 80  # in, a gap of 15, out, old, scratch
C = """\
#include <stdint.h>
#include <string.h>
static NPU_MEMPLAN_CONSTANT int8_t table[3] = {1, 2, 3};
static int at(const int8_t *p, int i);
static int at(const int8_t *p, int i) { return p[i]; }
int32_t toy_step(uint8_t *const pools[]) {
  int8_t *in = (int8_t *)pools[0], *out = (int8_t *)pools[0] + 32, *scratch = (int8_t *)pools[0] + 64;
  int n = in[8]; /* 0 */
  for (int i = 0; i < 16; ++i) out[i] = (int8_t)(in[i] + at(table, i % 3));
  STATEMENT
  (void)scratch;
  (void)n;
  return 0;
}
"""

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
BEHIND = "reads 1 byte at byte 17 of pool sram, which it may not: it is of no live buffer; 1 byte behind its own in"
FAULTS: dict[str, tuple[str, str | tuple[str, str]]] = {
    "a gap": ("out[0] = in[17 + n];", BEHIND),
    "before the output": ("out[-1 + n] = 0;", "writes 1 byte at byte 31 of pool sram, which it may not"),
    "an input is not written": ("in[n] = 0;", "writes 1 byte at byte 0 of pool sram, which it may not"),
    "another's": ("out[0] = out[16 + n];", "it is byte 0 of old; 1 byte behind its own out"),
    "before the pool": ("out[0] = in[-1 + n];", "at byte -1 of pool sram"),
    "far away": ("in[1000000 * (n + 1)] = 0;", "writes 1 byte at"),
    "a wide one": ("out[0] = (int8_t)*(const int32_t *)(const void *)(in + 16 + n);", "reads 4 bytes at byte 17"),
    "a copy": ("memcpy(out, in + 4 + n, 16);", "reads 16 bytes at byte 17 of pool sram"),
    "a fill": ("memset(out + n, 0, 17);", "writes 17 bytes at byte 48 of pool sram"),
    "unwritten scratch": ("out[0] = scratch[3 + n];", "reads 1 byte at byte 67 of pool sram that was never written"),
    "a constant": ("out[0] = (int8_t)at(table, 3 + n);", ("behind constant table", "to too small an object")),
    "a sum": ("n = 2147483647 + in[9]; out[0] = (int8_t)(n >> 16);", "a signed sum overflows, which C leaves"),
    "a product": ("n = 2147483647 * in[15]; out[0] = (int8_t)(n >> 16);", "a signed product overflows"),
    "a shift": ("out[0] = (int8_t)(1 << (in[16] + 24));", "a shift is negative, too far"),
    "a division": ("out[0] = (int8_t)(5 / n);", "a division is by zero"),
    "a conversion": ("out[0] = (int8_t)(int32_t)((float)in[16] * 1e9f);", "a floating-point number is out of"),
    "an alignment": ("out[0] = (int8_t)*(const int32_t *)(const void *)(in + 1 + n);", "misaligned"),
    "a local array": ("int8_t a[4] = {0}; a[in[9]] = 1; out[0] = a[in[15] - n];", "an index is outside of its array"),
}  # fmt: skip


def toy(folder: Path, statement: str) -> Path:
    artifact = plain_artifact("toy", "none", POOL_BYTES, (IN,), (OUT,))
    scratch = Buffer("scratch", 16, (Lifetime(0, 1),), kind=BufferKind.HOST_SCRATCH)
    buffers = (Buffer("in", 17, (Lifetime(0, 1),)), Buffer("out", 16, (Lifetime(0, 1),)), OLD, scratch)
    places = tuple(Placement(b.name, "sram", at) for b, at in zip(buffers, (0, 32, 48, 64), strict=True))
    artifact = replace(
        artifact,
        problem=replace(artifact.problem, buffers=buffers),
        plan=replace(artifact.plan, placements=places),
        calls=(Call("toy_step", Agent.HOST, ("in",), ("out",), (0, 1)),),
    )
    write(artifact, folder, C.replace("STATEMENT", statement), on_host=True)
    return folder


@pytest.mark.edited_c
@pytest.mark.parametrize("name", COMPILERS)
def test_what_is_right_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", name)
    statement = "memset(scratch, 1, 16); out[0] = (int8_t)(scratch[15] + in[16]);"
    runner = LocalRunner(toy(tmp_path / "toy", statement), RunOptions(sanitize=True))
    for _ in range(2):
        assert runner.run([VALUES]).outputs[0].reshape(-1).tolist() == [9, *(i - 8 + 1 + i % 3 for i in range(1, 16))]


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], LocalRunner]:
    """The runner of a program that a compiler has made: an element of the input, `in[7]`, chooses its fault."""
    statement = "switch (in[7]) {\n"
    for number, (text, _) in enumerate(FAULTS.values()):
        statement += f"  case {number}: {{ {text} break; }}\n"

    @cache
    def runner(compiler: str) -> LocalRunner:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CC", compiler)
            folder = toy(tmp_path_factory.mktemp("faulty") / "toy", statement + "  default: break;\n  }")
            return LocalRunner(folder, RunOptions(sanitize=True))

    return runner


@pytest.mark.edited_c
@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_named(fault: str, name: str, faulty: Callable[[str], LocalRunner]) -> None:
    words = FAULTS[fault][1]
    values = VALUES.copy()
    values[0, 7] = list(FAULTS).index(fault)
    runner = faulty(name)
    for _ in range(2):  # a runner is good for another run
        with pytest.raises(SanitizerError) as caught:
            runner.run([values])
        assert str(caught.value).startswith("host operator toy_step (step 0)")
        assert any(one in str(caught.value) for one in ([words] if isinstance(words, str) else words))


@pytest.mark.edited_c
def test_the_checks_are_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are the same for every artifact, and take most of the time of a small one's build."""
    sanitized, lines = RunOptions(sanitize=True), []
    LocalRunner(toy(tmp_path / "first", ""), sanitized)
    run = subprocess.Popen.__init__
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda *a, **k: (lines.append(map(str, a[1])), run(*a, **k))[1])
    LocalRunner(toy(tmp_path / "second", ""), sanitized)
    words = [word for line in lines for word in line]
    assert any(word.endswith("sanitizer.o") for word in words)
    assert not any(word.endswith("sanitizer.c") for word in words)


@pytest.mark.edited_c
def test_the_command_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = toy(tmp_path / "toy", FAULTS["a gap"][0])
    monkeypatch.setattr("sys.argv", ["npu-memplan", "run", str(folder), "--sanitize"])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 1
    assert "npu-memplan: toy on local: host operator toy_step (step 0) reads 1 byte at byte" in capfd.readouterr().err


def test_a_compiler_without_sanitizers_is_named(digits, tmp_path, monkeypatch):
    refusing = tmp_path / "plain_cc"
    refusing.write_text('#!/bin/sh\ncase "$*" in *kernel-address*) exit 1;; esac\nexec gcc "$@"\n')
    refusing.chmod(0o755)
    monkeypatch.setenv("CC", str(refusing))
    with pytest.raises(
        RunnerMissingError, match="plain_cc has no -fsanitize=kernel-address,undefined, which --sanitize"
    ):
        LocalRunner(digits(), RunOptions(sanitize=True))
    assert LocalRunner(digits(), RunOptions(sanitize=False)).artifact.name == "digits"


def test_an_npu_writes_what_the_host_reads(digits):
    """Of a program with both: nothing is found in it."""
    runner = LocalRunner(digits("AVERAGE_POOL_2D", "SOFTMAX"), RunOptions(sanitize=True))
    image = np.zeros(runner.artifact.inputs[0].shape, np.int8)
    first, second = (runner.run([image]).outputs[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_calls_of_a_run_are_found():
    text = "int32_t m_reset(void) {\n  status = no(pools);\n}\nint32_t m_run(uint8_t *const pools[]) {\n"
    text += "  status = a(pools); /* NPU */\n  if (x) {\n    status = b(pools);\n  }\n}\n"
    assert called_steps(text, "m") == [(5, "a"), (7, "b")]
