"""Firmware on QEMU and Unicorn: right answers, and every injected fault told as what it is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.base import FirmwareError, RunnerMissingError, RunOptions, RunTimeoutError
from fvp_runner.emulators import device
from fvp_runner.emulators.device import pool_spans
from fvp_runner.emulators.gdb import GdbError
from fvp_runner.emulators.qemu import QemuError, QemuRunner
from fvp_runner.emulators.unicorn import CPU, UnicornRunner
from fvp_runner.firmware_build.build import build
from fvp_runner.runner import create
from npu_memplan.artifact.model import TensorSlot
from npu_memplan.codegen.c_text import c_array
from npu_memplan.models.tflite import read_network
from npu_memplan.models.vela import NpuCall
from npu_memplan.target_data import targets_folder
from npu_memplan.vela.compiler import VelaOptions, compile_tflite
from tests.support.plain_artifacts import plain_artifact, vela_artifact, write
from tests.support.real_data import Models
from tests.support.sabotage import Sabotage, SabotagedRegisters

pytestmark = [pytest.mark.qemu, pytest.mark.usefixtures("qemu", "unicorn_engine")]
RUNNERS = ("qemu", "unicorn")

IN = TensorSlot("in", "int8", (1, 16), "sram", 0, 16, 1.0, 0)
OUT = TensorSlot("out", "int8", (1, 16), "sram", 32, 16, 1.0, 0)


def start(name: str, directory: Path, **options: Any) -> Any:
    given = RunOptions(**{"timeout_s": 60.0, **options})
    if name == "qemu":
        return QemuRunner(build(directory, given), given)
    return UnicornRunner(build(directory, given, CPU), given)


def toy(directory: Path, step: str, accelerator: str = "ethos-u55-256", states: tuple[TensorSlot, ...] = ()) -> Path:
    artifact = replace(plain_artifact("toy", accelerator, 4096, (IN,), (OUT,)), states=states)
    write(artifact, directory, step)
    return directory


def random_inputs(artifact: Any) -> list[Any]:
    generator = np.random.default_rng(7)
    return [generator.integers(-128, 128, s.shape).astype(s.dtype) for s in artifact.inputs]


@pytest.fixture(scope="module")
def expected(kws_by_hand: tuple[Path, Any], shared_model: Models) -> tuple[Any, Any]:
    """(outputs of tflite-micro, final pools of the local runner) of the hand-made keyword spotter."""
    from fvp_runner.references.interpreters import Reference

    directory, artifact = kws_by_hand
    inputs = random_inputs(artifact)
    host = create("local", directory, RunOptions()).run(inputs)
    reference = Reference(shared_model("kws_ref_model").read_bytes()).run(inputs)
    return reference, host.pools_after


@pytest.mark.parametrize("interrupt", [False, True], ids=["polling", "interrupt"])
@pytest.mark.parametrize("runner", RUNNERS)
def test_a_network_is_bit_exact_on_its_planned_bytes(
    runner: str, interrupt: bool, kws_by_hand: tuple[Path, Any], expected: tuple[Any, Any]
) -> None:
    directory, artifact = kws_by_hand
    machine = start(runner, directory, interrupt=interrupt)
    result = machine.run(random_inputs(artifact))
    np.testing.assert_array_equal(result.outputs[0], expected[0][0])
    np.testing.assert_array_equal(result.pools_after[0], expected[1][0])
    assert result.npu_cycles is not None
    assert ("CALLS 1" in result.transcript, "board=corstone-300-u55" in result.transcript) == (True, True)
    again = machine.run([np.zeros_like(x) for x in random_inputs(artifact)])
    assert not np.array_equal(again.pools_after[0], result.pools_after[0]), "every run starts anew"


FOREIGN_DRIVER = """
/* A driver in another style: the secure alias, pairs, multiples, bytes and conditional accesses. */
static uint32_t page(uint32_t offset) { return 0x58102000u + offset; }
static uint32_t word(uint32_t offset) { return *(volatile uint32_t *)page(offset); }
int32_t kws_step(uint8_t *const pools[]) {
  uint32_t low, high, status = 0;
  __asm__ volatile("ldrd %0, %1, [%2]" : "=&r"(low), "=&r"(high) : "r"(page(0)) : "memory"); /* ID, STATUS */
  if (low >> 28 != 1 || high != 0) return 101;
  uint32_t moving = page(0);
  __asm__ volatile("str %1, [%0, #12]!" : "+r"(moving) : "r"(1) : "memory"); /* RESET, written back */
  if (moving != page(12)) return 104;
  if (*(volatile uint8_t *)page(0x28) != 8 || *(volatile uint16_t *)page(0x2a) != 0) return 102; /* CONFIG */
  const uint32_t bases[6] = {(uint32_t)kws_constants, 0, (uint32_t)pools[0], 0, (uint32_t)pools[0], 0};
  register uint32_t *const to __asm__("r1") = (uint32_t *)page(0x80);
  __asm__ volatile("ldm %0, {r2, r3, r4, r5, r6, r7}\\n stm r1, {r2, r3, r4, r5, r6, r7}"
                   :: "r"(bases), "r"(to) : "r2", "r3", "r4", "r5", "r6", "r7", "memory");
  __asm__ volatile("strd %0, %1, [%2, #16]" :: "r"(kws_stream), "r"(0), "r"(page(0)) : "memory"); /* QBASE */
  *(volatile uint32_t *)page(0x20) = sizeof kws_stream;
  __asm__ volatile("cmp %0, #0\\n ite eq\\n streq %1, [%2, #8]\\n strne %3, [%2, #8]" /* only the second is done */
                   :: "r"(1), "r"(0), "r"(page(0)), "r"(1) : "cc", "memory");
  while (!(status & 0x20)) {
    status = word(4);
    if (status & 0x194) return (int32_t)status;
  }
  __asm__ volatile("ldrsb %0, [%1, #4]" : "=r"(low) : "r"(page(0)) : "memory");
  return low == 0x22 ? 0 : 103;
}
"""


@pytest.mark.parametrize("runner", RUNNERS)
def test_any_driver_works_not_only_ours(
    runner: str, tmp_path: Path, kws_by_hand: tuple[Path, Any], expected: tuple[Any, Any]
) -> None:
    directory, artifact = kws_by_hand
    arrays = (directory / "src" / "kws_npu.c").read_text().split("int32_t kws_step")[0]
    write(artifact, tmp_path / "kws", arrays.split('npu_memplan_runtime.h"')[1] + FOREIGN_DRIVER)
    result = start(runner, tmp_path / "kws").run(random_inputs(artifact))
    np.testing.assert_array_equal(result.outputs[0], expected[0][0])
    np.testing.assert_array_equal(result.pools_after[0], expected[1][0])


def kws_stream(shared_model: Models) -> list[int]:
    model = shared_model("kws_ref_model").read_bytes()
    (call,) = read_network(compile_tflite(model, VelaOptions(memory_mode="Shared_Sram")).network).operators
    assert isinstance(call, NpuCall)
    return list(call.words)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_wrong_stream_is_a_parse_error(runner: str, tmp_path: Path, shared_model: Models) -> None:
    words = kws_stream(shared_model)
    words[4] = 0x0000C3FF
    artifact = vela_artifact(shared_model("kws_ref_model"), tmp_path / "kws", "kws", words)
    with pytest.raises(FirmwareError, match=r"(?s)npu 7 status=00010012 .*parse error.*NPU model: .*0x0000c3ff"):
        start(runner, tmp_path / "kws").run(random_inputs(artifact))


def launching(stream: list[int], base: str) -> str:
    return f"""
{c_array("toy_stream", np.asarray(stream, np.uint32), hexadecimal=True)}
int32_t toy_step(uint8_t *const pools[]) {{
  const void *const bases[3] = {{{base}, pools[0], pools[0]}};
  static const uint32_t base_bytes[3] = {{64, 4096, 4096}};
  return npu_memplan_npu_launch(0, 3, toy_stream, sizeof toy_stream, bases, base_bytes, 3);
}}
"""


@pytest.mark.parametrize("runner", RUNNERS)
@pytest.mark.parametrize("base", ["0xa0000000", "0x20000000"])
def test_a_base_pointer_to_nowhere_is_a_bus_error(runner: str, base: str, tmp_path: Path, shared_model: Models) -> None:
    """Neither unmapped memory nor the CPU's own tightly coupled memory can be reached by the NPU."""
    directory = toy(tmp_path / "toy", launching(kws_stream(shared_model), f"(const void *){base}u"))
    with pytest.raises(
        FirmwareError, match=rf"(?s)npu 6 status=00010006 .*bus error.*cannot reach: region 0 .* {base}"
    ):
        start(runner, directory).run([np.zeros((1, 16), np.int8)])


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_stream_that_leaves_its_pool_is_a_bus_error(runner: str, tmp_path: Path, shared_model: Models) -> None:
    """The pool has 4096 bytes, the stream needs 22 KiB: hardware would overwrite what comes after it."""
    directory = toy(tmp_path / "toy", launching(kws_stream(shared_model), "toy_stream"))
    with pytest.raises(FirmwareError, match=r"(?s)npu 6 .*bus error.*NPU model: .*region"):
        start(runner, directory).run([np.zeros((1, 16), np.int8)])


FAULTS = {
    Sabotage.REFUSE_RESET: r"the NPU refused the reset's security and privilege",
    Sabotage.OTHER_NPU: r"the NPU is not the one the program was compiled for",
    Sabotage.RESET_NEVER_ENDS: r"the NPU's reset did not end",
    Sabotage.NEVER_ENDS: r"npu 5 status=00000001 .*the NPU did not finish in time",
    Sabotage.ECC: r"npu 9 status=00010102 .*ECC fault",
    Sabotage.WEIGHT_DECODER: r"npu 8 status=00010082 .*weight decoder fault",
}


@pytest.mark.parametrize("interrupt", [False, True], ids=["polling", "interrupt"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.name.lower())
@pytest.mark.parametrize("runner", RUNNERS)
def test_each_fault_of_the_npu_has_a_name(
    runner: str, fault: Sabotage, interrupt: bool, kws_by_hand: tuple[Path, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, artifact = kws_by_hand
    monkeypatch.setattr(device, "EthosURegisters", partial(SabotagedRegisters, fault))
    machine = start(runner, directory, interrupt=interrupt, defines=("ETHOSU_WAIT_POLLS=50",))
    with pytest.raises(FirmwareError, match=f"(?s){FAULTS[fault]}"):
        machine.run(random_inputs(artifact))


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_failing_step_is_reported(runner: str, tmp_path: Path) -> None:
    directory = toy(tmp_path / "toy", "int32_t toy_step(uint8_t *const pools[]) { (void)pools; return -3; }\n")
    with pytest.raises(FirmwareError, match=r"(?s)reported an error.*the program returned an error"):
        start(runner, directory).run([np.zeros((1, 16), np.int8)])


HANG = "int32_t toy_step(uint8_t *const pools[]) { (void)pools; for (volatile int i = 0;; i++) {} return 0; }\n"


def children(pid: int) -> set[int]:
    return {int(c) for path in Path(f"/proc/{pid}/task").glob("*/children") for c in path.read_text().split()}


@pytest.mark.parametrize("runner", RUNNERS)
def test_firmware_that_hangs_is_stopped_and_leaves_nothing(runner: str, tmp_path: Path) -> None:
    before = children(os.getpid())
    machine = start(runner, toy(tmp_path / "toy", HANG), timeout_s=3.0)
    with pytest.raises(RunTimeoutError, match=rf"toy on {runner} did not end within 3 s .* its last line was 'RUN'"):
        machine.run([np.zeros((1, 16), np.int8)])
    assert children(os.getpid()) <= before


def test_an_emulator_that_dies_is_not_a_result(tmp_path: Path) -> None:
    before = children(os.getpid())

    def kill_it() -> None:
        for _ in range(600):
            for pid in children(os.getpid()) - before:
                if b"-qtest" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    time.sleep(1.0)
                    os.kill(pid, signal.SIGKILL)
                    return
            time.sleep(0.05)

    machine = start("qemu", toy(tmp_path / "toy", HANG))
    killer = threading.Thread(target=kill_it)
    killer.start()
    with pytest.raises((QemuError, GdbError), match=r"QEMU ended before the firmware did|closed its debug connection"):
        machine.run([np.zeros((1, 16), np.int8)])
    killer.join()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
def test_no_emulator_outlives_us(how: signal.Signals, tmp_path: Path) -> None:
    directory = toy(tmp_path / "toy", HANG)
    build(directory, RunOptions())
    command = [sys.executable, "-m", "npu_memplan.cli", "run", str(directory), "--on", "qemu", "--timeout", "120"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL) as ours:
        emulators: set[int] = set()
        deadline = time.monotonic() + 60
        while not emulators and time.monotonic() < deadline and ours.poll() is None:
            time.sleep(0.05)
            emulators = {c for c in children(ours.pid) if b"qemu-system-arm" in Path(f"/proc/{c}/cmdline").read_bytes()}
        assert emulators, "QEMU never started"
        time.sleep(0.3)
        ours.send_signal(how)
        assert ours.stderr is not None
        said = ours.stderr.read().decode()
    assert ours.returncode == (130 if how is signal.SIGINT else -signal.SIGKILL)
    if how is signal.SIGINT:
        assert said.splitlines()[-1] == "interrupted"
    for _ in range(100):
        if not any(Path(f"/proc/{pid}").exists() for pid in emulators):
            break
        time.sleep(0.05)
    assert not any(Path(f"/proc/{pid}").exists() for pid in emulators)


@pytest.mark.parametrize("step, fault", [
    ("*(volatile uint32_t *)0x0F000000u = 1;", "(BusFault|HardFault)"),
    ('__asm__ volatile("udf #1");', "UsageFault"),
])  # fmt: skip
def test_a_fault_of_the_cpu_is_reported_by_name(step: str, fault: str, tmp_path: Path) -> None:
    directory = toy(tmp_path / "toy", f"int32_t toy_step(uint8_t *const pools[]) {{ (void)pools; {step} return 0; }}\n")
    with pytest.raises(FirmwareError, match=f"cpu fault: {fault} cfsr="):
        start("qemu", directory).run([np.zeros((1, 16), np.int8)])


MVE = """#include <arm_mve.h>
#include <math.h>
int32_t toy_step(uint8_t *const pools[]) {
  vst1q_u8(pools[0] + 32, vaddq_n_u8(vld1q_u8(pools[0]), 3));
  volatile float one = 1.0f;
  volatile double two = 2.0;
  return expf(one) > 2.7182f && expf(one) < 2.7183f && sqrt(two) > 1.4142 ? 0 : 105;
}
"""


def test_the_cortex_m55_starts_with_mve_and_both_floats_on(tmp_path: Path) -> None:
    values = np.arange(16, dtype=np.int8).reshape(1, 16)
    result = start("qemu", toy(tmp_path / "toy", MVE)).run([values])
    np.testing.assert_array_equal(result.outputs[0], values + 3)


STATE = TensorSlot("state", "int16", (4,), "sram", 64, 8, 1.0, -300)
COPY_STATE = """#include <string.h>
int32_t toy_step(uint8_t *const pools[]) {
  memcpy(pools[0] + 32, pools[0] + 64, 8);
  memcpy(pools[0] + 40, pools[0] + 512, 8);
  return 0;
}
"""


@pytest.mark.parametrize("runner", RUNNERS)
def test_states_start_at_their_zero_point_and_the_rest_is_poison(runner: str, tmp_path: Path) -> None:
    directory = toy(tmp_path / "toy", COPY_STATE, states=(STATE,))
    result = start(runner, directory).run([np.zeros((1, 16), np.int8)])
    data = result.outputs[0].tobytes()
    np.testing.assert_array_equal(np.frombuffer(data[:8], np.int16), [-300] * 4)
    assert data[8:] == b"\xa5" * 8


def test_long_runs_report_their_progress(tmp_path: Path) -> None:
    told: list[str] = []
    machine = start("qemu", toy(tmp_path / "toy", HANG), timeout_s=5.0, progress=told.append)
    with pytest.raises(RunTimeoutError):
        machine.run([np.zeros((1, 16), np.int8)])
    lines = [line for line in told if re.fullmatch(r"toy on qemu: \d+ s", line)]
    assert len(lines) >= 2
    assert len(set(lines)) == len(lines), "each tells more time than the one before"


def test_qemu_without_a_model_of_the_board_says_so(tmp_path: Path) -> None:
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text(encoding="utf-8")
    board = tmp_path / "mine.toml"
    board.write_text(re.sub(r"(?m)^\[qemu\]\n(?:\w.*\n)+", "", text).replace('"corstone-300-u55"', '"mine"'))
    with pytest.raises(RunnerMissingError, match=r"no model of board mine; choose one that has: corstone-300-"):
        create("qemu", toy(tmp_path / "toy", HANG), RunOptions(board=board))


def test_memories_that_qemu_lacks_are_added_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Corstone-320's code lies where mps3-an547 has nothing, and its UART is elsewhere."""
    step = "int32_t toy_step(uint8_t *const pools[]) { pools[0][32] = (uint8_t)(pools[0][0] + 1); return 0; }\n"
    directory = toy(tmp_path / "toy", step, "ethos-u85-256")
    ran = start("qemu", directory).run([np.full((1, 16), 7, np.int8)])
    assert ran.outputs[0][0, 0] == 8
    machine = start("qemu", directory)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RunnerMissingError, match=r"lacks memories of corstone-320, and C adds them: no C"):
        machine.run([np.zeros((1, 16), np.int8)])
    monkeypatch.setenv("CC", "false")
    with pytest.raises(QemuError, match=r"qemu_memories\.c did not compile"):
        machine.run([np.zeros((1, 16), np.int8)])


def test_ctrl_c_ends_unicorn_too(tmp_path: Path) -> None:
    directory = toy(tmp_path / "toy", HANG)
    command = [sys.executable, "-m", "npu_memplan.cli", "run", str(directory), "--on", "unicorn", "--timeout", "120"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as ours:
        assert ours.stderr is not None
        for line in ours.stderr:
            if line.startswith("toy on unicorn: "):
                ours.send_signal(signal.SIGINT)
                break
        assert ours.stderr.read().splitlines()[-1] == "interrupted"
    assert ours.returncode == 130


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_users_board_file_decides_where_the_pool_lies(
    runner: str, kws_by_hand: tuple[Path, Any], expected: tuple[Any, Any], tmp_path: Path
) -> None:
    directory, artifact = kws_by_hand
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text()
    text = text.replace('name = "corstone-300-u55"', 'name = "mine"')
    text = text.replace(
        'pools = { sram = ["ISRAM"] }\nconstants = ["DDR"]', 'pools = { sram = ["DDR"] }\nconstants = ["SRAM"]'
    )
    (tmp_path / "mine.toml").write_text(text)
    machine = start(runner, directory, board=tmp_path / "mine.toml")
    result = machine.run(random_inputs(artifact))
    assert pool_spans(machine.firmware)[0][0] >= 0x60000000
    assert machine.firmware.layout.constants.name == "SRAM"
    assert "board=mine" in result.transcript
    np.testing.assert_array_equal(result.outputs[0], expected[0][0])
    np.testing.assert_array_equal(result.pools_after[0], expected[1][0])


def test_a_machine_unknown_to_qemu_is_reported_in_its_words(kws_by_hand: tuple[Path, Any], tmp_path: Path) -> None:
    text = (targets_folder() / "boards" / "corstone-300-u55.toml").read_text()
    (tmp_path / "mine.toml").write_text(text.replace('machine = "mps3-an547"', 'machine = "mps9"'))
    directory, artifact = kws_by_hand
    with pytest.raises(QemuError, match=r"QEMU did not start: .*unsupported machine type"):
        start("qemu", directory, board=tmp_path / "mine.toml").run(random_inputs(artifact))
