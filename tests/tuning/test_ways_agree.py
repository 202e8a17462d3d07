"""One network asked in many ways: sizes, limits and objectives give programs that do not contradict each other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import pytest

from benchmarks.compile_cost import Growing, square
from npu_memplan import planners
from npu_memplan.commands.compile import parse_options
from npu_memplan.compiler import model_loader, plan_network
from npu_memplan.exactness import Exactness
from npu_memplan.frontend.attributes import operators_of
from npu_memplan.planners import PlanningError
from npu_memplan.request import FASTER
from npu_memplan.stages import Planned
from npu_memplan.tuning import smallest
from npu_memplan.tuning.pareto import explore
from npu_memplan.tuning.ranking import Rank, Ranking
from npu_memplan.tuning.selection import OURS
from npu_memplan.tuning.smallest import HOST
from tests.support.random_networks.branching import branching
from tests.support.real_data import network, real_model
from tests.support.saving import save

ONE_BACKEND = (
    "--objective bytes --effort quick", "--objective bytes --npu-compiler vela,Size", "--stripes",
    "--objective bytes --npu-compiler tvm", "--objective bytes --stripes", "--accelerator none",
)  # fmt: skip
QUICK = "--effort quick"  # the candidates for the fewest bytes are those of every effort
MODELS = ("kws_ref_model", "randwire")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file of a network."""

    @lru_cache(2)
    def file(name: str) -> Path:
        if name != "randwire":
            return real_model(name)
        path = save(tmp_path_factory.mktemp("networks") / f"{name}.tflite", branching(name, 12, 1, 16).finish())
        return path

    return file


@lru_cache(32)
def cost(path: Path, options: str) -> Rank:
    """Cycles and bytes; of nothing on the NPU, more cycles than of anything there."""
    planned = plan_network(path, parse_options(shlex.split(options)))
    memory_map = planned.extracted.loaded.request.options.memory_map()
    cycles, size = Ranking(memory_map)(planned) if memory_map is not None else (0, planned.plan.usage[0].used_bytes)
    return cycles or 1 << 60, size


def required_bytes(path: Path, options: str) -> int:
    with pytest.raises(PlanningError) as refused:
        plan_network(path, parse_options(shlex.split(options)))
    return refused.value.required_bytes


@pytest.mark.parametrize("name", MODELS)
def test_least_is_least_and_no_way_is_beaten(name: str, model: Callable[[str], Path]) -> None:
    path = model(name)
    fast, usual = cost(path, QUICK)
    _, least = cost(path, "--objective bytes")
    assert all(least <= cost(path, way)[1] for way in ONE_BACKEND)
    assert least < usual
    assert cost(path, f"{QUICK} --pool sram={usual}") == (fast, usual)
    pools = [f"{QUICK} --pool sram={size}" for size in (least, (least + usual) // 2, usual, 9 * usual // 8, 2 * usual)]
    in_pools = [cost(path, pool) for pool in pools]
    assert in_pools[0][1] == least
    assert in_pools == sorted(in_pools, key=lambda found: -found[0])  # a larger pool is never slower
    most_ms = 2 * fast / 500e3  # at the clock of the usual system
    ways = [QUICK, "--objective bytes", f"{QUICK} --max-ms {most_ms:.4f}", *pools]
    assert cost(path, ways[2])[0] <= 2 * fast
    found = {way: cost(path, way) for way in ways}
    front = explore(path, parse_options(shlex.split(QUICK)), model_loader(path), (least, usual))
    found |= {f"explore {point.limit_bytes}": (point.cycles, point.bytes) for point in front.points}
    assert front.points[0].bytes == least
    beaten = [
        (one, other) for one, (cycles, size) in found.items() for other, (less, fewer) in found.items()
        if less < cycles and fewer < size
    ]  # fmt: skip
    assert not beaten


@pytest.mark.parametrize("name", MODELS)
def test_what_is_required_is_what_the_smallest_program_needs(name: str, model: Callable[[str], Path]) -> None:
    path = model(name)
    _, least = cost(path, "--objective bytes")
    assert required_bytes(path, f"--pool sram={least - 1}") == least
    assert required_bytes(path, f"--pool sram={least // 2} --objective bytes") == least


def test_a_plan_for_bytes_alone_takes_more_cycles() -> None:
    """That of `plan plan.json`, as the page says: buffers move, and operations wait for each other."""
    planned = plan_network(real_model("kws_ref_model"), parse_options([]))
    memory_map = planned.extracted.loaded.request.options.memory_map()
    assert memory_map is not None
    again = Planned(planned.extracted, planners.plan(planned.extracted.problem))
    assert Ranking(memory_map)(again) == (54_586, 18_256)
    assert Ranking(memory_map)(planned) == (47_844, 20_640)


def test_a_pool_of_the_fewest_bytes_takes_the_same_program() -> None:
    """Where nothing fits at first, too: stripes that were chosen under another model of time are not taken over."""
    for name in ("str_ww_ref_model", "pretrainedResnet_quant"):
        path = real_model(name)
        fewest = cost(path, "--objective bytes")
        assert cost(path, f"--pool sram={fewest[1]}") == fewest
    assert required_bytes(path, f"--pool sram={fewest[1] - 1}") == fewest[1]


def test_the_host_alone_is_not_taken_for_as_many_bytes() -> None:
    """Its estimate has no wait states, by which it would be ahead."""
    path = network("ad01_int8")
    planned = plan_network(path, parse_options(["--objective", "bytes"]))
    assert planned.extracted.loaded.backend != HOST
    least = cost(path, "--objective bytes")
    alone = plan_network(path, parse_options(["--accelerator", "none"]))
    assert alone.plan.usage[0].used_bytes == least[1]
    front = explore(path, parse_options([]), model_loader(path), (least[1],))
    assert [(point.cycles, point.bytes) for point in front.points] == [least]


def test_a_board_takes_the_fewest_bytes_within_a_hundredth_of_the_cycles() -> None:
    path, on_board = real_model("kws_ref_model"), "--board alif-e7-he"
    fast, fast_bytes = cost(path, f"{on_board} --objective cycles")
    cycles, size = cost(path, on_board)
    planned = plan_network(path, parse_options(shlex.split(on_board)))
    assert planned.plan.usage[0].used_bytes == size < fast_bytes
    assert planned.extracted.problem.pools[0].size_bytes == 4 << 20  # the board's, no limit of the search
    assert cycles <= 1.01 * fast


def test_a_board_takes_no_more_than_velas_bytes_and_says_what_more_would_gain() -> None:
    path, on_board = real_model("kws_ref_model"), "--board alif-e7-hp"
    planned = plan_network(path, parse_options(shlex.split(on_board)))
    cycles, size = cost(path, on_board)
    assert size <= planned.extracted.loaded.vela_arena_bytes["sram"] < planned.extracted.problem.pools[0].size_bytes
    (note,) = (note for note in planned.extracted.loaded.notes if note.startswith(FASTER))
    found = re.search(r"(--pool sram=\d+), about ([\d,]+) cycles \((-[\d.]+) %\)", note)
    assert found is not None, note
    fewer = int(found[2].replace(",", ""))
    assert f"{100 * (fewer / cycles - 1):.1f}" == found[3]
    assert cost(path, f"{on_board} {found[1]}")[0] <= 1.01 * fewer < cycles
    assert cost(path, f"{on_board} --objective cycles")[0] <= fewer


def test_a_pool_above_velas_bytes_is_not_slower_than_the_fewest_cycles_in_these() -> None:
    path = real_model("kws_ref_model")
    assert cost(path, "--pool sram=24KiB")[0] <= cost(path, "--objective cycles")[0]


def test_a_larger_pool_is_not_slower_where_one_search_finds_less_in_it() -> None:
    """A board's own program is one of those that are compared; the worst timing model decides between close ones."""
    path, on_board = real_model("kws_ref_model"), "--board alif-e7-hp"
    small, large = (cost(path, f"--pool sram={size}")[0] for size in (13440, 14184))
    assert large <= 1.001 * small
    usual = cost(path, on_board)
    in_pools = [cost(path, f"{on_board} --pool sram={size}")[0] for size in (21504, usual[1], 22192)]
    assert in_pools == sorted(in_pools, reverse=True)
    assert in_pools[1] <= usual[0]


@pytest.mark.parametrize("board", ["", "--board alif-e7-hp "])
def test_the_fewest_cycles_are_not_more_than_those_of_the_default(board: str) -> None:
    """The default searches its form in fewer bytes, too; with a board, a smaller pool had a faster program."""
    path = real_model("kws_ref_model")
    fewest = cost(path, f"{board}--objective cycles")
    assert fewest <= cost(path, board)
    assert not board or fewest[0] <= cost(path, f"{board}--pool sram=28160")[0]


@pytest.mark.parametrize("npu_compiler", ["vela", "tvm"])
def test_one_backend_keeps_within_velas_bytes_on_a_board(npu_compiler: str) -> None:
    planned = plan_network(
        real_model("kws_ref_model"), parse_options(["--board", "alif-e7-hp", "--npu-compiler", npu_compiler])
    )
    assert planned.plan.usage[0].used_bytes <= planned.extracted.loaded.vela_arena_bytes["sram"]
    assert any(note.startswith(FASTER) for note in planned.extracted.loaded.notes)


def test_one_backend_is_compared_by_the_limits_of_both() -> None:
    path = network("vww_96_int8")
    assert cost(path, "--npu-compiler tvm") == cost(path, "")


def test_a_stream_that_is_not_exact_is_compared_with_native_lowering() -> None:
    """Though it takes hardly more cycles than the port needs for its constants."""
    path = network("ad01_int8")
    planned = plan_network(path, parse_options([]))
    assert planned.extracted.loaded.backend == OURS
    assert cost(path, "")[0] <= cost(path, "--npu-compiler vela")[0]
    assert cost(path, "") == cost(path, "--objective bytes")  # blocks of constants that no pool has room for
    operators = operators_of(planned.extracted.loaded.module["main"])
    assert all(operator.claim.exactness is Exactness.EXACT for operator in operators)


def test_nothing_is_made_beside_a_stream_that_reads_constants_all_the_time(tmp_path: Path) -> None:
    """Though it is not exact: to lower a large layer takes much time and memory, and can gain nothing."""
    maker = Growing()
    given, made = square(maker, 1024)
    planned = plan_network(save(tmp_path / "large.tflite", maker.made([given], [made]).finish()), parse_options([]))
    operators = operators_of(planned.extracted.loaded.module["main"])
    assert not any(operator.claim.exactness is Exactness.EXACT for operator in operators)
    assert not any(OURS in note for note in planned.extracted.loaded.notes)


def test_another_order_in_stripes_is_a_candidate_for_the_fewest_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(smallest, "_shrink_program", lambda planned, *_: planned)  # what is compared at first
    path = save(tmp_path / "network.tflite", branching("randwire", 12, 3, 16).finish())
    _, in_the_files_order = cost(path, "--objective bytes --npu-compiler tvm --stripes")
    assert cost(path, "--objective bytes")[1] < in_the_files_order


def test_the_host_alone_is_taken_where_it_needs_no_more_of_any_pool() -> None:
    path = real_model("hello_world_int8")
    planned = plan_network(path, parse_options(["--accelerator", "ethos-u65-256", "--objective", "bytes"]))
    assert planned.extracted.loaded.backend != HOST
    usage = planned.plan.usage
    alone = plan_network(path, parse_options(["--accelerator", "none", "--memory-mode", "Dedicated_Sram"])).plan.usage
    assert any(host.used_bytes > own.used_bytes for host, own in zip(alone, usage, strict=True))
