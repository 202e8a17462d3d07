"""Ethos-U85's programs: Vela's streams lifted and encoded anew; chains are one operation, scatters keep bytes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fvp_runner.npu_model.model import NpuModel
from npu_memplan.ethosu.arch import accelerator
from npu_memplan.ethosu.arch.configurations import ETHOS_U85
from npu_memplan.ethosu.program.access import FeatureMap, Role, accesses
from npu_memplan.ethosu.program.hazards import largest_blockdep, schedule
from npu_memplan.ethosu.program.primfunc import from_primfunc, to_primfunc
from npu_memplan.ethosu.program.program import NpuProgram, goes_on
from npu_memplan.ethosu.stream.decode import Command, Operation, Wait, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.ethosu.stream.isa import Op, Register
from npu_memplan.models.network import Network
from npu_memplan.vela.compiler import VelaError, VelaOptions, compile_tflite
from npu_memplan.vela.lift import lift_program
from tests.support.single_operators import case

U85 = accelerator("ethos-u85-256")


def again(program: NpuProgram) -> tuple[int, ...]:
    """The stream of a program at the addresses that Vela gave its buffers."""
    places = {b.name: (b.original_region, b.original_offset) for b in program.buffers}
    placed = [program.place(i, places.__getitem__) for i in range(len(program.operations))]
    return encode(schedule(placed, program.accelerator))


def effective(words: tuple[int, ...]) -> list[tuple[Op, int, Any]]:
    """Operations with what they depend on but for BLOCKDEP, which both sides choose."""
    found = []
    for op in decode(words, U85.language):
        if isinstance(op, Operation):
            used = [a for a in accesses(op, U85) if len(a.ranges)]
            where = {(a.role, a.region, a.ranges.tobytes()) for a in used}
            found.append((op.op, op.parameter, where))
    return found


@pytest.mark.parametrize("name", ["digits", "kws_ref_model", "trained_lstm_int8"])
def test_streams_at_velas_addresses_do_what_velas_do(compiled: Callable[..., Network], name: str) -> None:
    network = compiled(name, accelerator="ethos-u85-256")
    (call,) = network.npu_calls
    program = lift_program(network, call)
    words = again(program)
    assert effective(words) == effective(call.words)
    NpuModel(call.accelerator).prepare_stream(words)  # with all checks
    waits = [sum(isinstance(c, Wait) for c in decode(w, U85.language)) for w in (words, call.words)]
    assert waits[0] <= waits[1]
    assert from_primfunc(to_primfunc(program)) == program


@pytest.mark.parametrize("npu", [a.name for a in ETHOS_U85])
@pytest.mark.parametrize(
    ("name", "optimise"), [("digits", "Performance"), ("kws_ref_model", "Size"), ("str_ww_ref_model", "Performance")]
)
def test_streams_at_velas_addresses_are_velas(
    compiled: Callable[..., Network], name: str, optimise: str, npu: str
) -> None:
    """Every register that an operation depends on and every wait is Vela's; only a BLOCKDEP may be larger, as far as
    is safe. What is left out because it is set already differs from Vela's words around chains alone.
    """
    network = compiled(name, accelerator=npu, optimise=optimise)
    (call,) = network.npu_calls
    language = call.accelerator.language
    words = again(lift_program(network, call))
    ours, velas = decode(words, language), decode(call.words, language)
    assert [(c.op, getattr(c, "outstanding", None)) for c in ours] == [
        (c.op, getattr(c, "outstanding", None)) for c in velas
    ]
    as_velas: list[Command] = []
    for one, other in zip(ours, decode(encode(velas), language), strict=True):
        if isinstance(one, Operation) and isinstance(other, Operation):
            distance = other.get(Register.BLOCKDEP)
            if one.op.is_kernel:
                assert one[Register.BLOCKDEP] >= distance
            if Register.BLOCKDEP in one.registers:  # a transfer knows the one of the kernel before
                one = one.with_registers({Register.BLOCKDEP: distance})
            assert all(other.registers.get(register) == value for register, value in one.registers.items())
        as_velas.append(one)
    NpuModel(call.accelerator).prepare_stream(words)
    if not any(goes_on(c) for c in velas if isinstance(c, Operation)):
        assert encode(as_velas) == encode(velas)


def test_what_a_chain_touches_lives_as_long_as_the_chain(compiled: Callable[..., Network]) -> None:
    network = compiled("kws_ref_model", accelerator="ethos-u85-256")
    program = lift_program(network, network.npu_calls[0])
    chained = [i for i, op in enumerate(program.operations) if op.get(Register.OFM_PRECISION) >> 14 == 2]
    assert len(chained) > 10
    for index in chained:
        assert program.operations[index].addresses.keys().isdisjoint({Register.OFM_BASE0})
        assert program.buffers_of(index) == program.buffers_of(index + 1)
        assert program.accesses(index) == program.accesses(index + 1)
    live = program.live_ranges()
    for index in chained:
        for buffer, _ in program.buffers_of(index):
            assert live[buffer][0] <= index < live[buffer][1] or program.buffer(buffer).role.is_parameter


def _dma(**changes: int) -> Operation:
    registers = {
        Register.DMA0_SRC_REGION: 1, Register.DMA0_DST_REGION: 2, Register.DMA0_LEN: 8, Register.DMA0_SRC: 64,
        Register.DMA0_DST: 128, Register.DMA0_SIZE0: 3, Register.DMA0_SIZE1: 2, Register.DMA0_SRC_STRIDE0: 16,
        Register.DMA0_SRC_STRIDE1: 100, Register.DMA0_DST_STRIDE0: 8, Register.DMA0_DST_STRIDE1: 24,
        Register.DMA0_IDX_REGION: 1, Register.DMA0_IDX: 512, Register.DMA0_IDX_MAX: 4, Register.DMA0_IDX_SKIP1: 0,
    }  # fmt: skip
    return Operation(Op.DMA_START, 0, {**registers, **{Register[k]: v for k, v in changes.items()}}, -1, U85.language)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, {Role.DMA_SRC: [[64, 72]], Role.DMA_DST: [[128, 136]]}),
        ({"DMA0_SRC_REGION": 1 | 1 << 9}, {Role.DMA_SRC: [[64, 72], [80, 88], [96, 104]], Role.DMA_DST: [[128, 152]]}),
        (
            {"DMA0_SRC_REGION": 1 | 2 << 9, "DMA0_LEN": 16},
            {Role.DMA_SRC: [[64, 112], [164, 212]], Role.DMA_DST: [[128, 184]]},
        ),
        (
            {"DMA0_SRC_REGION": 1 | 1 << 9 | 1 << 11},  # gathers three of five rows
            {
                Role.DMA_SRC: [[64 + 16 * i, 72 + 16 * i] for i in range(5)],
                Role.DMA_INDEX: [[512, 524]],
                Role.DMA_DST: [[128, 152]],
            },
        ),
        (
            {"DMA0_SRC_REGION": 1 | 1 << 9, "DMA0_DST_REGION": 2 | 1 << 11},  # scatters to three of five
            {
                Role.DMA_SRC: [[64, 72], [80, 88], [96, 104]],
                Role.DMA_INDEX: [[512, 524]],
                Role.DMA_KEPT: [[128, 168]],
                Role.DMA_DST: [[128, 168]],
            },
        ),
    ],
)
def test_a_transfer_touches_what_it_may_touch(changes: dict[str, int], expected: dict[Role, list[list[int]]]) -> None:
    assert {a.role: a.ranges.tolist() for a in accesses(_dma(**changes), U85)} == expected


def test_a_kernel_behind_one_that_stores_turned_waits_for_it(compiled: Callable[..., Network]) -> None:
    network = compiled("digits", accelerator="ethos-u85-256")
    kernels = [
        c for c in decode(network.npu_calls[0].words, U85.language) if isinstance(c, Operation) and c.op.is_kernel
    ]
    pairs = [
        (a, b)
        for a, b in pairwise(kernels)
        if (a[Register.OFM_REGION], a[Register.OFM_BASE0]) == (b[Register.IFM_REGION], b[Register.IFM_BASE0])
        and FeatureMap.ofm(a).depth == FeatureMap.ifm(b).depth > 0
    ]
    assert pairs
    for first, second in pairs:
        straight = largest_blockdep(first, second, U85)
        word = first[Register.OFM_PRECISION]
        turned = first.with_registers({Register.OFM_PRECISION: word | 1 << 9})
        assert largest_blockdep(turned, second, U85) == 0 <= straight <= 7


def test_commands_take_a_compiled_program(tmp_path: Path) -> None:
    """In a small pool, in a report."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions
    from npu_memplan.report.files import write_reports
    from npu_memplan.report.text.explain import explain_peak
    from tests.support.real_data import REPOSITORY

    model, folder = REPOSITORY / "tests" / "models" / "kws_ref_model.tflite", tmp_path / "build"
    artifact = compile_model(model, CompileOptions("ethos-u85-256", pools={"sram": 32768}), folder)
    assert artifact.npu_operations > 40
    (tmp_path / "report").mkdir()
    write_reports(artifact, tmp_path / "report", streams=folder)
    assert explain_peak(artifact, folder)


@pytest.mark.parametrize(("npu", "on_host"), [("ethos-u85-512", True), ("ethos-u55-256", False)])
def test_multipliers_that_vela_cuts_keep_a_convolution_on_the_host(npu: str, on_host: bool, tmp_path: Path) -> None:
    """int16 data with biases of 32 bits: Vela 5.2 makes multipliers of 31 bits, and writes 15 of them for Ethos-U85."""
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions
    from npu_memplan.problem import Agent

    model = tmp_path / "m.tflite"
    model.write_bytes(case("conv_int16_narrow_bias").build())
    (operator,) = compile_model(
        model, CompileOptions(npu, objective="bytes", effort="quick"), tmp_path / "out"
    ).operators
    assert (operator.agent is Agent.HOST) == on_host
    assert ("cuts multipliers to 15 bits" in operator.reason) == on_host


@pytest.mark.parametrize("dtype", ["int16", "uint8"])
def test_what_velas_compiler_refuses_stays_on_the_host(dtype: str, tmp_path: Path) -> None:
    from npu_memplan.compiler import compile_model
    from npu_memplan.options import CompileOptions
    from npu_memplan.problem import Agent
    from tests.support.operator_table import three

    model = three("PRELU", dtype).build()
    with pytest.raises(VelaError, match=r"compiled core \(regor\) cannot compile .* could not run on NPU"):
        compile_tflite(model, VelaOptions("ethos-u85-256"))
    (tmp_path / "m.tflite").write_bytes(model)
    operators = compile_model(
        tmp_path / "m.tflite", CompileOptions("ethos-u85-256", objective="bytes", effort="quick"), tmp_path / "out"
    ).operators
    assert {(o.agent, o.reason) for o in operators} == {
        (Agent.HOST, "Vela's compiler refuses networks that have it, for Ethos-U85")
    }
