"""What users of the transforms read and run: docstrings in numpydoc form, examples, benchmarks, `relax_pipeline`,
and what the analyses report."""

from __future__ import annotations

import itertools
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm

from npu_memplan.transform import PlanMemory

pytest.importorskip("tvm")
from tvm import relax

import npu_memplan as nm
from benchmarks import upstream_wishes
from fvp_runner.host.runner import LocalRunner
from npu_memplan import analysis
from npu_memplan.extract import ExtractionError
from npu_memplan.files.paths import OutputError
from npu_memplan.planners import PlanningError
from npu_memplan.problem import Lifetime
from npu_memplan.relax import build_artifact, host_operators, lower_for_ethosu, partition_for_ethosu
from npu_memplan.transform import ConfigError, pass_context

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_dynamic_shapes_example():
    script = EXAMPLES / "relax_dynamic_shapes.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "any h, w: pool of [632, 5000, 65672] bytes for 2 x 2, 8 x 8 and 32 x 32"
    assert lines[1] == "h, w <= 32: pool of [65668, 65668, 65668] bytes for 2 x 2, 8 x 8 and 32 x 32"
    assert [line.endswith("equal the unplanned ones bit for bit") for line in lines[2:]] == [True] * 3


def test_npu_example(capsys, tmp_path):
    script = EXAMPLES / "relax_npu.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 60  # docs/howto/relax-npu.md says so
    names = runpy.run_path(str(script))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "4096 bytes of memory for all tensors"
    assert lines[1:] == ["8168 cycles, equal to TVM on the CPU, bit for bit"] * 3
    # the same with an operator that stays on the CPU
    accelerator = "ethos-u65-256"
    partitioned = partition_for_ethosu(names["module"], accelerator, exclude=("max_pool",))
    assert "nn.max_pool2d" in [o.kind for o in host_operators(partitioned)]
    lowered = lower_for_ethosu(partitioned, accelerator)
    artifact = build_artifact(lowered, tmp_path / "a", accelerator, pools={"sram": 65536}, name="block")
    assert (artifact.name, artifact.target.accelerator) == ("block", accelerator)
    (result,) = LocalRunner(tmp_path / "a").run([names["image"]]).outputs
    assert result.tobytes() == names["result"].outputs[0].tobytes()
    with pytest.raises(OutputError):
        build_artifact(lowered, tmp_path / "a", accelerator)


REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_wishes_are_as_the_proposal_has_them():
    assert upstream_wishes.table() in (REPOSITORY / "docs" / "upstream.md").read_text(encoding="utf-8")


def storages(module, pipeline) -> int:
    """How many storages the compiled `main` allocates at run time."""
    text = tvm.compile(module, target="llvm", relax_pipeline=pipeline).as_text()
    return text.split("@main")[-1].count("vm.builtin.alloc_storage")


def test_one_line_plans_and_builds(zoo, unplanned):
    entry, expected = unplanned("cnn_nhwc")
    for pipeline in (nm.relax_pipeline(), "npu_memplan"):
        vm = relax.VirtualMachine(tvm.compile(entry.module, target="llvm", relax_pipeline=pipeline), tvm.cpu())
        result = vm["main"](*map(tvm.runtime.tensor, entry.inputs[0])).numpy()
        np.testing.assert_array_equal(result, expected[0][0])
        assert storages(entry.module, pipeline) < storages(entry.module, nm.relax_pipeline(plan=False))


def test_what_is_planned_stays_as_it_is(zoo):
    planned = PlanMemory([nm.Pool("fast", 24 * 1024), nm.Pool("slow")])(zoo.ZOO["cnn_nhwc"]().module)
    again, once = (nm.relax_pipeline(plan=plan)(planned) for plan in (True, False))
    tvm.ir.assert_structural_equal(again, once)


def test_options_are_those_of_plan_memory(zoo):
    module = zoo.ZOO["cnn_nhwc"]().module
    pools = [nm.Pool("fast", 24 * 1024), nm.Pool("slow")]
    given = nm.relax_pipeline(pools, "first-fit", overlaps=False)(module)
    tvm.ir.assert_structural_equal(
        given, nm.relax_pipeline(plan=False)(PlanMemory(pools, "first-fit", overlaps=False)(module))
    )


def test_a_pool_that_is_too_small_stops_the_compilation(zoo):
    with pytest.raises(PlanningError, match="1024"):
        tvm.compile(zoo.ZOO["mlp"]().module, "llvm", relax_pipeline=nm.relax_pipeline([nm.Pool("sram", 1024)]))
    with pass_context(opt_level=3, config={"npu_memplan.pools": [nm.Pool("sram", 1024)]}), pytest.raises(PlanningError):
        tvm.compile(zoo.ZOO["mlp"]().module, "llvm", relax_pipeline="npu_memplan")


def test_options_of_a_plan_that_is_not_made_are_refused(zoo):
    with pytest.raises(ConfigError, match="plan=False plans nothing, so 'overlaps' has no meaning"):
        nm.relax_pipeline(plan=False, overlaps=False)(zoo.ZOO["mlp"]().module)


FLOATS = 4  # bytes


def test_liveness_of_a_small_network(zoo):
    found = analysis.liveness(zoo.ZOO["cnn_nhwc"]().module)
    assert found.points[0].startswith("0:conv2d.0")
    assert found.lifetimes["x"] == (Lifetime(0, 1),)  # dies where it is padded
    assert found.sizes_bytes["conv2d.pad_temp"] == 26 * 26 * 3 * FLOATS
    assert found.lifetimes["conv2d.pad_temp"] == (Lifetime(0, 2),)
    assert set(found.live_at(0)) == {"x", "w0", "w1", "conv2d.pad_temp"}


def test_pressure_is_the_largest_sum_of_live_bytes(zoo):
    module = zoo.ZOO["cnn_nhwc"]().module
    found = analysis.liveness(module)
    sums = [sum(found.sizes_bytes[n] for n in found.live_at(t)) for t in range(len(found.points))]
    pressure = analysis.memory_pressure(module)
    assert pressure.bytes_at == tuple(sums)
    assert pressure.peak_bytes == max(sums)
    assert pressure.peak_label == found.points[pressure.peak_point]
    assert set(pressure.buffers) == set(found.live_at(pressure.peak_point))


def test_conflict_graph_is_symmetric_and_exact(zoo):
    module = zoo.ZOO["nested_if"]().module
    found = analysis.liveness(module)
    graph = analysis.conflict_graph(module)
    at = {n: {p for x in lives for p in range(x.first, x.last)} for n, lives in found.lifetimes.items()}
    groups = [{n for n, _ in g.members} for g in analysis.problem(module).aliases]
    for a, b in itertools.combinations(at, 2):
        expected = bool(at[a] & at[b]) and not any({a, b} <= g for g in groups)
        assert (b in graph[a]) == expected, (a, b)
        assert (a in graph[b]) == expected, (a, b)


def test_branches_never_conflict(zoo):
    graph = analysis.conflict_graph(zoo.ZOO["nested_if"]().module)
    assert "s" not in graph["a"]


def test_a_planned_module_is_refused(zoo):
    planned = PlanMemory()(zoo.ZOO["mlp"]().module)
    with pytest.raises(ExtractionError, match="'main' is planned already; analyse the module as it was before"):
        analysis.liveness(planned)


def test_unknown_function_is_named_with_what_there_is(zoo):
    with pytest.raises(ExtractionError, match="the module has no Relax function 'nain'; it has: main"):
        analysis.liveness(zoo.ZOO["mlp"]().module, function="nain")


# -- Every program of the zoo computes on planned, poisoned pools what it computes without a plan


def same(expected, actual) -> None:
    """Bit for bit, NaNs included."""
    assert len(expected) == len(actual)
    for want, got in zip(expected, actual, strict=True):
        assert len(want) == len(got)
        for a, b in zip(want, got, strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("name", ["nested_if", "packed_calls", "dynamic_match_cast"])
def test_tvms_own_default_pipeline_takes_planned_modules(name, unplanned, run):
    entry, expected = unplanned(name)
    same(expected, run(PlanMemory(poison=0xA5)(entry.module), entry.inputs, default=True))
