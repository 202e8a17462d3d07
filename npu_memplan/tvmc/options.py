"""`tvmc compile`'s command line: every option of the microNPU flow, read or refused.

Invariant: no option is ignored. What is accepted either changes what is made or describes what is made anyway
(both are listed in docs/tvmc.md); everything else raises `TvmcError` with what to use instead.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from ..ethosu.arch import ACCELERATORS
from ..models.onnx import is_onnx
from ..problem import Pool
from .config import read_config
from .errors import TvmcError
from .pass_config import PassConfig, parse_pass_config
from .pools import ATTRIBUTES, CONSTANT, WORKSPACE, parse_pools
from .targets import Targets, parse_targets

DEFAULT_OUTPUT = "module.tar"

# Options of tvmc that have no meaning in this flow, and what to do instead.
REFUSED: dict[str, str] = {
    "--cross-compiler": "the tar holds C sources; compile them with your own toolchain",
    "--cross-compiler-options": "the tar holds C sources; pass options to your own toolchain",
    "--desired-layout": "layouts are chosen by the NPU's lowering (NHWC, and NHCWB16 inside)",
    "--desired-layout-ops": "layouts are chosen by the NPU's lowering (NHWC, and NHCWB16 inside)",
    "--dump-code": "the sources and the IR are in the tar (codegen/host/src, src)",
    "--dump-offloads": "use 'npu-memplan compile --npu-compiler tvm' and 'npu-memplan explain' to see who runs what",
    "--dump-passes": "there are no Relay passes; the planned IR is in the tar (src)",
    "--print-ir-before": "there are no Relay passes; the planned IR is in the tar (src)",
    "--print-ir-after": "there are no Relay passes; the planned IR is in the tar (src)",
    "--print-pass-times": "use 'time npu-memplan tvmc compile'",
    "--save-ir-after": "the IR is in the tar (src)",
    "--instruments": "there is no Relay pass pipeline to instrument",
    "--disabled-pass": "no pass of this flow can be left out",
    "--tuning-records": "nothing is tuned; NPU block sizes are chosen by estimated cycles",
    "--input-shapes": "shapes are those of the file; convert or export it with the shapes you need",
    "--mixed-precision": "no value changes its type; quantise the model instead",
    "--mixed-precision-ops": "no value changes its type; quantise the model instead",
    "--mixed-precision-calculation-type": "no value changes its type; quantise the model instead",
    "--mixed-precision-acc-type": "no value changes its type; quantise the model instead",
    "--runtime-cpp-system-lib": "the generated C links directly, there is no C++ runtime",
    "--runtime-crt-system-lib": "the generated C links directly and needs no function registry",
    "--executor-graph-link-params": "the executor is aot; weights are constants of the generated C",
    "--use-vm": "the executor is aot",
    "--target-host": "put the host's target last in --target",
    "--experimental-tvm-extension": "extensions of the removed tvmc cannot be loaded",
    "--constant-memory-pools": "give --constant-pools=NAME and --constant-pools-size-hint-bytes=NAME:BYTES",
}


@dataclass(frozen=True, slots=True)
class TvmcOptions:
    """What `tvmc compile` was asked for."""

    model: Path
    output: Path
    model_format: str = "tflite"
    module_name: str = "default"
    accelerator: str | None = "ethos-u55-256"  # None: no ethos-u in --target
    npu_compiler: str = "tvm"
    cascader: bool = False
    striping: bool = False  # with our own lowering; Vela's cascader has its own
    pools: tuple[Pool, ...] = ()  # empty: one internal workspace
    constant_pools: tuple[Pool, ...] = ()  # empty: constants are arrays of the generated code
    planner: str = "auto"
    workspace_io: bool = False
    workspace_alignment: int = 16
    target_strings: tuple[str, ...] = ("c",)
    notes: tuple[str, ...] = field(default=())


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise TvmcError(f"tvmc compile: {message}; see docs/tvmc.md for the options")


def _parser() -> _Parser:
    parser = _Parser(prog="npu-memplan tvmc compile", add_help=False, allow_abbrev=False)
    add = parser.add_argument
    add("FILE", type=Path)
    add("-o", "--output", default=DEFAULT_OUTPUT, type=Path)
    add("-f", "--output-format", default="mlf")
    add("--target", default="ethos-u,c")
    add("--runtime", default="crt")
    add("--executor", default="aot")
    add("--executor-aot-interface-api", default="c")
    add("--executor-aot-unpacked-api", default="1")
    add("--executor-aot-workspace-byte-alignment", type=int, default=16)
    add("--executor-aot-constant-byte-alignment", type=int, default=16)
    add("--executor-aot-link-params", default="1")
    add("--pass-config", action="append", default=[])
    add("--module-name", default="default")
    add("--model-format", default=None)
    add("-O", "--opt-level", type=int, default=3)
    for kind in (WORKSPACE, CONSTANT):
        add(f"--{kind}", action="append", default=[])
        for suffix in ATTRIBUTES:
            add(f"--{kind}-{suffix}", action="append", default=[])
    add("--npu-compiler", choices=["tvm", "vela"], default=None)
    add("-v", "--verbose", action="count", default=0)
    return parser


def parse_compile(arguments: Sequence[str]) -> TvmcOptions:
    """The options of `tvmc compile ARGUMENTS`; `TvmcError` for what has no meaning here."""
    arguments = [*_config_arguments(arguments), *_without_config(arguments)]
    fixed, attributes = _split(arguments)
    parsed, rest = _parser().parse_known_args(fixed)
    if rest:
        raise TvmcError(f"tvmc compile has no option {rest[0].split('=')[0]}; see docs/tvmc.md for the options")
    targets = parse_targets(parsed.target, attributes)
    configuration = parse_pass_config(parsed.pass_config)
    _check_fixed(parsed, configuration)
    npu = parsed.npu_compiler or ("vela" if targets.cascader and not targets.striping else "tvm")
    if targets.cascader and not targets.striping and npu == "tvm":
        raise TvmcError(
            "--target-ethos-u-enable_cascader=1 is Vela's: leave --npu-compiler out or give vela; our own lowering "
            "cascades with --target-ethos-u-enable_striping=1"
        )
    if targets.striping and not targets.cascader and npu == "vela":
        raise TvmcError(
            "--target-ethos-u-enable_striping=1 is part of Vela's cascader: give enable_cascader=1 too, or leave "
            "--npu-compiler=vela out"
        )
    pools = _pools(parsed, WORKSPACE, targets)
    constant_pools = _pools(parsed, CONSTANT, targets)
    clash = next((p.name for p in constant_pools if p.name in {w.name for w in pools}), None)
    if clash is not None:
        raise TvmcError(f"--constant-pools={clash} is a workspace pool too; give constants a pool of their own")
    model_format = parsed.model_format or ("onnx" if is_onnx(parsed.FILE) else "tflite")
    if model_format == "onnx" and npu == "vela":
        raise TvmcError(
            f"{parsed.FILE.name} is an ONNX model, and Vela reads TFLite only: leave --npu-compiler and "
            "--target-ethos-u-enable_cascader out"
        )
    return TvmcOptions(
        model=parsed.FILE,
        output=parsed.output,
        model_format=model_format,
        module_name=parsed.module_name,
        accelerator=targets.accelerator,
        npu_compiler=npu,
        cascader=targets.cascader,
        striping=targets.striping and npu == "tvm",
        pools=pools,
        constant_pools=constant_pools,
        planner=configuration.planner,
        workspace_io=configuration.workspace_io,
        workspace_alignment=parsed.executor_aot_workspace_byte_alignment,
        target_strings=targets.strings,
        notes=targets.notes,
    )


def _pools(parsed: Any, kind: str, targets: Targets) -> tuple[Pool, ...]:
    def given(option: str) -> list[str]:
        return list(getattr(parsed, option.replace("-", "_")))

    attributes = {suffix: given(f"{kind}-{suffix}") for suffix in ATTRIBUTES}
    return tuple(parse_pools(kind, given(kind), attributes, targets.kinds))


def _check_fixed(parsed: Any, configuration: PassConfig) -> None:
    """Options with one legal value in this flow."""

    def only(option: str, value: str | None, legal: Sequence[str | None], why: str) -> None:
        if value not in legal:
            raise TvmcError(f"{option}={value} is not available: {why}")

    only("--output-format", parsed.output_format, ("mlf",), "this flow makes Model Library Format; give -f mlf")
    only("--runtime", parsed.runtime, ("crt",), "generated code is plain C; give --runtime=crt")
    only("--executor", parsed.executor, ("aot",), "there is no interpreter; give --executor=aot")
    only(
        "--executor-aot-interface-api",
        parsed.executor_aot_interface_api,
        ("c",),
        "packed functions need TVM's runtime; give c",
    )
    only(
        "--executor-aot-unpacked-api",
        parsed.executor_aot_unpacked_api,
        ("1", "True", "true"),
        "packed functions need TVM's runtime; give 1",
    )
    only(
        "--executor-aot-link-params",
        parsed.executor_aot_link_params,
        ("1", "True", "true"),
        "weights are constants of the generated C; give 1",
    )
    only(
        "--model-format",
        parsed.model_format,
        (None, "tflite", "onnx"),
        "TFLite and ONNX files are read; convert the model first",
    )
    for option, value in (
        ("--executor-aot-workspace-byte-alignment", parsed.executor_aot_workspace_byte_alignment),
        ("--executor-aot-constant-byte-alignment", parsed.executor_aot_constant_byte_alignment),
    ):
        if value not in (1, 2, 4, 8, 16):
            raise TvmcError(f"{option}={value} is not available: buffers are aligned to 16 bytes, as the NPU needs")
    if parsed.opt_level not in range(5):
        raise TvmcError(f"--opt-level={parsed.opt_level} is not in 0..4")
    if parsed.opt_level < 3:
        raise TvmcError(f"--opt-level={parsed.opt_level} is not available: there is one way of lowering; leave it out")
    if configuration.workspace_io and parsed.executor_aot_interface_api != "c":
        raise TvmcError("tir.usmp.use_workspace_io needs --executor-aot-interface-api=c")


def _split(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """tvmc's fixed options, and the (`KIND-ATTRIBUTE`, value) pairs of `--target-KIND-ATTRIBUTE`."""
    fixed: list[str] = []
    attributes: list[tuple[str, str]] = []
    position = 0
    while position < len(arguments):
        option, equals, value = arguments[position].partition("=")
        position += 1
        if option in REFUSED:
            raise TvmcError(f"{option} is not available: {REFUSED[option]}")
        if not option.startswith("--target-"):
            fixed.append(arguments[position - 1])
            continue
        if not equals:
            if position >= len(arguments):
                raise TvmcError(f"{option} needs a value")
            value = arguments[position]
            position += 1
        attributes.append((option.removeprefix("--target-"), value))
    return fixed, attributes


def _config_arguments(arguments: Sequence[str]) -> list[str]:
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option == "--config":
            if not equals:
                if position + 1 >= len(arguments):
                    raise TvmcError("--config needs a file or the name of a board")
                value = arguments[position + 1]
            return read_config(value)
    return []


def _without_config(arguments: Sequence[str]) -> list[str]:
    kept, skip = [], False
    for argument in arguments:
        if skip:
            skip = False
        elif argument == "--config":
            skip = True
        elif not argument.startswith("--config="):
            kept.append(argument)
    return kept


__all__ = ["ACCELERATORS", "REFUSED", "Targets", "TvmcOptions", "parse_compile"]
