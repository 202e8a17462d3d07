"""--fit: what is tried, in which order rows stand, what is said. The compiler here is a table of sizes; real ones run
in test_real.py. Knobs: that `explain`, errors and `--fit` name the same.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import Operator
from npu_memplan.errors import InternalError, NpuMemplanError, RefusalError
from npu_memplan.fit import FitError, FitResult, fit
from npu_memplan.knobs import ALL, fit_trials, useful_knobs
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError
from npu_memplan.problem import Agent, PlanStatus
from npu_memplan.process.incidents import STRICT, contain_faults
from npu_memplan.report.text.compile_result import does_not_fit
from npu_memplan.report.text.explain import explain_peak

U55 = CompileOptions(npu_compiler="vela").resolve_defaults()
U65 = CompileOptions("ethos-u65-256", npu_compiler="vela", memory_mode="Shared_Sram").resolve_defaults()


@dataclass(frozen=True)
class Made:
    """What a trial reads of an artifact."""

    bytes: int
    total_cycles: int | None = None
    host_operations: int = 0
    calls: tuple[int, ...] = (0,)
    run_pools: tuple[int, ...] = (0,)
    operators: tuple[Operator, ...] = ()
    plan: Any = dataclasses.field(default_factory=lambda: SimpleNamespace(status=PlanStatus.OPTIMAL))

    def pool_bytes(self, pool: str) -> int:
        return self.bytes


def fitted(
    sizes: Callable[[CompileOptions], Made], budget: int, options: CompileOptions = U55
) -> tuple[FitResult, CompileOptions]:
    """`fit` of a compiler that makes `sizes(options)`; the options it chose."""
    requested = dataclasses.replace(options, pools={"sram": budget})

    def compiled(o: CompileOptions) -> Any:
        return SimpleNamespace(artifact=sizes(o), options=o)

    result, chosen = fit(compiled, requested, "sram", budget, "m.tflite")
    return result, chosen.options  # type: ignore[attr-defined]


def sizes(o: CompileOptions) -> Made:
    if o.accelerator == "none":
        return Made(40, None, 9)
    if o.npu_compiler == "tvm":
        return Made(50, 700) if o.stripes else Made(80, 500)
    if o.optimise == "Size":
        return Made(60, 650)
    return Made(70, 600) if o.arena_cache_size_bytes else Made(100, 600)


def test_everything_is_tried_and_the_cheapest_that_fits_is_taken() -> None:
    result, chosen = fitted(sizes, 64)
    assert [(t.fits, t.required_bytes, t.estimated_cycles, t.flags) for t in result.trials] == [
        (True, 60, 650, "--pool sram=64 --npu-compiler vela,Size"),
        (True, 60, 650, "--pool sram=64 --npu-compiler vela,Size,arena=64"),
        (True, 50, 700, "--pool sram=64 --npu-compiler tvm --stripes"),
        (True, 40, None, "--accelerator none --pool sram=64"),
        (False, 70, 600, "--pool sram=64 --npu-compiler vela,arena=64"),
        (False, 70, 600, "--pool sram=64 --npu-compiler vela,arena=48"),
        (False, 80, 500, "--pool sram=64 --npu-compiler tvm"),
        (False, 100, 600, "--pool sram=64 --npu-compiler vela"),
    ]
    assert chosen.optimise == "Size"
    assert result.flags == "--pool sram=64 --npu-compiler vela,Size"
    assert result.to_text().splitlines()[:6] == [
        "  bytes   KiB  fits  cycles  host calls  inexact  flags (of sram 64)",
        "     60  0.06  yes      650           0        0  --pool sram=64 --npu-compiler vela,Size",
        "     60  0.06  yes      650           0        0  --pool sram=64 --npu-compiler vela,Size,arena=64",
        "     50  0.05  yes      700           0        0  --pool sram=64 --npu-compiler tvm --stripes",
        "     40  0.04  yes        -           9        0  --accelerator none --pool sram=64",
        "     70  0.07  no       600           0        0  --pool sram=64 --npu-compiler vela,arena=64",
    ]


def test_exact_results_are_worth_more_than_cycles() -> None:
    def made(o: CompileOptions) -> Made:
        unproven = Operator("y", "ADD", Agent.NPU)
        found = sizes(o)
        return dataclasses.replace(found, operators=(unproven,)) if o.optimise == "Size" else found

    result, chosen = fitted(made, 64)
    assert (chosen.stripes, [t.inexact for t in result.trials[:4]]) == (True, [0, 1, 1, 0])


def test_what_fits_as_asked_is_left_alone() -> None:
    result, chosen = fitted(sizes, 100)
    assert [t.flags for t in result.trials] == ["--pool sram=100 --npu-compiler vela"]
    assert chosen.pools == {"sram": 100}


def test_nothing_fits_says_the_least_and_the_flags_that_reach_it() -> None:
    with pytest.raises(FitError) as error:
        fitted(sizes, 32)
    lines = str(error.value).splitlines()
    assert lines[0] == "nothing that was tried fits 32 bytes (0.03 KiB) of sram:"
    assert len(lines) == 1 + 1 + 8 + 4 + 2
    assert lines[-3:] == [
        "the least is 40 bytes (0.04 KiB), 8 too many:",
        "  --accelerator none --pool sram=40",
        "what is left to change is the pool, or the model or its input",
    ]


def test_what_costs_nothing_is_added_where_it_buys_something() -> None:
    strict = dataclasses.replace(U55, reuse_inputs=False, npu_compiler="tvm", stripes=False)

    def made(o: CompileOptions) -> Made:
        gains = 35 * o.reuse_inputs
        return Made(10**4) if o.npu_compiler == "vela" else Made(100 - gains, 9, calls=(0, 1, 2))

    result, chosen = fitted(made, 70, strict)
    assert (chosen.reuse_inputs, chosen.stripes) == (True, False)
    assert result.flags == "--pool sram=70 --npu-compiler tvm"
    flags = [t.flags for t in result.trials]
    assert "--pool sram=70" not in flags  # of Vela's: it bought nothing there


def test_a_second_memory_is_tried_where_the_system_has_one() -> None:
    def made(o: CompileOptions) -> Made:
        both = o.memory_mode.startswith("Dedicated_Sram")
        return Made(10, 100, run_pools=(0, 1)) if both else Made(90 if o.stripes else 100, 900)

    result, chosen = fitted(made, 64, U65)
    assert chosen.memory_mode == "Dedicated_Sram"
    own = "--accelerator ethos-u65-256 --pool sram=64 --npu-compiler vela,arena=64"
    assert result.flags == own  # that mode is its own
    assert len({t.flags for t in result.trials}) == len(result.trials)  # nothing twice
    assert not any("Dedicated" in t.options.memory_mode for t in fitted(sizes, 64)[0].trials)


def test_what_cannot_compile_is_reported_and_passed_over() -> None:
    def made(o: CompileOptions) -> Made:
        if o.npu_compiler == "tvm":
            raise RefusalError("no such operator:\n  and more lines")
        return sizes(o)

    result, _ = fitted(made, 64)
    assert "  not possible: --pool sram=64 --npu-compiler tvm: no such operator\n" in result.to_text()

    def never(o: CompileOptions) -> Made:
        raise NpuMemplanError("no such file")

    with pytest.raises(NpuMemplanError, match=r"^no such file$"):
        fitted(never, 64)


@pytest.fixture
def lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for users: faults are told, not raised."""
    monkeypatch.delenv(STRICT)


def test_a_fault_in_one_trial_is_reported_and_ends_no_other(lenient: None) -> None:
    def made(o: CompileOptions) -> Made:
        if o.npu_compiler == "tvm":
            raise NpuMemplanError("no such error") if o.stripes else KeyError("no such view")
        return sizes(o)

    result, chosen = fitted(made, 64)
    assert chosen.optimise == "Size"
    fault = "internal fault: --pool sram=64 --npu-compiler tvm: KeyError: 'no such view'"
    assert fault in result.trial_faults
    assert any("--stripes: NpuMemplanError: no such error" in text for text in result.trial_faults)
    assert f"\n  {fault}\n" in result.to_text()
    told = [trial["faults"] for trial in result.to_dict()["trials"] if "tvm" in trial["flags"]]
    assert [bool(faults) for faults in told] == [True, True]


def test_a_fault_in_the_first_trial_is_reported_and_ends_no_other(lenient: None) -> None:
    def made(o: CompileOptions) -> Made:
        if o.to_cli_args() == ("--pool", "sram=64", "--npu-compiler", "vela"):
            raise KeyError("no such view")
        return sizes(o)

    result, chosen = fitted(made, 64)
    assert chosen.optimise == "Size"
    assert result.trial_faults == ("internal fault: --pool sram=64 --npu-compiler vela: KeyError: 'no such view'",)


def test_a_fault_in_every_trial_is_raised_as_one(lenient: None) -> None:
    def made(o: CompileOptions) -> Made:
        raise KeyError("no such view")

    with pytest.raises(InternalError, match="--pool sram=64 --npu-compiler tvm: KeyError: 'no such view'"):
        fitted(made, 64)


def test_a_fault_inside_a_trial_is_reported_in_its_row(lenient: None) -> None:
    def made(o: CompileOptions) -> Made:
        with contain_faults("one candidate"):
            raise KeyError("no such view")
        return sizes(o)

    result, _ = fitted(made, 100)
    assert result.trials[0].faults == ("one candidate: KeyError: 'no such view'",)


@pytest.mark.parametrize(
    ("options", "source", "count"),
    [
        (U55, "m.tflite", 8),
        (dataclasses.replace(U55, npu_compiler="tvm"), "m.tflite", 6),  # Vela's ways, too
        (dataclasses.replace(U55, npu_compiler="tvm"), "m.onnx", 3),
        (CompileOptions("none").resolve_defaults(), "m.tflite", 1),
    ],
)
def test_both_producers_and_the_host_are_tried(options: CompileOptions, source: str, count: int) -> None:
    found = list(fit_trials(options, 4096, source))
    assert len(found) == count
    assert all(o == o.resolve_defaults() for o in found)
    if options.accelerator != "none":
        kinds = {(o.accelerator == "none", o.npu_compiler, o.stripes) for o in found}
        vela = {(False, "vela", False)} if source.endswith("tflite") else set()
        assert kinds == {(True, "vela", False), (False, "tvm", False), (False, "tvm", True), *vela}


def test_explain_the_error_and_fit_name_the_same(small: Artifact) -> None:
    budget = 12288
    able = useful_knobs(small.target, budget, "small.tflite", searched=False)
    named = [knob.flag_text(small.target, budget) for knob in able]
    assert named == [
        "--planner optimal",
        "--npu-compiler vela,arena=12288",
        "--npu-compiler vela,arena=9216",
        "--npu-compiler vela,Size",
        "--npu-compiler tvm",
        "--npu-compiler tvm --stripes",
        "--accelerator none",
    ]
    error = PlanningError("", pool="sram", required_bytes=20000, available_bytes=budget)
    problem = dataclasses.replace(small.problem, points=tuple(f"{i}:f.0" for i in range(9)))
    text = str(does_not_fit(error, problem, "small.tflite", small.target))
    assert "  npu-memplan compile small.tflite --accelerator ethos-u55-128 --fit sram=12288 -o DIR" in text
    assert [flags for flags in named if f"\n    {flags}  " in text] == named
    (peak, *_) = explain_peak(small).pools
    assert {"--npu-compiler tvm --stripes", "--accelerator none"} <= {flags for flags, _ in peak.knobs}
    assert [peak for peak in explain_peak(dataclasses.replace(small, operators=())).pools if peak.knobs] == []


def test_every_lever_says_what_it_does_in_one_line() -> None:
    assert all(0 < len(knob.does) < 60 for knob in ALL)
    strict = dataclasses.replace(U55, reuse_inputs=False)
    assert next(knob.flag_text(strict, 64) for knob in useful_knobs(strict, 64, "m.tflite", searched=True)) == (
        "(without --resident inputs)"
    )
