"""The estimate of the host: counted by hand, held to executed instructions, and part of every sum."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tvm.script import tirx as T

from benchmarks.host_beside_npu import Task, side_by_side_ms
from benchmarks.host_instructions import counted
from fvp_runner.base import RunOptions
from fvp_runner.emulators import qemu
from npu_memplan.artifact import Artifact
from npu_memplan.host_time import HostWork, costs_for, host_costs, host_work
from npu_memplan.problem import Agent
from npu_memplan.report.text.diff import compare_plans
from npu_memplan.target_data import TargetDataError
from tests.support.real_data import Models


@T.prim_func(s_tir=True)
def dot(a: T.Buffer((8, 16), "int8"), b: T.Buffer((8, 16), "int8"), out: T.Buffer((8,), "int32")):
    sum = T.alloc_local((1,), "int32")
    for i in range(8):
        sum[0] = 0
        for k in range(16):
            sum[0] = sum[0] + T.Cast("int32", a[i, k]) * T.Cast("int32", b[i, k])
        out[i] = T.max(sum[0], 0)


@T.prim_func(s_tir=True)
def odd(a: T.Buffer((12,), "float32"), out: T.Buffer((3, 4), "float32"), wide: T.Buffer((1,), "int64")):
    for i in range(12):
        if i < 6:
            out[i // 3, i % 4] = a[i] / T.float32(3) + T.exp(a[i])
        else:
            out[i // 3, i % 4] = a[i]
    wide[0] = (wide[0] * T.int64(3)) // T.int64(7)


@T.prim_func(s_tir=True)
def every_second(a: T.Buffer((6,), "int32"), out: T.Buffer((6, 4), "int32")):
    at = T.alloc_local((1,), "int32")
    for i, k in T.grid(6, 4):
        at[0] = T.Div(i - k, 2)
        if at[0] * 2 == i - k and i >= k:
            out[i, k] = a[i]
        if a[i] > 0:
            out[i, k] = 0
        else:
            out[i, k] = a[i] * 3


def test_loops_multiply_and_registers_are_free() -> None:
    c = host_costs()
    inner = c.load * 2 + c.multiply + c.integer + c.loop  # both operands; multiply, add; the sum is a register
    outer = 16 * inner + 2 * c.integer + c.store + c.loop  # max is a compare and a select
    assert host_work(dot) == HostWork(8 * outer + c.call, 8 * (16 * 2 + 1), 8 * (16 * 2 + 4))


def test_branches_count_as_often_as_they_run_and_divisions_of_an_index_too() -> None:
    c = host_costs()
    index = c.divide + c.integer  # by 3; by 4 is a mask
    branch = 2 * c.load + c.float_divide + c.function + c.float + index + c.store
    wide = c.load + c.wide_multiply + c.wide_divide + c.store
    other = c.load + index + c.store
    assert host_work(odd).cycles == 12 * (c.integer + branch / 2 + other / 2 + c.loop) + wide + c.call
    dear = replace(c, function=1000.0)
    assert host_work(odd, dear).cycles - host_work(odd).cycles == 6 * (1000 - c.function)


def test_the_dearer_side_of_a_branch_counts_where_data_decide() -> None:
    c, dear = host_costs(), replace(host_costs(), store=1000.0, multiply=50.0)
    rounds = [(i, k) for i in range(6) for k in range(4)]
    taken = sum((i - k) % 2 == 0 and i >= k for i, k in rounds)
    more = taken * (1000 - c.store) + len(rounds) * (1000 - c.store + 50 - c.multiply)
    assert host_work(every_second, dear).cycles - host_work(every_second).cycles == more + len(rounds) * (
        50 - c.multiply
    )


def test_an_unknown_host_is_an_error() -> None:
    with pytest.raises(
        TargetDataError, match="nothing is known of the time of host 'z80'; known: cortex-m55, cortex-m33"
    ):
        host_costs("z80")


def test_a_cpu_without_helium_has_costs_of_its_own() -> None:
    assert costs_for("") == costs_for("cortex-m55") == costs_for("cortex-m85+nopacbti") == host_costs("cortex-m55")
    assert costs_for("cortex-m33+nodsp") == costs_for("cortex-m7") == host_costs("cortex-m33")
    helium, plain = (host_costs(cpu).kernels for cpu in ("cortex-m55", "cortex-m33"))
    assert plain.vector > helium.vector


def test_sums_have_the_host(cli: Any, shared_model: Models, tmp_path: Path) -> None:
    model = shared_model("keyword_scrambled_8bit")
    made = cli.ok("compile", model, "--json", "-o", tmp_path / "out")
    document, artifact = json.loads(made.out), Artifact.load(tmp_path / "out")
    rows = list(csv.DictReader((tmp_path / "out" / "layers.csv").read_text().splitlines()))
    host = [row for row in rows if row["Target"] == "CPU"]
    assert [(row["Original Operator"], int(row["Operator Index"])) for row in host] == [
        (operator.kind, index) for index, operator in enumerate(artifact.operators) if operator.agent.value == "host"
    ]
    cycles = sum(int(row["Host Cycles (rough)"]) for row in host)
    assert cycles == document["host_cycles"] == artifact.host_cycles
    npu = document["estimated_cycles"]
    assert sum(int(row["Op Cycles"]) for row in rows) == npu + cycles == artifact.total_cycles
    assert sum(float(row["Network% (cycles)"]) for row in rows) == pytest.approx(100, abs=0.2)
    text = " ".join((tmp_path / "out" / "memory.txt").read_text().split())
    milliseconds = (1000 * npu / 500e6, 1000 * cycles / 500e6)
    assert document["estimated_ms"] == pytest.approx(milliseconds[0])
    assert document["host_ms"] == pytest.approx(milliseconds[1])
    assert document["total_ms"] == pytest.approx(sum(milliseconds))
    assert milliseconds[1] < document["vela_total_ms"]
    assert f"CPU: about {cycles:,} cycles (" in text
    assert f"; {milliseconds[1]:.3f} ms at 500 MHz; with the NPU {sum(milliseconds):.3f}" in text
    share = 100 * milliseconds[0] / sum(milliseconds)
    shares = f"NPU {share:.1f} %, CPU {100 - share:.1f} % ({len(host)} calls)"
    assert f" (estimated; the range is the NPU's): {shares}" in text
    changes = {change.what: change for change in compare_plans(artifact, artifact).sizes}
    assert changes["NPU and CPU, microseconds"].after == round(1000 * sum(milliseconds))


@T.prim_func(s_tir=True)
def foreign(a: T.Buffer((8,), "int8"), out: T.Buffer((8,), "int8")):
    T.evaluate(T.call_extern("void", "theirs", T.address_of(a[0]), T.address_of(out[0])))


@T.prim_func(s_tir=True)
def in_blocks(a: T.Buffer((8,), "float32"), out: T.Buffer((8,), "float32")):
    for i in range(8):
        with T.sblock("doubled"):
            place = T.axis.spatial(8, i)
            out[place] = a[place] * T.float32(2)


def test_what_c_alone_does_is_not_known_and_what_tvm_lowered_is() -> None:
    c = host_costs()
    assert not host_work(foreign).known
    assert host_work(in_blocks) == HostWork(8 * (c.load + c.float + c.store + c.loop) + c.call, 8, 8 * 8)


def test_calls_side_by_side_wait_for_what_they_depend_on() -> None:
    npu, cpu = Agent.NPU, Agent.HOST
    first, second = Task(npu, 2.0, ("x",), ("a",)), Task(cpu, 1.0, ("a",), ("b",))
    beside = Task(npu, 3.0, ("a",), ("c",))
    assert side_by_side_ms((first, second)) == 3.0  # what it reads is written first
    assert side_by_side_ms((first, second, beside)) == 5.0  # beside the CPU's
    assert side_by_side_ms((first, second, Task(npu, 3.0, ("x",), ("b",)))) == 6.0  # the same buffer, later
    assert side_by_side_ms((first, Task(cpu, 1.5, ("x",), ("d",)), Task(cpu, 1.0, ("y",), ("x",)))) == 3.0
    assert side_by_side_ms(()) == 0.0


@pytest.mark.slow
@pytest.mark.qemu
@pytest.mark.skipif(qemu.missing(RunOptions()) is not None, reason="needs QEMU and arm-none-eabi-gcc")
def test_the_estimate_is_near_the_instructions_that_run(cli: Any, shared_model: Models, tmp_path: Path) -> None:
    """With Helium, on an emulated core; docs/time_model.md has more networks."""
    in_turn = ("--objective", "bytes")
    for name, more in (("kws_ref_model", ()), ("keyword_scrambled_8bit", ()), ("person_detect", in_turn)):
        cli.ok("compile", shared_model(name), "--accelerator", "none", *more, "-o", tmp_path / name)
        cycles = Artifact.load(tmp_path / name).host_cycles
        assert cycles is not None
        assert 0.9 < cycles / counted(tmp_path / name, "cortex-m55")[0] < 1.2, name
