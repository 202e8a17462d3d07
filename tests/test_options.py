"""Options of a compile: the command line that gives them again, and that nothing requested is forgotten."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_memplan.artifact import Artifact
from npu_memplan.commands.compile import parse_options
from npu_memplan.options import CompileOptions
from tests.support.real_data import Models

EVERYTHING = CompileOptions(
    accelerator="ethos-u65-256",
    board="corstone-300-u65",
    system_config="Ethos_U65_Embedded",
    vela_ini="my.ini",
    memory_mode="Dedicated_Sram_256KB",
    optimise="Size",
    arena_cache_size_bytes=65536,
    pools={"sram": 98304, "dram": 1 << 20},
    constant_pools={"flash": 524288, "rest": None},
    host_ops=("SOFTMAX", "FULLY_CONNECTED"),
    operators=("mine.py", "more.py"),
    external={"Smooth": 18, "SOFTMAX": None},
    host_kernels="cmsis-nn=elsewhere",
    npu_compiler="tvm",
    objective="bytes",
    effort="quick",
    max_ms=2.5,
    planner="hill-climb",
    time_limit_s=0.5,
    overlaps=False,
    stripes=True,
    prefetch=True,
    incbin=True,
    reuse_inputs=False,
    launch="arm-core-driver",
    io="int8",
    name="two words",
    resident="65536",
)
SIZES = st.integers(1, 1 << 30)


def parsed(words: tuple[str, ...]) -> CompileOptions:
    """What the real command line makes of `words`."""
    return parse_options(words)


def test_every_option_is_described_in_one_line() -> None:
    assert not [f.name for f in dataclasses.fields(CompileOptions)
                if getattr(EVERYTHING, f.name) == getattr(CompileOptions(), f.name)]  # fmt: skip
    assert shlex.join(EVERYTHING.to_cli_args()) == (
        "--accelerator ethos-u65-256 --system-config Ethos_U65_Embedded --memory-mode Dedicated_Sram_256KB "
        "--vela-ini my.ini --board corstone-300-u65 --pool sram=98304 --pool dram=1048576 --constant-pool flash=524288 "
        "--constant-pool rest --resident 65536 --resident inputs --npu-compiler tvm,Size,arena=65536 "
        "--host-ops SOFTMAX,FULLY_CONNECTED,Smooth=18,SOFTMAX=,mine.py,more.py "
        "--host-ops cmsis-nn=elsewhere --objective bytes --effort quick --effort 0.5 "
        "--max-ms 2.5 --stripes --planner hill-climb --name 'two words' --io int8 "
        "--emit arm-core-driver --incbin"
    )
    by_python = {"overlaps": True, "prefetch": False}
    assert EVERYTHING.python_values() == (("overlaps", False), ("prefetch", True))
    assert parsed(EVERYTHING.to_cli_args()) == dataclasses.replace(EVERYTHING, **by_python)


def test_defaults_are_not_printed() -> None:
    assert CompileOptions().to_cli_args() == CompileOptions().resolve_defaults().to_cli_args() == ()
    assert CompileOptions("none").resolve_defaults().to_cli_args() == ("--accelerator", "none")


@given(
    st.builds(
        CompileOptions,
        accelerator=st.sampled_from(["none", "ethos-u55-256", "ethos-u65-256"]),
        memory_mode=st.sampled_from(["", "Shared_Sram", "Dedicated_Sram", "Sram_Only"]),
        arena_cache_size_bytes=st.none() | SIZES,
        pools=st.dictionaries(st.sampled_from(["sram", "dram"]), SIZES),
        constant_pools=st.dictionaries(st.sampled_from(["flash", "rom"]), st.none() | SIZES),
        time_limit_s=st.none() | st.floats(0, 1e6, exclude_min=True),
        reuse_inputs=st.booleans(),
        name=st.sampled_from(["", "kws"]),
    )
)
def test_flags_and_the_command_line_are_inverse(options: CompileOptions) -> None:
    assert parsed(options.resolve_defaults().to_cli_args()).resolve_defaults() == options.resolve_defaults()


@pytest.mark.slow
def test_an_artifact_records_all_that_was_asked(tmp_path: Path, shared_model: Models) -> None:
    from npu_memplan.compiler import compile_model

    requested = CompileOptions(npu_compiler="tvm", constant_pools={"flash": None}, reuse_inputs=False)
    model = shared_model("hello_world_int8")
    compile_model(model, requested, tmp_path / "out")
    found = Artifact.load(tmp_path / "out")
    assert found.target == requested.resolve_defaults()
    compile_model(model, parsed(found.target.to_cli_args()), tmp_path / "again")
    first, second = ((tmp_path / name / "plan.json").read_bytes() for name in ("out", "again"))
    assert first == second
