"""NPU programs in TIR: nothing is lost on the way there, through text, or back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from npu_memplan.ethosu.program.hazards import schedule
from npu_memplan.ethosu.program.primfunc import (
    REGIONS,
    PrimFuncError,
    cache_program,
    encode_primfunc,
    from_primfunc,
    to_primfunc,
)
from npu_memplan.ethosu.program.program import BufferRole, NpuBuffer, NpuOperation, NpuProgram, ProgramError
from npu_memplan.ethosu.stream.decode import Operation, decode
from npu_memplan.ethosu.stream.encode import encode
from npu_memplan.models.network import Network
from npu_memplan.vela.lift import lift_program
from npu_memplan.vocabulary import is_npu
from tests.support.hand_made import conv, dma, elementwise, lut_dma, network, view

S = (4, 4, 16)
tvm = pytest.importorskip("tvm")


def _program() -> NpuProgram:
    weights = {"weights": (1, 2048, 64), "scales": (1, 2112, 16)}
    net = network(
        [
            dma((0, 0), (1, 2048), 80),
            conv(view("IFM", 0, S), view("OFM", 256, S), depth=16, **weights),
            lut_dma(512, 1),
            elementwise(view("IFM", 256, S), view("OFM", 512, S), view("IFM2", 0, S), lut=1),
        ],
        [(S, 0)],
        [(S, 512)],
    )
    return lift_program(net, net.npu_calls[0], "f")


def _planned(program: NpuProgram, sizes: dict[int, int]) -> Any:
    """The PrimFunc on pools, with every buffer where the compiler had it."""
    from tvm import tirx

    function = to_primfunc(program)
    pools = {r: tirx.decl_buffer((n,), "uint8", name=f"pool{r}", layout=None) for r, n in sizes.items()}
    places = {b.name: b for b in program.buffers}
    parameters, statements = list(pools.values()), []

    def place(var: Any) -> Any:
        buffer = places[var.name]
        return tirx.DeclBuffer(var, data=tirx.address_of(pools[buffer.original_region][buffer.original_offset]))

    for var in function.params:
        if places[var.name].role is BufferRole.CONSTANTS:
            parameters.append(var)
        else:
            statements.append(place(var))
    for statement in function.body.seq:
        moved = isinstance(statement, tirx.AllocBuffer) and places[statement.buffer.name].role is not BufferRole.LUT
        statements.append(place(statement.buffer) if moved else statement)
    kept = {k: function.attrs[k] for k in ("s_tir", "npu.kind", "npu.accelerator", "op_pattern")}
    planned = tirx.PrimFunc(parameters, tirx.SeqStmt(statements)).with_attr({**kept, REGIONS: list(sizes)})
    return planned.with_attr("global_symbol", program.name)


def test_the_form_is_the_one_that_is_promised() -> None:
    text = to_primfunc(_program()).script()
    assert 'input0: T.Buffer((4, 4, 16), "int8")' in text
    assert 'constants: T.Buffer((1024,), "uint8")' in text
    assert 'weights0 = T.alloc_buffer((80,), "uint8", annotations={"npu.align": 16, "npu.offset": 2048' in text
    assert 'lut0 = T.alloc_buffer((256,), "uint8", scope="shram"' in text
    assert '"ethosu_conv", 0, "IFM_PAD_TOP", 0' in text
    assert '"IFM_BASE0", input0.data, 0, ' in text
    assert '"SCALE_BASE", weights0.data, 64' in text
    assert "BLOCKDEP" not in text
    assert "REGION" not in text.replace("npu.param_regions", "").replace("npu.region", "")


def test_round_trip_of_a_program_with_everything_in_it() -> None:
    program = _program()
    function = to_primfunc(program)
    assert is_npu(function)
    assert from_primfunc(function) == program
    again = tvm.script.from_source(function.script(show_meta=True))
    tvm.ir.assert_structural_equal(function, again)
    assert from_primfunc(again) == program


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("digits", {}),
        ("kws_ref_model", {"accelerator": "ethos-u65-512", "memory_mode": "Dedicated_Sram"}),
        ("trained_lstm_int8", {}),
    ],
)
def test_round_trip_of_real_programs(compiled: Callable[..., Network], model: str, options: dict[str, str]) -> None:
    net = compiled(model, **options)
    for call in net.npu_calls:
        program = lift_program(net, call)
        function = to_primfunc(program)
        assert from_primfunc(function) == program
        if len(program.operations) > 200:
            continue  # TVM parses long functions slowly
        again = tvm.script.from_source(function.script(show_meta=True))
        tvm.ir.assert_structural_equal(function, again)


def test_what_a_function_is_known_to_say_is_what_is_read_of_it(compiled: Callable[..., Network]) -> None:
    net = compiled("kws_ref_model")
    program = lift_program(net, net.npu_calls[0])
    for made in (program, replace(program, buffers=program.buffers[::-1])):
        assert from_primfunc(cache_program(to_primfunc(made), made)) == from_primfunc(to_primfunc(made))


@pytest.mark.parametrize(
    ("model", "options"),
    [("digits", {}), ("kws_ref_model", {"accelerator": "ethos-u65-256", "memory_mode": "Dedicated_Sram"})],
)
def test_planned_where_vela_had_it_the_stream_is_velas(
    compiled: Callable[..., Network], model: str, options: dict[str, str]
) -> None:
    net = compiled(model, **options)
    for call in net.npu_calls:
        sizes = {1: call.scratch_bytes} | ({2: call.scratch_fast_bytes} if call.scratch_fast_bytes else {})
        function = _planned(lift_program(net, call), sizes)
        words = encode_primfunc(function)
        original = [c for c in decode(call.words) if isinstance(c, Operation)]
        expected = encode(schedule(original, call.accelerator))
        assert len(words) == len(expected) == len(call.words)
        for ours, theirs in zip(decode(words), decode(expected), strict=True):
            if isinstance(ours, Operation):
                assert isinstance(theirs, Operation)
                assert all(theirs.registers[r] == v for r, v in ours.registers.items() if r in theirs.registers)
        again = tvm.script.from_source(function.script(show_meta=True))
        assert encode_primfunc(again) == words


def test_an_unplanned_function_has_no_stream() -> None:
    with pytest.raises(PrimFuncError, match="NPU function f is not planned yet"):
        encode_primfunc(to_primfunc(_program()))


def test_a_buffer_without_a_place_is_named() -> None:
    function = to_primfunc(_program()).with_attr(REGIONS, [])
    with pytest.raises(PrimFuncError, match="buffer weights0 has no place in a pool"):
        encode_primfunc(function)


def test_foreign_functions_are_refused() -> None:
    from tvm import tirx

    function = tirx.PrimFunc([], tirx.Evaluate(tirx.call_extern("int32", "other"))).with_attr("global_symbol", "g")
    assert not is_npu(function)
    with pytest.raises(PrimFuncError, match="function g is no NPU program"):
        from_primfunc(function)
    tagged = function.with_attr({"npu.kind": "ethosu", "npu.accelerator": "ethos-u55-256",
                                 "npu.param_roles": [], "npu.param_regions": [], "npu.param_offsets": []})  # fmt: skip
    with pytest.raises(PrimFuncError, match="calls other; known: ethosu_conv"):
        from_primfunc(tagged)


def test_programs_check_their_names() -> None:
    program = _program()
    twice = (*program.buffers, program.buffers[0])
    with pytest.raises(ProgramError, match="buffer names are not unique: input0"):
        replace(program, buffers=twice)
    lost = NpuOperation(program.operations[0].op, 0, {}, dict.fromkeys(program.operations[0].addresses, ("gone", 0)))
    with pytest.raises(ProgramError, match="in buffer 'gone', which does not exist"):
        replace(program, operations=(lost,))
    with pytest.raises(ProgramError, match="has no buffer 'gone'"):
        program.buffer("gone")


def test_tiles_of_one_map_must_lie_in_one_pool() -> None:
    halves = [NpuBuffer(n, 64, BufferRole.FEATURE_MAP) for n in ("a", "b")]
    rolling_buffer = view("IFM", 0, (2, 4, 16), splits=(1, 2, 4), tiles=(0, 0, 64, 0))
    op = conv(rolling_buffer, view("OFM", 128, (2, 4, 16)), depth=16)
    net = network([dma((0, 0), (1, 0), 64), dma((0, 0), (1, 64), 64), op], [], [((2, 4, 16), 128)])
    program = lift_program(net, net.npu_calls[0])
    from npu_memplan.ethosu.stream.isa import Register

    split = dict(program.operations[2].addresses)
    split[Register.IFM_BASE0], split[Register.IFM_BASE2] = ("a", 0), ("b", 0)
    moved = replace(
        program,
        buffers=(*program.buffers, *halves),
        operations=(*program.operations[:2], replace(program.operations[2], addresses=split)),
    )
    with pytest.raises(ProgramError, match="all tiles must lie in one pool"):
        moved.place(2, lambda name: (2 if name == "b" else 1, 0))
