"""`tvmc compile`'s command line: every option of the microNPU flow, read or refused.

Invariant: no option is ignored. What is accepted either changes what is made or describes what is made anyway (both are
listed in docs/tvmc.md); everything else raises `TvmcError` with what to use instead.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from ..command_line import GroupedCommand
from ..models.frameworks import is_onnx
from ..names import unusable_in_c
from ..options import AUTO
from ..problem import Pool
from . import TvmcError
from .config import ATTRIBUTES, CONSTANT, WORKSPACE, Targets, parse_pass_config, parse_pools, parse_targets, read_config

DEFAULT_OUTPUT = "module.tar"

# Options of tvmc that have no meaning in this flow, and what to do instead.
REFUSED: dict[str, str] = {
    "--cross-compiler": "the tar holds C sources; compile them with your own toolchain",
    "--cross-compiler-options": "the tar holds C sources; pass options to your own toolchain",
    **dict.fromkeys(
        ("--desired-layout", "--desired-layout-ops"),
        "layouts are chosen by the NPU's lowering (NHWC, and NHCWB16 inside)",
    ),
    "--dump-code": "the sources and the IR are in the tar (codegen/host/src, src)",
    "--dump-offloads": "use 'npu-memplan compile --npu-compiler tvm' and 'npu-memplan explain' to see what runs where",
    **dict.fromkeys(
        ("--dump-passes", "--print-ir-before", "--print-ir-after"),
        "there are no Relay passes; the planned IR is in the tar (src)",
    ),
    "--print-pass-times": "use 'time npu-memplan tvmc compile'",
    "--save-ir-after": "the IR is in the tar (src)",
    "--instruments": "there is no Relay pass pipeline to instrument",
    "--disabled-pass": "no pass of this flow can be left out",
    "--tuning-records": "programs are compared by estimated cycles, and no record of a search is read",
    "--input-shapes": "shapes are those of the file; convert or export it with the shapes you need",
    **{
        f"--mixed-precision{of}": "no value changes its type; quantise the model instead"
        for of in ("", "-ops", "-calculation-type", "-acc-type")
    },
    "--runtime-cpp-system-lib": "the generated C links directly, there is no C++ runtime",
    "--runtime-crt-system-lib": "the generated C links directly and needs no function registry",
    "--executor-graph-link-params": "the executor is aot; weights are constants of the generated C",
    "--use-vm": "the executor is aot",
    "--target-host": "put the host's target last in --target",
    "--experimental-tvm-extension": "extensions of the removed tvmc cannot be loaded",
    "--constant-memory-pools": "give --constant-pools=NAME and --constant-pools-size-hint-bytes=NAME:BYTES",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TvmcOptions(Targets):
    """The options of `tvmc compile`."""

    model: Path
    output: Path
    model_format: str
    module_name: str
    npu_compiler: str  # or `AUTO`: the better of both
    pools: tuple[Pool, ...]  # empty: one internal workspace
    constant_pools: tuple[Pool, ...]  # empty: constants are arrays of the generated code
    planner: str
    workspace_io: bool
    workspace_alignment: int
    host_ops: tuple[str, ...] = ()  # kinds that the CPU runs; not an option


# Options with one legal meaning here: default, legal values, and why there is no other.
_BUFFERS = "buffers are aligned to 16 bytes, as the NPU needs"
_FIXED: dict[str, tuple[str | None, tuple[str | None, ...], str]] = {
    "--output-format": ("mlf", ("mlf",), "this flow makes Model Library Format; give -f mlf"),
    "--runtime": ("crt", ("crt",), "generated code is plain C; give --runtime=crt"),
    "--executor": ("aot", ("aot",), "there is no interpreter; give --executor=aot"),
    "--executor-aot-interface-api": ("c", ("c",), "packed functions need TVM's runtime; give c"),
    "--executor-aot-unpacked-api": ("1", ("1", "True", "true"), "packed functions need TVM's runtime; give 1"),
    "--executor-aot-link-params": ("1", ("1", "True", "true"), "weights are constants of the generated C; give 1"),
    "--model-format": (None, (None, "tflite", "onnx"), "TFLite and ONNX files are read; convert the model first"),
    "--executor-aot-workspace-byte-alignment": ("16", ("1", "2", "4", "8", "16"), _BUFFERS),
    "--executor-aot-constant-byte-alignment": ("16", ("1", "2", "4", "8", "16"), _BUFFERS),
    "--opt-level": ("3", ("3", "4"), "there is one way of lowering; leave it out"),
}
_SHORT = {"--output-format": "-f", "--opt-level": "-O"}


def _tvmc_command() -> click.Command:
    options: list[click.Parameter] = [click.Argument(["file"], type=click.Path(path_type=Path), metavar="FILE")]

    def add_option(*names: str, **how: Any) -> None:
        options.append(click.Option(names, **how))

    add_option(
        "-o", "--output", default=DEFAULT_OUTPUT, type=click.Path(path_type=Path), show_default=True, help="The tar."
    )
    add_option(
        "--config", metavar="FILE|BOARD", help="Options of a board: a JSON file, or a board that ships with this."
    )
    add_option("--target", default="ethos-u,c", show_default=True, help="Who runs what; the host comes last.")
    add_option(
        "--target-KIND-ATTRIBUTE", "unused", metavar="VALUE", help="An attribute of one target; docs/tvmc.md has all."
    )
    add_option("--npu-compiler", type=click.Choice(["tvm", "vela"]), help="The backend; without it the better of both.")
    add_option("--module-name", default="default", show_default=True, help="Name of the module in C.")
    add_option(
        "--pass-config", multiple=True, metavar="NAME=VALUE", help="tir.usmp.* and a few more; docs/tvmc.md has all."
    )
    for kind in (WORKSPACE, CONSTANT):
        add_option(f"--{kind}", multiple=True, metavar="NAME,...", help="Pools in order of preference.")
        for suffix, value in ATTRIBUTES.items():
            add_option(f"--{kind}-{suffix}", multiple=True, metavar="POOL:VALUE", help=f"The {value} of each pool.")
    for name, (default, legal, _) in _FIXED.items():
        values = " or ".join(v for v in legal if v)
        add_option(
            *filter(None, [_SHORT.get(name), name]),
            default=default,
            metavar="VALUE",
            help=f"Taken where it is {values}.",
        )
    add_option("-v", "--verbose", count=True, help="Taken; there is nothing more to say.")
    epilog = "Options of tvmc that have no meaning here are refused with a sentence that says what to use instead."
    rare = {*_FIXED, *(f"--{kind}-{suffix}" for kind in (WORKSPACE, CONSTANT) for suffix in ATTRIBUTES)}
    return GroupedCommand(
        "compile", rare=" ".join(rare - {f"--{kind}-size-hint-bytes" for kind in (WORKSPACE, CONSTANT)}),
        params=options, help="Compile FILE to a Model Library Format tar.", epilog=epilog,
    )  # fmt: skip


COMMAND = _tvmc_command()
"""The options as click has them, for `--help` and for reading them."""


def parse_compile(arguments: Sequence[str]) -> TvmcOptions:
    """The options of `tvmc compile ARGUMENTS`; `TvmcError` for what has no meaning here."""
    fixed, attributes = _split_arguments(arguments)
    try:
        parsed = COMMAND.make_context("compile", fixed).params
    except click.NoSuchOption as error:
        raise TvmcError(f"tvmc compile has no option {error.option_name}; see docs/tvmc.md for the options") from None
    except click.UsageError as error:
        raise TvmcError(f"tvmc compile: {error.format_message()} See docs/tvmc.md for the options") from None
    targets = parse_targets(parsed["target"], attributes)
    planner, workspace_io = parse_pass_config(parsed["pass_config"])
    _check_fixed(parsed)
    model: Path = parsed["file"]
    npu = parsed["npu_compiler"] or ("tvm" if targets.striping else "vela" if targets.cascader else AUTO)
    if targets.cascader and not targets.striping and npu == "tvm":
        raise TvmcError(
            "--target-ethos-u-enable_cascader=1 is Vela's: leave --npu-compiler out or give vela; native lowering "
            "cascades with --target-ethos-u-enable_striping=1"
        )
    if targets.striping and not targets.cascader and npu == "vela":
        raise TvmcError(
            "--target-ethos-u-enable_striping=1 is part of Vela's cascader: give enable_cascader=1 too, or leave "
            "--npu-compiler=vela out"
        )
    pools = _requested_pools(parsed, WORKSPACE, targets)
    constant_pools = _requested_pools(parsed, CONSTANT, targets)
    clash = next((p.name for p in constant_pools if p.name in {w.name for w in pools}), None)
    if clash is not None:
        raise TvmcError(f"--constant-pools={clash} is a workspace pool too; give constants a pool of their own")
    for option, names in ((WORKSPACE, pools), (CONSTANT, constant_pools)):
        if fault := unusable_in_c(pool.name for pool in names):
            raise TvmcError(f"--{option}: {fault}; give it another name")
    if fault := unusable_in_c([parsed["module_name"]]):
        raise TvmcError(f"--module-name: {fault}; give it another name")
    model_format = parsed["model_format"] or ("onnx" if is_onnx(model) else "tflite")
    if model_format == "onnx" and npu == "vela":
        raise TvmcError(
            f"{model.name} is an ONNX model, and Vela reads TFLite only: leave --npu-compiler and "
            "--target-ethos-u-enable_cascader out"
        )
    # with native lowering only: Vela's cascader has stripes of its own
    requested = {**asdict(targets), "striping": targets.striping and npu != "vela"}
    return TvmcOptions(
        **requested,
        model=model,
        output=parsed["output"],
        model_format=model_format,
        module_name=parsed["module_name"],
        npu_compiler=npu,
        pools=pools,
        constant_pools=constant_pools,
        planner=planner,
        workspace_io=workspace_io,
        workspace_alignment=int(parsed["executor_aot_workspace_byte_alignment"]),
    )


def _requested_pools(parsed: Mapping[str, Any], kind: str, targets: Targets) -> tuple[Pool, ...]:
    attributes = {suffix: parsed[_click_key(f"{kind}-{suffix}")] for suffix in ATTRIBUTES}
    return tuple(parse_pools(kind, parsed[_click_key(kind)], attributes, targets.kinds))


def _check_fixed(parsed: Mapping[str, Any]) -> None:
    for option, (_, legal, why) in _FIXED.items():
        if (value := parsed[_click_key(option)]) not in legal:
            raise TvmcError(f"{option}={value} is not available: {why}")


def _click_key(option: str) -> str:
    """Click's name for the value of an option."""
    return option.lstrip("-").replace("-", "_")


def _split_arguments(arguments: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """tvmc's fixed options, and the (`KIND-ATTRIBUTE`, value) pairs of `--target-KIND-ATTRIBUTE`; those of the first
    --config come before those of the command line."""
    fixed: list[str] = []
    attributes: list[tuple[str, str]] = []
    configs: list[str] = []
    waiting = iter(arguments)
    for argument in waiting:
        option, equals, value = argument.partition("=")
        if option in REFUSED:
            raise TvmcError(f"{option} is not available: {REFUSED[option]}")
        if option != "--config" and not option.startswith("--target-"):
            fixed.append(argument)
        elif not equals and not (value := next(waiting, "")):
            raise TvmcError(f"{option} needs {'a file or the name of a board' if option == '--config' else 'a value'}")
        elif option == "--config":
            configs.append(value)
        else:
            attributes.append((option.removeprefix("--target-"), value))
    first = _split_arguments(read_config(configs[0])) if configs else ([], [])
    return [*first[0], *fixed], [*first[1], *attributes]
