"""Calling Vela: the options mean what its command line means, and nothing of it leaks."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from npu_memplan.commands.lists import POOL_LIMITS
from npu_memplan.errors import NpuMemplanError
from npu_memplan.ethosu.arch import AcceleratorError, accelerator
from npu_memplan.ethosu.weight_codec import WeightCodecError, decode_weights, encode_scales, encode_weights
from npu_memplan.models.flatbuffer import NetworkError
from npu_memplan.models.tflite import read_network
from npu_memplan.process.incidents import gather_incidents
from npu_memplan.process.programs import wait_for_end
from npu_memplan.vela.compiler import VelaError, VelaOptions, compile_tflite
from tests.support.entry import invoke
from tests.support.real_data import Models
from tests.support.tflite_builder import TensorSpec, constant, single_operator

SAME, VALID = 0, 1
EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "digits" / "digits.tflite"


@pytest.mark.parametrize(
    "options",
    [
        VelaOptions("ethos-u55-128", "Ethos_U55_Deep_Embedded", "Shared_Sram", "Size"),
        VelaOptions("ethos-u65-512", "Ethos_U65_High_End", "Dedicated_Sram", "Performance", 4096),
        VelaOptions("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Sram_Only", core="legacy"),
    ],
    ids=lambda o: f"{o.accelerator}-{o.core}",
)
def test_the_result_is_the_command_lines(tmp_path: Path, options: VelaOptions) -> None:
    command = [
        sys.executable,
        "-m",
        "ethosu.vela",
        str(EXAMPLE),
        "--output-dir",
        str(tmp_path),
        "--config",
        "Arm/vela.ini",
    ]
    command += ["--accelerator-config", options.accelerator, "--system-config", str(options.system_config)]
    command += ["--memory-mode", str(options.memory_mode), "--optimise", options.optimise]
    if options.arena_cache_size is not None:
        command += ["--arena-cache-size", str(options.arena_cache_size)]
    if options.core == "legacy":
        command.append("--debug-force-legacy-core")
    subprocess.run(command, check=True, capture_output=True)
    theirs = read_network((tmp_path / "digits_vela.tflite").read_bytes())
    ours = read_network(compile_tflite(EXAMPLE.read_bytes(), options).network)
    for a, b in zip(ours.npu_calls, theirs.npu_calls, strict=True):
        assert a.payload == b.payload
        assert np.array_equal(a.read_only, b.read_only)
        assert (a.scratch_bytes, a.scratch_fast_bytes) == (b.scratch_bytes, b.scratch_fast_bytes)


def test_defaults_come_from_the_accelerator() -> None:
    result = compile_tflite(EXAMPLE.read_bytes(), VelaOptions("ethos-u65-256"))
    assert (result.core, result.memory_mode) == ("regor", "Dedicated_Sram")
    assert list(result.arena_bytes) == ["dram", "sram"]
    call = read_network(result.network).npu_calls[0]
    assert result.arena_bytes == {"dram": call.scratch_bytes, "sram": call.scratch_fast_bytes}
    assert result.npu_operations > 0
    assert not result.parsed.cpu_operators


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str], shared_model: Models) -> None:
    """The compiled core prints why it leaves an operator of this model; it arrives as a message."""
    result = compile_tflite(shared_model("keyword_scrambled_8bit").read_bytes())
    assert capfd.readouterr() == ("", "")
    assert "Reason: Unsupported dataType Int32" in result.messages


def test_operators_can_be_left_to_the_cpu() -> None:
    result = compile_tflite(EXAMPLE.read_bytes(), VelaOptions(ignore_operators=("SOFTMAX",)))
    assert [o.name for o in read_network(result.network).cpu_operators] == ["SOFTMAX"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        (VelaOptions("ethos-u99"), AcceleratorError, "unknown accelerator 'ethos-u99'; choose one of: ethos-u55-32"),
        (
            VelaOptions(system_config="Nope"),
            VelaError,
            "--system-config 'Nope' is not in vela.ini; choose one of: Ethos",
        ),
        (
            VelaOptions(memory_mode="Nope"),
            VelaError,
            "--memory-mode 'Nope' is not in vela.ini; choose one of: Sram_Only",
        ),
        (
            VelaOptions(memory_mode="Dedicated_Sram"),
            VelaError,
            "keeps the arena behind AXI1, which is OffChipFlash .read only. in system configuration Ethos_U55",
        ),
        (VelaOptions(optimise="Fast"), VelaError, "--optimise 'Fast' is unknown; choose Performance or Size"),
        (VelaOptions(core="new"), VelaError, "unknown Vela core 'new'; choose regor or legacy"),
        (VelaOptions(arena_cache_size=-1), VelaError, "--arena-cache-size -1 is out of range"),
        (VelaOptions(core="legacy", ignore_operators=("ADD",)), VelaError, "only Vela's compiled core"),
    ],
)
def test_bad_options_are_named(options: VelaOptions, error: type[NpuMemplanError], message: str) -> None:
    with pytest.raises(error, match=message):
        compile_tflite(EXAMPLE.read_bytes(), options)


def test_a_damaged_model_is_an_error_and_ends_nothing() -> None:
    """On such files the compiled core leaves by exit(); here that is an exception."""
    whole = EXAMPLE.read_bytes()
    with pytest.raises(NetworkError, match="is not a TFLite file"):
        compile_tflite(whole[:5])
    for length in (len(whole) // 2, len(whole) - 400):
        with pytest.raises(NpuMemplanError, match=r"damaged or truncated|cannot compile the model"):
            compile_tflite(whole[:length])


def test_weights_out_of_range_are_refused() -> None:
    with pytest.raises(WeightCodecError, match=r"weights from 0 to 256 do not fit the NPU's 9 bits"):
        encode_weights(np.full((1, 1, 1, 2), [0, 256]), accelerator("ethos-u55-128"), block_depth=8, depthwise=False,
                       part_kernel_first=False)  # fmt: skip
    with pytest.raises(WeightCodecError, match=r"must have shape \[O, H, W, I\]"):
        encode_weights(np.zeros((2, 2)), accelerator("ethos-u55-128"), block_depth=8, depthwise=False,
                       part_kernel_first=False)  # fmt: skip


def test_scale_tables_are_ten_bytes_a_channel() -> None:
    table = encode_scales([-1, 5], [0x80000001, 7], [31, 3])
    assert len(table) == 32
    assert table[:10] == bytes([0xFF] * 5 + [1, 0, 0, 0x80, 31])
    assert table[10:20] == bytes([5, 0, 0, 0, 0, 7, 0, 0, 0, 3])
    with pytest.raises(WeightCodecError, match="do not fit 40, 32 and 6 bits"):
        encode_scales([1 << 39], [1], [1])


def test_a_sound_model_that_the_compiled_core_refuses_goes_to_the_legacy_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """No sound model is known that it refuses, so its refusal is arranged; the legacy core really runs."""
    from npu_memplan.vela import compiler as vela

    def refuse(*_: object) -> None:
        raise VelaError("it cannot parse the model")

    monkeypatch.setattr(vela, "run_regor", refuse)
    with gather_incidents() as told:
        result = compile_tflite(EXAMPLE.read_bytes(), name="digits")
    assert result.core == "legacy"
    assert told.fallbacks == [
        "Vela's legacy core compiled digits, its compiled core refused it: it cannot parse the model"
    ]
    with pytest.raises(VelaError, match="it cannot parse the model"):
        compile_tflite(EXAMPLE.read_bytes(), VelaOptions(ignore_operators=("SOFTMAX",)))


def test_a_model_of_one_reshape_needs_no_npu() -> None:
    x, y = TensorSpec((1, 4), "int8", 0.5), TensorSpec((2, 2), "int8", 0.5)
    shape = constant([2, 2])
    result = compile_tflite(single_operator("RESHAPE", [x, shape], [y]).finish())
    assert len(read_network(result.network).outputs) == 1


def test_a_compile_begun_early_gives_the_same_result(capfd: pytest.CaptureFixture[str]) -> None:
    from npu_memplan.vela import worker as vela_worker

    vela_worker._end_started()  # of tests before
    gc.collect()  # TVM prints when what they left is freed
    capfd.readouterr()
    options = VelaOptions("ethos-u55-64", ignore_operators=("SOFTMAX",))
    data = EXAMPLE.read_bytes()
    expected = compile_tflite(data, options)
    vela_worker.start_compile(data, options)
    vela_worker.start_compile(data, options)  # once is enough
    assert len(vela_worker._STARTED) == 1
    assert compile_tflite(data, options).network == expected.network
    assert not vela_worker._STARTED
    assert capfd.readouterr() == ("", "")


def test_a_compile_begun_early_leaves_errors_to_the_compile() -> None:
    from npu_memplan.vela import worker as vela_worker

    vela_worker._end_started()  # of tests before
    data = EXAMPLE.read_bytes()
    vela_worker.start_compile(data, VelaOptions("ethos-u99"))
    vela_worker.start_compile(data, VelaOptions(memory_mode="Nope"))
    assert not vela_worker._STARTED
    vela_worker.start_compile(data[:2000], VelaOptions())
    assert not vela_worker._STARTED
    vela_worker.start_compile(data, VelaOptions())
    (worker,) = vela_worker._STARTED.values()
    vela_worker._end_started()
    assert worker.process.returncode is not None
    assert not vela_worker._STARTED


def test_an_empty_stream_has_no_values() -> None:
    assert decode_weights(b"").shape == (0,)


@pytest.mark.parametrize("without", [False, True])
def test_the_end_of_a_process_is_waited_for(without: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its file descriptor, and where there is none."""
    if without:
        monkeypatch.delattr("os.pidfd_open", raising=False)
    sleeping = subprocess.Popen(["sleep", "60"])
    with pytest.raises(subprocess.TimeoutExpired, match=r"sleep.*0\.05 seconds"):
        wait_for_end(sleeping, 0.05)
    sleeping.kill()
    assert [wait_for_end(sleeping, 60) for _ in range(2)] == [-9, -9]
    assert wait_for_end(subprocess.Popen(["sh", "-c", "sleep 0.1; exit 3"]), 60) == 3


@pytest.mark.parametrize(
    ("kind", "padding", "kernel", "stride", "on_npu"),
    [
        ("MAX_POOL_2D", SAME, 3, 3, True),
        ("MAX_POOL_2D", SAME, 4, 4, False),
        ("MAX_POOL_2D", VALID, 4, 4, True),
        ("MAX_POOL_2D", SAME, 12, 1, True),
        ("AVERAGE_POOL_2D", SAME, 8, 3, True),
        ("AVERAGE_POOL_2D", SAME, 9, 1, False),
        ("AVERAGE_POOL_2D", SAME, 4, 4, False),
        ("AVERAGE_POOL_2D", VALID, 9, 4, True),
    ],
)
def test_limits_of_pools_are_those_that_operators_prints(
    kind: str, padding: int, kernel: int, stride: int, on_npu: bool, tmp_path: Path
) -> None:
    rows = 41  # no multiple of the strides, so that SAME pads
    made = -(-rows // stride) if padding == SAME else (rows - kernel) // stride + 1
    x, y = (TensorSpec((1, n, n, 8), "int8", 0.1, 0) for n in (rows, made))
    fields = {"Padding": padding, "StrideW": stride, "StrideH": stride, "FilterWidth": kernel, "FilterHeight": kernel}
    data = bytes(single_operator(kind, [x], [y], "Pool2DOptions", 2, **fields).finish())
    assert bool(compile_tflite(data).parsed.npu_calls) is on_npu
    (tmp_path / "pool.tflite").write_bytes(data)
    assert POOL_LIMITS in invoke("operators", tmp_path / "pool.tflite").output
