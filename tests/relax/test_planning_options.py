"""PlanMemory's options by name: of the scope, of calls, bad ones, legacy pools."""

from __future__ import annotations

import pytest

pytest.importorskip("tvm")

import tvm

from npu_memplan.problem import Agent, Pool
from npu_memplan.transform import (
    ConfigError,
    ConstantPoolInfo,
    PlanMemory,
    PoolInfoProperties,
    WorkspaceMemoryPools,
    WorkspacePoolInfo,
    config,
    pass_context,
    pool_sizes,
)
from npu_memplan.transform.config import LegacyPoolError


def test_options_come_from_the_scope_and_arguments_win(zoo):
    module = zoo.ZOO["mlp"]().module
    linear = PlanMemory(planner="linear")(module)
    with config({"npu_memplan.planner": "linear", "npu_memplan.pools": [Pool("ram")]}):
        scoped = PlanMemory()(module)
        with config({"tir.usmp.algorithm": "greedy_by_size"}):
            inner = PlanMemory()(module)
        given = PlanMemory(planner="auto")(module)
    assert pool_sizes(scoped) == {"ram": pool_sizes(linear)["workspace"]}
    assert pool_sizes(inner)["ram"] < pool_sizes(scoped)["ram"]
    assert pool_sizes(given)["ram"] < pool_sizes(scoped)["ram"]


def test_pass_context_takes_both_kinds_of_options(zoo):
    module = zoo.ZOO["mlp"]().module
    options = {"tir.usmp.use_workspace_io": True, "tir.disable_storage_rewrite": True, "npu_memplan.alignment": 64}
    with pass_context(opt_level=3, config=options) as context:
        assert context.config["tirx.disable_storage_rewrite"]
        planned = PlanMemory()(module)
    assert [p.name for p in planned["main"].params] == ["workspace"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"npu_memplan.planer": "auto"}, "unknown planning option 'npu_memplan.planer'; known: npu_memplan.pools, "),
        ({"tir.usmp.algorithm": "best"}, "tir.usmp.algorithm='best' is unknown; known: greedy_by_size, "),
        ({"tir.usmp.enable": False}, "leave PlanMemory out of the pipeline"),
        ({"npu_memplan.pools": []}, "must be a list of at least one npu_memplan.Pool"),
        ({"npu_memplan.alignment": "big"}, "npu_memplan.alignment must be of type int, not 'big'"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message), config(options):
        pass


@pytest.mark.parametrize(
    "options, message",
    [
        ({"alignment": 3}, "alignment is 3; give a power of two, in bytes"),
        ({"alignment": 0}, "alignment is 0; give a power of two"),
        ({"alignment": True}, "alignment must be of type int, not True"),
        ({"bounds": {"H": 32}}, "bounds has 'H', but no parameter of a Relax function has .* there are: h, w"),
        ({"bounds": {"h": "x"}}, "the name of each shape symbol and its greatest value >= 1"),
        ({"bounds": {"h": -3}}, "its greatest value >= 1"),
        ({"bounds": {"h": True}}, "its greatest value >= 1"),
        ({"bounds": {3: 4}}, "the name of each shape symbol"),
        ({"poison": 256}, "poison is 256; give a byte, 0 to 255"),
        ({"seed": -1}, "seed is -1; give a number >= 0"),
        ({"planner": "best"}, "no planner is called 'best'; there are: .*auto"),
        ({"pools": [Pool("a"), Pool("a")]}, "pools has two pools called 'a'"),
        ({"overlaps": "no"}, "overlaps must be of type bool, not 'no'"),
        ({"share": True, "use_workspace_io": True}, "share=True and use_workspace_io=True contradict each other"),
        (
            {"bounds": {"h": 8, "w": 8}, "worst_case": False, "use_workspace_io": True},
            "worst_case=False and use_workspace_io=True contradict each other",
        ),
    ],
)
def test_options_that_can_only_be_mistakes_are_refused(options, message, zoo):
    with pytest.raises(ConfigError, match=message):
        PlanMemory(**options)(zoo.ZOO["dynamic_convs"]().module)


def test_legacy_pools_map_one_to_one():
    properties = PoolInfoProperties(
        size_hint_bytes=1 << 20,
        clock_frequency_hz=200_000_000,
        read_bandwidth_bytes_per_cycle=4,
        write_bandwidth_bytes_per_cycle=2,
        read_latency_cycles=8,
        write_latency_cycles=9,
        target_burst_bytes={"ethos-u": 16},
    )
    pools = list(
        WorkspaceMemoryPools(
            [
                WorkspacePoolInfo("sram", ["ethos-u", "c"], properties),
                WorkspacePoolInfo("host", [tvm.target.Target("llvm")]),
            ]
        )
    )
    sram = Pool(
        "sram",
        1 << 20,
        clock_hz=200_000_000,
        read_bandwidth_bytes_per_cycle=4,
        write_bandwidth_bytes_per_cycle=2,
        read_latency_cycles=8,
        write_latency_cycles=9,
        burst_bytes={"ethos-u": 16},
        targets=("ethos-u", "c"),
    )
    assert pools == [sram, Pool("host", agents=frozenset({Agent.HOST}), targets=("llvm",))]
    assert ConstantPoolInfo("flash", ["c"]).pool().read_only


def test_legacy_pool_with_unknown_target_is_refused():
    with pytest.raises(LegacyPoolError, match="pool 'sram': target 'cuda' is unknown; known: c, llvm"):
        WorkspacePoolInfo("sram", ["cuda"]).pool()
