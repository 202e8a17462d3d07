"""Delegates by native lowering of the TOSA graph that Vela gets: less scratch, the same outputs as Vela's blocks."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner.executorch import commands
from fvp_runner.executorch.model import fast_scratch_bytes
from npu_memplan.errors import InternalError
from npu_memplan.ethosu.program.program import BufferRole
from npu_memplan.ethosu.stream.decode import decode
from npu_memplan.ethosu.stream.encode import build_payload
from npu_memplan.ethosu.time import cycles_by_model
from npu_memplan.executorch.board import memories_for
from npu_memplan.executorch.memory_map import LiftedCall
from npu_memplan.executorch.replanning import ScratchError, ScratchGoal, replan_call
from npu_memplan.executorch_lowering import partitioner
from npu_memplan.executorch_lowering.native import NativeBlocksError, delegate_program, native_calls
from npu_memplan.executorch_lowering.partitioner import PartitionerError, ethos_u_partitioner, plan_blocks
from npu_memplan.frontend.tosa.layers import TosaLayersError
from npu_memplan.models.executorch.delegates import BlockSlot, EthosUCall, build_blocks, npu_calls, slots_data
from npu_memplan.models.executorch.program import read_program
from npu_memplan.models.network import Network
from npu_memplan.vela.compiler import VelaOptions, compile_tosa
from tests.support.tosa_graphs import TosaFile

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
SPECS = {"compile_flags": b"--accelerator-config=ethos-u55-128 --memory-mode=Shared_Sram"}


@functools.cache
def graph(kind: str = "") -> bytes:
    """Two convolutions and their sum; `kind` is an operator behind them that has no layer."""
    rng, file, shape = np.random.default_rng(5), TosaFile(), (1, 24, 24, 16)

    def convolution(x: str) -> str:
        weights = file.constant(rng.integers(-90, 90, (16, 3, 3, 16)), "int8")
        bias = file.constant(rng.integers(-900, 900, 16), "int32")
        zeros = file.constant([-3], "int8"), file.constant([0], "int8")
        window = {0: (1, 1, 1, 1), 1: (1, 1), 2: (1, 1), 4: 5}
        sums = file.operator("CONV2D", [x, weights, bias, *zeros], shape, "int32", window)
        scales = [(int(m), 39) for m in rng.integers(1 << 30, 1 << 31, 16)]
        return file.rescale(sums, shape, scales, (0, -3))

    first = convolution(file.input(*shape))
    pairs = (first, (1 << 30, 11)), (convolution(first), (1518500250, 12))
    wide = [file.rescale(x, shape, [scale], (-3, 0), ("int8", "int32")) for x, scale in pairs]
    total = file.rescale(file.operator("ADD", wide, shape, "int32"), shape, [(1 << 30, 49)], (0, -3))
    return file.finish(file.operator(kind, [total], shape, attribute={0: 1}) if kind else total)


@functools.cache
def vela_blocks(tosa: bytes, npu: str = "ethos-u55-128") -> bytes:
    """The blocks of Vela's stream for a graph."""
    network: Network = compile_tosa(tosa, VelaOptions(npu), "x").parsed
    (call,) = network.npu_calls

    def slots(indices: tuple[int, ...], addresses: tuple[tuple[int, int], ...]) -> bytes:
        shapes = [(1,) * (6 - len(network.tensors[i].shape)) + network.tensors[i].shape for i in indices]
        return slots_data([BlockSlot(s, 1, at, 1) for s, (_, at) in zip(shapes, addresses, strict=True)])

    return build_blocks(
        {
            "cmd_data": build_payload(call.payload),
            "weight_data": call.read_only.tobytes(),
            "scratch_size": call.scratch_bytes.to_bytes(4, "little"),
            "inputs": slots(call.inputs, call.input_addresses),
            "outputs": slots(call.outputs, call.output_addresses),
        }
    )


def scratch(data: bytes) -> int:
    return npu_calls(delegate_program(data, SPECS))[0].blocks.scratch_bytes


@pytest.mark.parametrize("goal", [ScratchGoal("bytes"), ScratchGoal(), ScratchGoal("cycles")])
def test_less_scratch_and_the_outputs_of_vela(goal: ScratchGoal) -> None:
    vela = vela_blocks(graph())
    ours = plan_blocks(vela, SPECS, goal, "tvm", graph())  # which compares outputs
    assert ours != vela
    assert scratch(ours) <= scratch(vela)
    assert plan_blocks(vela, SPECS, goal, "auto", graph()) in (ours, plan_blocks(vela, SPECS, goal))


def test_stripes_go_below_a_feature_map_and_its_result() -> None:
    map_bytes = 24 * 24 * 16
    assert scratch(plan_blocks(vela_blocks(graph()), SPECS, ScratchGoal("bytes"), "tvm", graph())) < 3 * map_bytes


@pytest.mark.parametrize(
    ("npu", "vela", "native"), [("u55", 39808, 18432), ("u65", 12288, 12288), ("u85", 81920, 18432)]
)
def test_a_network_of_executorch(npu: str, vela: int, native: int) -> None:
    delegate = read_program((MODELS / f"three_convolutions_{npu}.pte").read_bytes()).methods[0].delegates[0]
    tosa = (MODELS / "three_convolutions.tosa").read_bytes()
    ours = plan_blocks(bytes(delegate.data), delegate.specs, ScratchGoal("bytes"), "tvm", tosa)
    assert (scratch(bytes(delegate.data)), scratch(ours)) == (vela, native)


def _u65() -> tuple[bytes, Mapping[str, bytes], bytes]:
    """Vela's blocks of a network in Dedicated_Sram_384KB, what they were made for, and the graph."""
    delegate = read_program((MODELS / "three_convolutions_u65.pte").read_bytes()).methods[0].delegates[0]
    return bytes(delegate.data), delegate.specs, (MODELS / "three_convolutions.tosa").read_bytes()


def _worst_cycles(data: bytes, specs: Mapping[str, bytes]) -> int:
    one = npu_calls(delegate_program(data, specs))[0]
    stream = decode(one.call.words, one.call.accelerator.language), one.call.accelerator
    return max(cycles_by_model([stream], memories_for(one, {})).values())


@pytest.mark.parametrize("objective", ["bytes", "auto", "cycles"])
def test_feature_maps_lie_in_the_fast_scratch(objective: str) -> None:
    vela, specs, tosa = _u65()
    ours = plan_blocks(vela, specs, ScratchGoal(objective), "tvm", tosa)
    call = npu_calls(delegate_program(ours, specs))[0]
    assert call.uses_fast_scratch
    assert 0 < fast_scratch_bytes(call) <= 384 * 1024
    assert scratch(ours) <= scratch(vela)
    assert _worst_cycles(ours, specs) < _worst_cycles(vela, specs)


def test_a_fast_scratch_without_a_size_is_as_large_as_what_vela_touches() -> None:
    vela, specs, tosa = _u65()
    unsized = {**specs, "compile_flags": specs["compile_flags"].replace(b"Dedicated_Sram_384KB", b"Dedicated_Sram")}
    assert unsized != specs
    ours = plan_blocks(vela, unsized, ScratchGoal(), "tvm", tosa)
    used, room = (fast_scratch_bytes(npu_calls(delegate_program(data, unsized))[0]) for data in (ours, vela))
    assert 0 < used <= room


@pytest.mark.parametrize("goal", [ScratchGoal(), ScratchGoal(pool_bytes=1 << 20)])
def test_native_lowering_is_not_taken_where_one_timing_model_says_slower(
    goal: ScratchGoal, monkeypatch: pytest.MonkeyPatch
) -> None:
    vela, specs, tosa = _u65()
    kept, ours = (plan_blocks(vela, specs, goal, kind, tosa) for kind in ("vela", "tvm"))
    whole = npu_calls(delegate_program(kept, specs))[0].call
    cycles = _worst_cycles(kept, specs)
    assert _worst_cycles(ours, specs) < cycles

    def one_slow_model(streams: list[Any], _: object) -> dict[str, int]:
        of_vela = streams[0][0] == decode(whole.words, whole.accelerator.language)
        return {"first": cycles, "second": cycles - 2} if of_vela else {"first": 1, "second": cycles - 1}

    monkeypatch.setattr(partitioner, "cycles_by_model", one_slow_model)
    assert plan_blocks(vela, specs, goal, "auto", tosa) == kept


def test_what_native_lowering_does_not_take_is_left_to_vela() -> None:
    tosa = graph("REVERSE")
    vela = vela_blocks(graph())  # any: they stay as they are
    with pytest.raises(TosaLayersError, match=r"\(REVERSE\): it stores values backwards, which only Ethos-U85 does"):
        plan_blocks(vela, SPECS, ScratchGoal(), "tvm", tosa)
    with pytest.warns(UserWarning, match=r"a delegate stays Vela's: .*\(REVERSE\): it stores values backwards"):
        assert plan_blocks(vela, SPECS, ScratchGoal(), "auto", tosa) == plan_blocks(vela, SPECS, ScratchGoal())


def test_pools() -> None:
    vela = vela_blocks(graph())
    fits = plan_blocks(vela, SPECS, ScratchGoal(pool_bytes=24000), "auto", graph())
    assert scratch(fits) <= 24000
    with pytest.raises(ScratchError, match="bytes of scratch, the pool has 1,000"):
        plan_blocks(vela, SPECS, ScratchGoal(pool_bytes=1000), "auto", graph())


def test_another_interface_is_refused() -> None:
    file = TosaFile()
    x = file.input(1, 4, 4, 16)
    tosa = file.finish(file.rescale(x, (1, 4, 4, 16), [(1 << 30, 31)], (0, 0), ("int8", "int8")))
    one = npu_calls(delegate_program(vela_blocks(graph()), SPECS))[0]
    with pytest.raises(NativeBlocksError, match="inputs or outputs of other sizes"):
        native_calls(tosa, one, ScratchGoal())


def test_other_outputs_are_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def differ(*_: object, same_kernels: bool) -> None:
        seen.append(same_kernels)
        raise InternalError("another output")

    monkeypatch.setattr(commands, "compare_programs", differ)
    with pytest.raises(InternalError, match="another output"):
        plan_blocks(vela_blocks(graph()), SPECS, ScratchGoal("bytes"), "tvm", graph())
    assert seen == [False]


def test_vela_is_taken_where_native_outputs_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = plan_blocks(vela_blocks(graph()), SPECS, ScratchGoal("bytes"))

    def differ(*_: object, same_kernels: bool) -> None:
        if not same_kernels:
            raise InternalError("another output")

    monkeypatch.setattr(commands, "compare_programs", differ)
    with pytest.warns(UserWarning, match="a delegate stays Vela's: by native lowering, another output"):
        assert plan_blocks(vela_blocks(graph()), SPECS, ScratchGoal("bytes"), "auto", graph()) == expected


def test_tvm_is_not_needed() -> None:
    script = """
import sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tvm", "tvm_ffi"):
            raise ImportError(name)
sys.meta_path.insert(0, Finder())
import tests.executorch.test_native as t
t.plan_blocks(t.vela_blocks(t.graph()), t.SPECS, t.ScratchGoal("bytes"), "tvm", t.graph())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_unknown_compilers_are_named() -> None:
    with pytest.raises(PartitionerError, match="npu_compiler is 'llvm', not vela, tvm or auto"):
        ethos_u_partitioner(board="corstone-300-u55", npu_compiler="llvm")


@functools.cache
def graph_of_copies() -> bytes:
    """Much arithmetic with few weights, and much weight with little arithmetic behind it."""
    rng, file = np.random.default_rng(6), TosaFile()

    def convolution(x: str, made: tuple[int, ...], channels: int, stride: int) -> str:
        weights = file.constant(rng.integers(-90, 90, (made[3], 3, 3, channels)), "int8")
        zeros = file.constant([0], "int8"), file.constant([0], "int8")
        window = {0: (0 if stride > 1 else 1, 1) * 2, 1: (stride, stride), 2: (1, 1), 4: 5}
        bias = file.constant(rng.integers(-900, 900, made[3]), "int32")
        sums = file.operator("CONV2D", [x, weights, bias, *zeros], made, "int32", window)
        return file.rescale(sums, made, [(1 << 30, 41)], (0, 0))

    x = convolution(file.input(1, 32, 32, 16), (1, 32, 32, 16), 16, 1)
    x = convolution(x, (1, 16, 16, 32), 16, 2)
    x = convolution(x, (1, 8, 8, 64), 32, 2)
    return file.finish(convolution(x, (1, 8, 8, 64), 64, 1))


def _vela(flags: bytes = SPECS["compile_flags"]) -> EthosUCall:
    return npu_calls(delegate_program(vela_blocks(graph_of_copies()), {"compile_flags": flags}))[0]


def _copies(call: LiftedCall) -> int:
    return sum(buffer.role is BufferRole.WEIGHTS for buffer in call.program.buffers)


def _figures(data: bytes) -> tuple[int, int]:
    """Cycles of the timing model with the most, and bytes of scratch."""
    one = npu_calls(delegate_program(data, SPECS))[0]
    stream = decode(one.call.words, one.call.accelerator.language), one.call.accelerator
    return max(cycles_by_model([stream], memories_for(one, {})).values()), one.blocks.scratch_bytes


@pytest.mark.parametrize("goal", [ScratchGoal(), ScratchGoal("cycles"), ScratchGoal("bytes")])
def test_copies_take_fewer_cycles_in_no_more_bytes(goal: ScratchGoal) -> None:
    vela, least = _vela(), {True: [], False: []}  # type: dict[bool, list[tuple[int, int]]]
    for call in native_calls(graph_of_copies(), vela, goal):
        made = replan_call(call, goal, apart=True)
        least[call.limit_bytes > 0].append(_figures(made.data or bytes(made.delegate.data)))
        assert not call.limit_bytes or (_copies(call) and made.scratch_bytes <= call.limit_bytes)
    without, copied = min(least[False]), min(least[True], default=(0, 0))
    if goal.objective == "bytes":
        assert copied[1] <= without[1]
    else:
        assert copied[0] < without[0]
        assert copied[1] <= vela.blocks.scratch_bytes


def test_what_is_taken_has_copies_and_the_outputs_of_vela() -> None:
    plain = [one for one in native_calls(graph_of_copies(), _vela(), ScratchGoal()) if not one.limit_bytes]
    made = [replan_call(one, ScratchGoal(), apart=True) for one in plain]
    ours = plan_blocks(
        vela_blocks(graph_of_copies()), SPECS, ScratchGoal(), "tvm", graph_of_copies()
    )  # which compares outputs
    assert _figures(ours)[0] < min(_figures(one.data or bytes(one.delegate.data))[0] for one in made)


def test_a_pool_bounds_copies() -> None:
    goal = ScratchGoal(pool_bytes=45_000)
    found = [one for one in native_calls(graph_of_copies(), _vela(), goal) if one.limit_bytes]
    assert found
    assert all(replan_call(one, goal, apart=True).scratch_bytes <= 45_000 for one in found)


def test_constants_in_the_memory_of_the_scratch_stay() -> None:
    vela = _vela(b"--accelerator-config=ethos-u55-128 --memory-mode=Sram_Only")
    assert not any(one.limit_bytes for one in native_calls(graph_of_copies(), vela, ScratchGoal()))


def test_a_limit_that_nothing_fits_is_an_error() -> None:
    call = replace(native_calls(graph_of_copies(), _vela(), ScratchGoal())[0], limit_bytes=16)
    with pytest.raises(ScratchError, match="no plan within 16 bytes of scratch"):
        replan_call(call, ScratchGoal(), apart=True)
