"""Every option of the microNPU flow counts or is refused with a sentence; none is ignored."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from npu_memplan.problem import Agent
from npu_memplan.tvmc import TvmcError
from npu_memplan.tvmc.options import REFUSED, TvmcOptions, parse_compile
from tests.support.entry import invoke


def parse(*arguments: str) -> TvmcOptions:
    return parse_compile([*arguments, "model.tflite"])


def refused(*arguments: str) -> str:
    with pytest.raises(TvmcError) as caught:
        parse(*arguments)
    return str(caught.value)


def test_defaults_are_the_flow_itself() -> None:
    options = parse()
    assert (options.accelerator, options.module_name, options.planner) == ("ethos-u55-256", "default", "auto")
    assert options.output == Path("module.tar")
    assert options.pools == ()


@pytest.mark.parametrize(
    "name, planner",
    [
        ("greedy_by_size", "greedy-by-size"),
        ("greedy_by_conflicts", "greedy-by-conflicts"),
        ("hill_climb", "hill-climb"),
    ],
)
def test_algorithms_are_planners(name: str, planner: str) -> None:
    assert parse("--pass-config", f"tir.usmp.algorithm={name}").planner == planner


def test_a_custom_algorithm_is_a_registered_planner() -> None:
    assert parse("--pass-config=tir.usmp.custom_algorithm=mine").planner == "mine"


def test_target_attributes_take_both_spellings() -> None:
    option, value = "--target-ethos-u-accelerator_config", "ethos-u65-256"
    assert parse(f"{option}={value}").accelerator == value
    assert parse(option, value).accelerator == value


def test_the_host_alone_is_a_target() -> None:
    assert parse("--target=c", "--target-c-mcpu=cortex-m33").accelerator is None


def test_cmsis_nn_is_taken_as_the_host_and_says_so() -> None:
    options = parse("--target=ethos-u,cmsis-nn,c", "--target-cmsis-nn-mcpu=cortex-m55")
    assert "cmsis-nn is taken as the host" in options.notes[0]


def test_the_cascader_is_velas_and_striping_our_own() -> None:
    cascader, striping = "--target-ethos-u-enable_cascader=1", "--target-ethos-u-enable_striping=1"
    found = {arguments: parse(*arguments) for arguments in ((cascader,), (striping,), (cascader, striping))}
    assert [(o.npu_compiler, o.striping) for o in found.values()] == [("vela", False), ("tvm", True), ("tvm", True)]
    velas = parse(cascader, striping, "--npu-compiler=vela")
    assert (velas.npu_compiler, velas.cascader, velas.striping) == ("vela", True, False)


def test_every_value_of_a_repeated_pool_option_counts() -> None:
    options = parse(
        "--workspace-pools=sram",
        "--workspace-pools=dram",
        "--workspace-pools-targets=sram:ethos-u",
        "--workspace-pools-targets=sram:c",
        "--workspace-pools-targets=dram:c",
        "--workspace-pools-size-hint-bytes=sram:262144,dram:-1",
        "--workspace-pools-target-burst-bytes=sram:ethos-u:16",
        "--workspace-pools-target-burst-bytes=sram:c:4",
        "--workspace-pools-read-latency-cycles=sram:32",
        "--workspace-pools-read-bandwidth-bytes-per-cycle=sram:16",
        "--workspace-pools-clock-frequency-hz=sram:200000000",
    )
    sram, dram = options.pools
    assert sram.agents == {Agent.HOST, Agent.NPU}
    assert dram.agents == {Agent.HOST}
    assert (sram.size_bytes, dram.size_bytes) == (262144, None)
    assert sram.burst_bytes == {"ethos-u": 16, "c": 4}
    assert (sram.read_latency_cycles, sram.read_bandwidth_bytes_per_cycle, sram.clock_hz) == (32, 16, 200000000)


def test_two_targets_in_one_value() -> None:
    options = parse("--workspace-pools=sram", "--workspace-pools-targets=sram:c,ethos-u")
    assert options.pools[0].agents == {Agent.HOST, Agent.NPU}


@pytest.mark.parametrize("option", REFUSED)
def test_options_without_meaning_say_what_to_do(option: str) -> None:
    said = refused(option, "value")
    assert said.startswith(f"{option} is not available: ")
    assert REFUSED[option] in said


@pytest.mark.parametrize(
    "arguments, part",
    [
        (("--output-format=so",), "give -f mlf"),
        (("--runtime=cpp",), "give --runtime=crt"),
        (("--executor=graph",), "give --executor=aot"),
        (("--executor-aot-interface-api=packed",), "give c"),
        (("--executor-aot-unpacked-api=0",), "give 1"),
        (("--executor-aot-workspace-byte-alignment=64",), "aligned to 16 bytes"),
        (("--model-format=keras",), "TFLite and ONNX files are read"),
        (("--model-format=onnx", "--npu-compiler=vela"), "Vela reads TFLite only"),
        (("--opt-level=0",), "one way of lowering"),
        (("--target=ethos-u",), "put c behind"),
        (("--target=cuda,c",), "'cuda' is not available"),
        (("--target-ethos-u-accelerator_config=ethos-u75-256",), "known: ethos-u55-32"),
        (("--target-ethos-u-dev_max_open_plans=8",), "removed cascader"),
        (("--target-ethos-u-speed=9",), "no attribute 'speed'"),
        (("--target-ethos-u-enable_striping=1", "--npu-compiler=vela"), "give enable_cascader=1"),
        (("--target-ethos-u-enable_cascader=2",), "neither 0 nor 1"),
        (("--target=c", "--target-cmsis-nn-mcpu=cortex-m55"), "not in --target=c"),
        (("--target-c-colour=red",), "no attribute 'colour'"),
        (("--pass-config", "tir.usmp.enable=0"), "always planned statically"),
        (("--pass-config", "tir.usmp.algorithm=magic"), "known: greedy_by_size"),
        (("--pass-config", "tir.disable_vectorize=0"), "never runs that pass"),
        (("--pass-config", "relay.FuseOps.max_depth=3"), "no Relay"),
        (("--pass-config", "relay.ext.ethos-u.options=x"), "--target-ethos-u-NAME"),
        (("--pass-config", "unknown.thing=1"), "no meaning"),
        (("--pass-config", "tir.usmp.enable"), "no NAME=VALUE"),
        (("--workspace-pools-targets=sram:c",), "not in --workspace-pools"),
        (("--workspace-pools=a", "--workspace-pools-targets=a:cuda"), "no target"),
        (("--workspace-pools=a", "--workspace-pools-size-hint-bytes=a:many"), "no whole number"),
        (("--workspace-pools=a", "--workspace-pools-target-burst-bytes=a:4"), "POOL:TARGET:BYTES"),
        (
            ("--npu-compiler=tvm", "--target-ethos-u-enable_cascader=1"),
            "cascades with --target-ethos-u-enable_striping",
        ),
        (("--never-heard-of=1",), "no option --never-heard-of"),
    ],
)
def test_bad_options_are_refused(arguments: tuple[str, ...], part: str) -> None:
    said = refused(*arguments)
    assert part in said


@pytest.mark.parametrize(
    "arguments, model, model_format",
    [((), "m.tflite", "tflite"), ((), "m.onnx", "onnx"), (("--model-format=onnx",), "m.bin", "onnx")],
)
def test_the_format_is_given_or_that_of_the_file(arguments: tuple[str, ...], model: str, model_format: str) -> None:
    assert parse_compile([*arguments, model]).model_format == model_format


def test_a_board_file_stands_for_options(tmp_path: Path) -> None:
    board = tmp_path / "board.json"
    board.write_text(
        json.dumps(
            {
                "targets": [{"kind": "ethos-u", "accelerator_config": "ethos-u55-128"}, {"kind": "c"}],
                "executor": {"kind": "aot", "unpacked-api": "1"},
                "pass-config": {"tir.usmp.algorithm": "greedy_by_size"},
                "workspace-pools": [{"name": "fast", "targets": ["ethos-u", "c"], "size-hint-bytes": 4096}],
            }
        )
    )
    options = parse(f"--config={board}")
    assert (options.accelerator, options.planner) == ("ethos-u55-128", "greedy-by-size")
    assert [(p.name, p.size_bytes) for p in options.pools] == [("fast", 4096)]
    # the command line speaks last
    overridden = parse("--config", str(board), "--target-ethos-u-accelerator_config=ethos-u55-64")
    assert overridden.accelerator == "ethos-u55-64"


def test_boards_that_ship_with_the_package() -> None:
    assert parse("--config=corstone-300").accelerator == "ethos-u55-256"
    assert parse("--config=corstone-300-u65").accelerator == "ethos-u65-256"
    assert "boards: corstone-300" in refused("--config=unheard-of")


@pytest.mark.parametrize("text, part", [("[]", "no JSON object"), ("{", "no JSON:"), ('{"speed": 1}', "unknown key")])
def test_a_bad_board_file_is_refused(tmp_path: Path, text: str, part: str) -> None:
    board = tmp_path / "bad.json"
    board.write_text(text)
    assert part in refused(f"--config={board}")


def test_help_lists_the_options() -> None:
    shown = invoke("tvmc", "compile", "--help-all")
    for option in (
        "--target ",
        "--pass-config",
        "--workspace-pools-size-hint-bytes",
        "--constant-pools",
        "--opt-level",
    ):
        assert option in shown.output


@pytest.mark.parametrize("name", ["run", "micro", "tune"])
def test_removed_subcommands_point_to_what_replaces_them(name: str) -> None:
    result = invoke("tvmc", name, "module.tar", "--device", "micro", code=None)
    assert isinstance(result.exception, TvmcError)
    assert f"tvmc {name} is not available" in str(result.exception)


def test_compile_writes_the_tar_or_nothing(tmp_path: Path) -> None:
    example = Path(__file__).resolve().parents[2] / "examples" / "digits" / "digits.tflite"
    output = tmp_path / "out.tar"
    invoke("tvmc", "compile", "--target=ethos-u,c", example, "-o", output)
    assert output.is_file()
    missing = invoke("tvmc", "compile", tmp_path / "none.tflite", "-o", tmp_path / "b.tar", code=None)
    assert missing.exception is not None
    hints = "--workspace-pools=sram", "--workspace-pools-size-hint-bytes=sram:16"
    small = invoke("tvmc", "compile", example, "-o", tmp_path / "b.tar", *hints, code=None)
    assert "required" in str(small.exception)
    assert [p.name for p in tmp_path.iterdir()] == ["out.tar"]


def test_the_command_says_what_was_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Path(__file__).resolve().parents[1] / "models" / "hello_world_int8.tflite"
    for check, words in (("never", "expected exact (not run)"), ("always", "checked on 2 inputs (host C)")):
        monkeypatch.setenv("NPU_MEMPLAN_CHECK", check)
        done = invoke("tvmc", "compile", "--target=c", "-o", tmp_path / "m.tar", model)
        assert words in done.output
