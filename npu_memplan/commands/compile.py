"""`npu-memplan compile`: a TFLite, ONNX or PyTorch model to an artifact directory.

Invariant: the output directory appears complete or not at all; exit codes: 0 right, 2 bad use
or input (a plan that does not fit is bad input, and nothing is written), 3 a fault of this package.
"""

from __future__ import annotations

import inspect
import json
import shlex
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from msgspec import to_builtins

from .. import command_line
from ..artifact import Artifact
from ..artifact.board_fit import fit_of
from ..cache import program_cache
from ..command_line import (
    FILE,
    PLACE,
    GroupedCommand,
    Verbosity,
    by_name,
    name_and_size,
    option_group,
    show_progress,
    split_names,
    verbosity,
)
from ..exactness import Exactness
from ..files.arrays import InputError, check_unused
from ..files.folders import check_place
from ..files.paths import open_file
from ..models.executorch.program import is_program
from ..options import CHOICES, CompileOptions, OptionError, usual_accelerator
from ..process.incidents import raise_faults
from ..report.text.compile_result import verdict
from ..sizes import parse_named_size, parse_size

if TYPE_CHECKING:
    from ..cache import ProgramCache
    from ..fit import FitResult


_target, _memory, _work = option_group("Target"), option_group("Memory"), option_group("NPU and host")
_OF_PROGRAMS = ("model", "output", "force", "objective", "data_files", "one_arena", "as_json", "quiet", "verbose",
                "strict")  # fmt: skip
_FIGURES = (
    "constants_bytes",
    "resident_bytes",
    "init_cycles",
    "npu_operations",
    "host_operations",
    "estimated_cycles",
    "npu_macs",
    "host_cycles",
)
_goal, _search, _output = option_group("Objective"), option_group("Planner"), option_group("Output files")
_checks = option_group("Checks and cache")


def _operators(text: str) -> tuple[str, ...]:
    return split_names(text.upper())


_RARE = (
    "--system-config --vela-ini --memory-mode --constant-pool --resident --arena-cache-size --optimise "
    "--npu-compiler --operators --external --host-kernels --stripes --stream-input --prefetch --no-overlap "
    "--keep-inputs --host-time --planner --time-limit --seed --name --data --one-arena --launch --incbin --strict "
    "--target"
)  # options of --help-all alone


@click.command(cls=GroupedCommand, rare=_RARE,
               help="Compile a TFLite, ONNX or PyTorch model: plan its memory, write streams, "
               "weights and C. Of an ExecuTorch program (.pte): plan its memory again.")  # fmt: skip
@click.argument("model", type=PLACE)
@_target("--board", default="", metavar="NAME|FILE.toml", shell_complete=command_line.boards, help="Pools, memories "
         "and clock of a board (npu-memplan boards lists them, or your file); the fewest cycles that fit.")  # fmt: skip
@_target("--accelerator", default="", metavar="NAME", shell_complete=command_line.accelerators, help="The NPU "
         "(npu-memplan accelerators lists them), or none; default: the board's largest, or ethos-u55-256.")  # fmt: skip
@_target("--system-config", default="", metavar="NAME", help="System_Config of vela.ini, or of the FVPs; default: "
         "the accelerator's.")  # fmt: skip
@_target("--vela-ini", default="", metavar="FILE", type=click.Path(dir_okay=False),
         help="A vela.ini of your own that describes --system-config.")  # fmt: skip
@_target("--memory-mode", default="", metavar="NAME", shell_complete=command_line.memory_modes, help="Sram_Only, "
         "Shared_Sram or Dedicated_Sram[_256KB|_384KB|_512KB]; default: the accelerator's.")  # fmt: skip
@_target("--all-boards", is_flag=True, help="Write nothing; say on which boards it fits, with the bytes and the "
         "time of compile --board of each.")  # fmt: skip
@_memory("--pool", "pools", multiple=True, type=parse_named_size, callback=by_name, metavar="NAME=SIZE",
         help="Hard capacity of a pool, e.g. sram=96KiB.")  # fmt: skip
@_memory("--constant-pool", "constant_pools", multiple=True, type=name_and_size, callback=by_name,
         metavar="NAME[=SIZE]", help="Pack weights and tables into read-only pools, in this order, e.g. "
         "flash=512KiB.")  # fmt: skip
@_memory("--resident", default="none", show_default=True, metavar="none|auto|all|SIZE", help="Constants of the NPU "
         "that stay in the fast pool, where NAME_init() puts them once: auto, in the room of a pool with a size, those "
         "that make it fastest; all; or at most SIZE, which a pool without a size grows by.")  # fmt: skip
@_memory("--arena-cache-size", "arena_cache_size_bytes", type=parse_size, metavar="SIZE", help="Vela's meaning: bytes "
         "the NPU compiler aims at; KiB, MiB.")  # fmt: skip
@_memory("--fit", metavar="SIZE|NAME=SIZE", help="Try all that could make it fit and write the cheapest; a table says "
         "what each needs.")  # fmt: skip
@_work("--npu-compiler", type=click.Choice(CHOICES["npu_compiler"]), default="auto", show_default=True, help="Who "
       "makes the NPU's operations: Vela's stream, lifted; native lowering; auto: the better of both; with --stripes "
       "native lowering.")  # fmt: skip
@_work("--optimise", type=click.Choice(CHOICES["optimise"]), default="Performance", show_default=True,
       help="Vela's meaning.")  # fmt: skip
@_work("--host-ops", default="", type=_operators, metavar="OP,OP", help="Operators to keep on the CPU, e.g. "
       "SOFTMAX,FULLY_CONNECTED.")  # fmt: skip
@_work("--operators", default="", type=split_names, metavar="FILE.py,FILE.py", shell_complete=command_line.files,
       help="Python that describes operators of your own (npu_memplan.host_operator); it is run.")  # fmt: skip
@_work("--external", "external", multiple=True, type=name_and_size, callback=by_name, metavar="OP[=SIZE]",
       help="An operator that a C function of yours runs: declared in the header, called with SIZE bytes of "
       "scratch.")  # fmt: skip
@_work(
    "--host-kernels",
    default="",
    metavar="cmsis-nn=DIR",
    help="Let functions of CMSIS-NN, whose C is in DIR, run operators of the host where results are exact; "
    "what they need is copied into the artifact.",
)
@_goal("--objective", type=click.Choice(CHOICES["objective"]), default="auto", show_default=True,
       help="cycles: the fewest in the memory that is given, or in Vela's arena; auto: the same, then the fewest bytes "
       "within 1 % of them where no memory is given; bytes: the least memory, also in "
       "stripes, or on the CPU alone.")  # fmt: skip
@_goal("--effort", type=click.Choice(CHOICES["effort"]), default="normal", show_default=True, help="How far "
       "the tuning searches: quick takes some times Vela's CPU time, max several times that of normal.")  # fmt: skip
@_goal("--max-ms", type=click.FloatRange(min=0, min_open=True), metavar="MS", help="The least memory in which the NPU "
       "takes at most so long, by the estimate, of the pool that feature maps lie in.")  # fmt: skip
@_goal("--stripes", is_flag=True, help="Cut NPU operations into stripes of rows where that saves memory, for some "
       "cycles; a --pool of theirs says how far to go. Of native lowering.")  # fmt: skip
@_goal("--stream-input", default="", metavar="NAME", help="The input called NAME comes row by row: the pool holds its "
       "last rows only, and NAME_feed() takes the place of NAME_run(). Of native lowering.")  # fmt: skip
@_goal("--prefetch", is_flag=True, help="Room for weights to be copied while the operation before runs: more bytes, "
       "fewer waits, as far as a --pool has room. Without it: where it costs no byte.")  # fmt: skip
@_goal("--no-overlap", is_flag=True, help="No buffer may be written over one that is being read.")
@_goal("--keep-inputs", is_flag=True, help="Do not reuse the bytes of graph inputs.")
@_goal("--host-time", is_flag=True, help="Count host operators in times: their cycles are a rough estimate.")
@_search("--planner", default="auto", show_default=True, metavar="NAME", shell_complete=command_line.planners,
         help="auto, optimal, first-fit, greedy-by-size, greedy-by-conflicts, hill-climb, linear, or a registered "
         "name.")  # fmt: skip
@_search("--time-limit", "time_limit_s", type=click.FloatRange(min=0), metavar="SECONDS", help="Of all "
         "searches of the compile together; the best found until then is taken.")  # fmt: skip
@_search("--seed", type=int, default=0, show_default=True, help="Of the planner's search.")
@_checks("--check/--no-check", "check", default=None, help="Run the program beside its reference before its "
                  "results are called exact, and make it otherwise where they differ; default: unless that is much "
                  "work (or as NPU_MEMPLAN_CHECK says: auto, always, never).")  # fmt: skip
@_checks("--cache/--no-cache", "cached", default=None, help="Take a program that was compiled before "
                  "from the cache, and put others there; default: unless NPU_MEMPLAN_PROGRAM_CACHE, its size, is "
                  "0.")  # fmt: skip
@_output("-o", "--output", type=PLACE, help="Artifact directory to write; with --emit vela-tflite, the file.")
@_output("--force", is_flag=True, help="Replace a non-empty output directory.")
@_output("--name", default="", help="Name of the model in C; default: from the file name.")
@_output("--emit", type=click.Choice(["c", "vela-tflite"]), default="c", show_default=True, help="C sources, or a "
         ".tflite with ethos-u operators, for TFLite Micro and Arm's driver as they are.")  # fmt: skip
@_output("--data", "data_files", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte, which "
         "is written as a .pte again: the same for the firmware, with less memory.")  # fmt: skip
@_output("--one-arena", is_flag=True, help="Of a .pte: planned buffer and scratch in one arena, for a runner with the "
         "header that is written beside it.")  # fmt: skip
@_output("--io", type=click.Choice(CHOICES["io"]), default="file", show_default=True,
         help="Types of inputs and outputs: the file's, or int8 without the operators that convert float inputs "
         "and float outputs; the header has functions that convert one value.")  # fmt: skip
@_output("--launch", type=click.Choice(CHOICES["launch"]), default="small-driver", show_default=True,
         help="What the C's NPU calls are made for: our driver, or Arm's ethos-u-core-driver, with payloads and the "
         "glue.")  # fmt: skip
@_output("--incbin", is_flag=True, help="Large constants as files beside the C, which the assembler takes in.")
@_output("--strict", is_flag=True, help="Fail, with exit code 3, on a fault of npu_memplan itself for which another "
         "program stands in; without it, the fault is reported.")  # fmt: skip
@_output("--target", type=click.Choice(["c"]), default="c", show_default=True, help="What is generated.")
@verbosity
@option_group("Printed output")("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    model: Path,
    output: Path | None,
    force: bool,
    fit: str | None,
    as_json: bool,
    target: str,
    emit: str,
    check: bool | None,
    cached: bool | None,
    all_boards: bool,
    strict: bool,
    data_files: tuple[Path, ...],
    one_arena: bool,
    verbosity: Verbosity,
    **requested: Any,
) -> None:
    click.get_current_context().with_resource(raise_faults(strict))
    if _is_program(model):
        given = {"objective": requested["objective"], "external": data_files, "one_arena": one_arena}
        click.echo(_compile_program(model, output, force, as_json, **given))
        return
    if model.is_file():  # else it is what reading it says
        check_unused(model.name, "no .pte", {"--data": data_files, "--one-arena": one_arena})
    options = options_of(**requested)
    if options.max_ms is not None and (all_boards or fit is not None or emit != "c"):
        flag = "--all-boards" if all_boards else "--fit" if fit is not None else "--emit"
        raise click.UsageError(f"--max-ms chooses one program by its time, {flag} by something else; leave one out")
    if all_boards:
        if emit != "c" or fit is not None or output is not None:
            flag = "--emit" if emit != "c" else "--fit" if fit is not None else "--output"
            raise click.UsageError(f"--all-boards writes nothing and chooses nothing; leave {flag} out")
        where_it_fits(model, options, as_json, verbosity, program_cache(cached))
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if emit == "c":
        check_place(output, force)  # before any work
    elif fit is not None:
        raise InputError("--fit tries artifacts; find the flags with it, then give them with --emit vela-tflite")
    from ..frontend.start import start_loading

    cache = None if emit != "c" else program_cache(cached)
    is_known = cache is not None and fit is None and cache.has_program(model, options)
    if not is_known:
        start_loading(model, options)  # Vela's own process works while this one imports TVM
    if emit != "c":
        from ..checking.claims import start
        from ..checking.other_outputs import emit_checked
        from ..vela_tflite.emit import emit_file

        make = partial(emit_checked, mode=start(check))
        with show_progress(f"compiling {model.name}", verbosity):
            lines = emit_file(model, output, options, force, as_json, make)
        click.echo(lines.partition("\n")[0] if verbosity is Verbosity.QUIET and not as_json else lines)
        return
    from ..checking.claims import compile_checked, compile_to_fit_checked, start

    fitted = None
    mode = start(check, is_known)
    with show_progress(f"compiling {model.name}", verbosity) as shown:
        if fit is None:
            artifact = compile_checked(model, options, output, force, mode, cache)
        else:
            artifact, fitted = compile_to_fit_checked(model, options, output, fit, force, mode, shown.show_part, cache)
    if as_json:
        click.echo(json.dumps({**summary(artifact), **({"fit": fitted.to_dict()} if fitted else {})}))
    elif verbosity is Verbosity.QUIET:
        click.echo(verdict(artifact))
    else:
        _print(artifact, fitted, fit, output, verbosity)


def _is_program(model: Path) -> bool:
    """Whether a model is ExecuTorch's, by its first bytes."""
    if not model.is_file():
        return False
    with open_file(model) as file:
        return is_program(file.read(8))


def _compile_program(model: Path, output: Path | None, force: bool, as_json: bool, **how: Any) -> str:
    """Write a `.pte` again with less memory; what came of it."""
    from fvp_runner.executorch.commands import compile_program

    context = click.get_current_context()
    given = {
        parameter.opts[-1]: context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        for parameter in command.params
        if parameter.name not in _OF_PROGRAMS
    }
    check_unused(model.name, "a .pte", given)
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    made = compile_program(model, output, force, **how)
    return json.dumps(made.to_dict()) if as_json else made.to_text()


def _print(artifact: Artifact, fitted: FitResult | None, fit: str | None, output: Path, verbosity: Verbosity) -> None:
    """What a compile found: the verdict, what was tried, what was selected."""
    from ..report.facts.dearest import DEAREST_HEADING, dearest_lines
    from ..report.text.first_screen import first_screen

    if fitted is not None:
        click.echo(f"{verdict(artifact)}\n\n{fitted.to_text()}\n\nin place of --fit {fit}: {fitted.flags}\n")
    for line in first_screen(artifact, output, with_verdict=fitted is None):
        click.echo(line)
    if verbosity is Verbosity.VERBOSE and (lines := dearest_lines(artifact)):
        click.echo("\n".join((f"{DEAREST_HEADING}:", *lines)))


def where_it_fits(
    model: Path, options: CompileOptions, as_json: bool, verbosity: Verbosity, cache: ProgramCache | None
) -> None:
    """`--all-boards`: print a row a board."""
    from ..fit import on_boards, print_fits

    with show_progress(f"compiling {model.name}", verbosity) as shown:
        rows = on_boards(model, options, report_progress=shown.show_part, cache=cache)
    if as_json:
        click.echo(json.dumps([row.to_dict() for row in rows]))
        return
    fitting = [row.board for row in rows if row.fits]
    names = f": {', '.join(fitting)}" if 0 < len(fitting) < len(rows) else ""
    click.echo(f"{model.name} fits {len(fitting)} of {len(rows)} boards{names}")
    if verbosity is not Verbosity.QUIET:
        print_fits(rows)


def options_of(accelerator: str, board: str, no_overlap: bool, keep_inputs: bool, **same: Any) -> CompileOptions:
    """What the command line gives; `same` are fields of the options."""
    kept = {"overlaps": not no_overlap, "reuse_inputs": not keep_inputs, **same}
    return CompileOptions(accelerator or usual_accelerator(board), board=board, **kept)


def parse_options(arguments: Sequence[str]) -> CompileOptions:
    """The options that `arguments` of this command line ask for; `OptionError` for other arguments."""
    text, place = shlex.join(arguments), ("MODEL", "-o", "DIRECTORY")
    try:
        named: dict[str, Any] = {"help_option_names": ["-h", "--help"]}  # click keeps the first context's
        usual, given = (command.make_context("compile", [*place, *more], **named).params for more in ((), arguments))
    except click.ClickException as error:
        raise OptionError(f"{text!r} are no options of compile: {error.format_message()}") from None
    except click.exceptions.Exit:  # --help
        raise OptionError(f"{text!r} are no options of compile; npu-memplan compile --help lists them") from None
    requested = {*inspect.signature(options_of).parameters, *(field.name for field in fields(CompileOptions))}
    if any(given[name] != usual[name] for name in given.keys() - requested):
        raise OptionError(
            f"{text!r}: what the command itself takes is no option of a target: leave out the model, -o, --fit"
        )
    return options_of(**{name: given[name] for name in given.keys() & requested})


def _times(artifact: Artifact) -> dict[str, Any]:
    """Milliseconds by the estimate, and of Vela's stream: its own figure, and ours of it."""
    timing, cycles, host = artifact.timing, artifact.estimated_cycles, artifact.host_cycles
    return {
        "estimated_ms": None if timing is None or cycles is None else timing.milliseconds(cycles),
        "host_ms": 1000 * host / artifact.host_clock_hz if host is not None and artifact.host_clock_hz else None,
        "vela_estimated_cycles": None if timing is None else timing.vela_cycles,
        "vela_stream_cycles": None if timing is None else sum(timing.vela_stream_bounds.values()) or None,
    }


def summary(artifact: Artifact) -> dict[str, Any]:
    """What `--json` prints; null: not known, or not requested."""
    fit = fit_of(artifact)
    bounded = any(pool.size_bytes is not None for pool in artifact.problem.pools)
    return {
        "name": artifact.name,
        "status": artifact.plan.status.value,
        "planner": artifact.plan.planner,
        "pools": [
            {
                "name": pool.name,
                "capacity_bytes": pool.size_bytes,
                "used_bytes": usage.used_bytes,
                "lower_bound_bytes": usage.lower_bound_bytes,
            }
            for pool, usage in zip(artifact.problem.pools, artifact.plan.usage, strict=True)
        ],
        "objective": artifact.target.objective,
        "limits": dict(artifact.limit_bytes),  # by pool
        "vela_arena_bytes": sum(artifact.vela_arena_bytes.values()) or None,  # null: unknown
        "vela_pools": dict(artifact.vela_arena_bytes),
        **{name: getattr(artifact, name) for name in _FIGURES},
        **_times(artifact),
        "accelerator": artifact.target.accelerator,
        "options": list(artifact.target.to_cli_args()),
        "board": artifact.target.board or None,
        "fits": None if fit is None and not bounded else fit is None or fit.shortest_memory is None,
        "memories": [
            {"name": use.memory.name, "used_bytes": use.used_bytes, "size_bytes": use.memory.size_bytes}
            for use in (fit.uses if fit is not None else ())
        ],
        "exactness": {
            level.value: sum(operator.claim.exactness is level for operator in artifact.operators)
            for level in Exactness
        },
        "check": to_builtins(artifact.check),
        "notes": list(artifact.notes),
    }
