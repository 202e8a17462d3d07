"""The ladder of --fit: order, what is kept, what is said. The compiler here is a table of sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from npu_memplan.errors import NpuMemplanError
from npu_memplan.fit import Attempt, FitError, FitResult, Rung, fit, fit_model, ladder
from npu_memplan.options import CompileOptions
from npu_memplan.planners import PlanningError

RUNGS = (
    Rung("as asked", {}, "nothing"),
    Rung("a", {"a": 1}, "time", {"--a": "1"}),
    Rung("b", {"b": 1}, "cycles", {"--b": "1"}),
    Rung("c", {"c": 1, "a": 0}, "traffic", {"--c": "1", "--a": None}),
)


def table(sizes: dict[frozenset[str], int], hard: int | None = None) -> Callable[[Mapping[str, object]], int]:
    """A compiler whose answer depends on which options are on; above `hard` it raises as planners do."""

    def compile(changes: Mapping[str, object]) -> int:
        size = sizes[frozenset(k for k, v in changes.items() if v)]
        if hard is not None and size > hard:
            raise PlanningError("no room", required_bytes=size, available_bytes=hard)
        return size

    return compile


SIZES = {
    frozenset(): 100,
    frozenset("a"): 90,
    frozenset("ab"): 95,
    frozenset("ac"): 1,
    frozenset("c"): 60,
}


@pytest.mark.parametrize("hard", [None, 60])
def test_first_rung_that_fits_wins_and_useless_ones_are_dropped(hard: int | None) -> None:
    seen: list[Attempt] = []
    result: FitResult[int] = fit(table(SIZES, hard), lambda size: size, 60, RUNGS, seen.append)
    assert [(a.rung.name, a.required_bytes, a.bought_bytes, a.kept, a.fits) for a in result.attempts] == [
        ("as asked", 100, 0, True, False),
        ("a", 90, 10, True, False),
        ("b", 95, 0, False, False),
        ("c", 60, 30, True, True),
    ]
    assert tuple(seen) == result.attempts
    assert (result.compiled, result.changes, result.flags) == (60, {"a": 0, "c": 1}, "--c 1 (without --a)")
    assert [a.to_text(60) for a in result.attempts] == [
        "as asked: needs 100 bytes (0.10 KiB), 40 too many",
        "a: needs 90 bytes (0.09 KiB), 30 too many; it bought 10 bytes (time)",
        "b: needs 95 bytes (0.09 KiB), 35 too many",
        "c: needs 60 bytes (0.06 KiB), fits 60 bytes (0.06 KiB); it bought 30 bytes (traffic)",
    ]


def test_what_fits_as_asked_is_left_alone() -> None:
    result = fit(table(SIZES), lambda size: size, 100, RUNGS)
    assert [a.rung.name for a in result.attempts] == ["as asked"]
    assert result.flags == ""


def test_nothing_fits_says_what_each_rung_reached() -> None:
    with pytest.raises(FitError) as error:
        fit(table(SIZES), lambda size: size, 50, RUNGS)
    assert str(error.value) == (
        "nothing that was tried fits 50 bytes (0.05 KiB):\n"
        "  as asked: needs 100 bytes (0.10 KiB), 50 too many\n"
        "  a: needs 90 bytes (0.09 KiB), 40 too many; it bought 10 bytes (time)\n"
        "  b: needs 95 bytes (0.09 KiB), 45 too many\n"
        "  c: needs 60 bytes (0.06 KiB), 10 too many; it bought 30 bytes (traffic)\n"
        "the least is 60 bytes (0.06 KiB), 10 too many\n"
        "a larger pool is needed, or a smaller model or input"
    )


def test_attempts_that_were_shown_are_not_repeated_in_the_error() -> None:
    with pytest.raises(FitError) as error:
        fit(table(SIZES), lambda size: size, 50, RUNGS, lambda attempt: None)
    assert str(error.value) == (
        "nothing that was tried fits 50 bytes (0.05 KiB)\n"
        "the least is 60 bytes (0.06 KiB), 10 too many\n"
        "a larger pool is needed, or a smaller model or input"
    )


def test_a_rung_that_cannot_compile_is_skipped() -> None:
    def compile(changes: Mapping[str, object]) -> int:
        if changes.get("a"):
            raise NpuMemplanError("this accelerator cannot")
        return 100 if not changes else 40

    result = fit(compile, lambda size: size, 50, RUNGS)
    assert result.attempts[1].required_bytes is None
    assert result.attempts[1].to_text(50) == "a: not possible (this accelerator cannot)"
    assert result.changes == {"b": 1}


def test_what_cannot_compile_at_all_says_why_instead_of_trying_rungs() -> None:
    def compile(changes: Mapping[str, object]) -> int:
        raise NpuMemplanError("no such file")

    with pytest.raises(NpuMemplanError, match=r"^no such file$"):
        fit(compile, lambda size: size, 50, RUNGS)


def test_the_ladder_only_offers_what_would_change_something() -> None:
    names = [r.name for r in ladder(CompileOptions(), "sram", 65536)]
    assert names == [
        "as asked",
        "another planner",
        "operator order",
        "Vela aims at this arena",
        "Vela aims lower",
        "Vela optimises for size",
        "both of Vela's",
        "Dedicated_Sram, spilling by cost",
    ]
    strict = CompileOptions(overlaps=False, reuse_inputs=False, planner="optimal", accelerator="none")
    assert [r.name for r in ladder(strict, "sram", 65536)] == [
        "as asked",
        "in-place and overlap",
        "operator order",
        "inputs in the workspace",
    ]
    ours = ladder(CompileOptions(npu_compiler="tvm"), "sram", 65536)
    assert [r.name for r in ours] == [
        "as asked",
        "another planner",
        "operator order",
        "NPU operations in stripes",
        "Dedicated_Sram, spilling by cost",
    ]
    assert ours[-1].changes == {"memory_mode": "Dedicated_Sram"}  # nothing of Vela's
    taken = CompileOptions(
        planner="optimal", reorder=True, optimise="Size", arena_cache_size_bytes=9, memory_mode="Dedicated_Sram"
    )
    assert [r.name for r in ladder(taken, "sram", 9)] == ["as asked", "Vela aims lower"]


def test_fit_model_hands_whole_options_to_the_compiler() -> None:
    asked: list[CompileOptions] = []

    def compile(options: CompileOptions) -> int:
        asked.append(options)
        return 10 if options.optimise == "Size" else 100

    result = fit_model(compile, lambda size: size, CompileOptions(pools={"dram": 5}), "sram", 50)
    assert [o.pools for o in asked] == [{"dram": 5, "sram": 50}] * len(asked)
    assert asked[-1].optimise == "Size"
    assert asked[-1].arena_cache_size_bytes is None  # that rung bought nothing
    assert result.flags == "--pool sram=50 --optimise Size"
