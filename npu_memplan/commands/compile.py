"""`npu-memplan compile`: a TFLite, ONNX or PyTorch model to an artifact directory.

Invariant: the output directory appears complete or not at all; exit codes: 0 right, 2 bad use
or input (a plan that does not fit is bad input, and nothing is written), 3 a fault of this package.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Sequence
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
from ..command_line import FILE, PLACE, GroupedCommand, Verbosity, option_group, show_progress, verbosity
from ..exactness import Exactness
from ..files.arrays import check_unused
from ..files.folders import check_place
from ..files.paths import open_file
from ..models.executorch.program import is_program
from ..options import (
    ALL,
    ARM_DRIVER,
    FLAGS,
    FORMS,
    GOAL,
    MEMORY,
    OUTPUT,
    REMOVED,
    SEARCH,
    SWITCH,
    TARGET,
    WORK,
    CliForm,
    CompileOptions,
    OptionError,
    default_values,
    options_from,
    read_words,
)
from ..report.text.compile_result import verdict

if TYPE_CHECKING:
    from ..cache import ProgramCache


_OF_PROGRAMS = ("model", "output", "force", "objective", "data_files", "as_json", "verbose")
_TFLITE, _ONE_ARENA = "vela-tflite", "one-arena"
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
_output = option_group("Output files")
_checks = option_group("Checks")
_COMPLETERS = {
    "--board": command_line.boards,
    "--accelerator": command_line.accelerators,
    "--memory-mode": command_line.memory_modes,
    "--planner": command_line.planners,
    "--vela-ini": command_line.files,
    "--host-ops": command_line.files,
    "--npu-compiler": command_line.choices(FORMS["npu_compiler"].choices),
    "--effort": command_line.choices(FORMS["effort"].choices),
    "--io": command_line.choices(FORMS["io"].choices),
}


def _option_groups(*groups: str) -> Callable[[Any], Any]:
    """Add the options of `CompileOptions` that stand under these headings."""

    def add_options(command: Any) -> Any:
        for flag, names in reversed([*FLAGS.items()]):
            if FORMS[names[0]].group in groups and flag != "--emit":
                command = _field_option(flag, [FORMS[name] for name in names], names[0])(command)
        return command

    return add_options


def _field_option(flag: str, forms: Sequence[CliForm], name: str) -> Callable[[Any], Any]:
    """The option of fields that share it, the first of which is called `name`."""
    default, several = default_values()[name], len(forms) > 1
    settings: dict[str, Any] = {"help": " ".join(form.help for form in forms), "shell_complete": _COMPLETERS.get(flag)}
    metavar = "|".join(form.metavar or "|".join(form.choices) for form in forms)
    if forms[0].words is SWITCH:
        settings["is_flag"] = True
    elif forms[0].choices and not several:
        settings["type"] = click.Choice(forms[0].choices)
    elif metavar:
        settings["metavar"] = metavar
    if several or forms[0].words.repeats:
        settings["multiple"] = True
    if isinstance(default, str) and default:
        settings |= {"default": (default,) if several else default, "show_default": True}
    return option_group(forms[0].group)(flag, name, **settings)


_RARE = " ".join(form.flag for form in FORMS.values() if form.rare)  # of --help-all alone


@click.command(cls=GroupedCommand, rare=_RARE, removed=REMOVED,
               help="Compile a TFLite, ONNX or PyTorch model: plan its memory, write streams, "
               "weights and C. Of an ExecuTorch program (.pte): plan its memory again.")  # fmt: skip
@click.argument("model", type=PLACE)
@click.argument("data_files", nargs=-1, type=FILE, metavar="[FILE.ptd]...")
@_option_groups(TARGET, MEMORY, WORK, GOAL, SEARCH)
@_checks("--check/--no-check", "check", default=None, help="Run the program beside its reference before its "
                  "results are called exact, and make it otherwise where they differ; default: unless that is much "
                  "work (or as NPU_MEMPLAN_CHECK says: auto, always, never).")  # fmt: skip
@_checks("--no-cache", is_flag=True, hidden=True)  # scripts have it; it is NPU_MEMPLAN_PROGRAM_CACHE=off
@_output("-o", "--output", type=PLACE, help="Artifact directory to write; with --emit vela-tflite, the file.")
@_output("--force", is_flag=True, help="Replace a non-empty output directory.")
@_output("--emit", type=click.Choice(["c", ARM_DRIVER, _TFLITE, _ONE_ARENA]), default="c", show_default=True,
         help=f"C sources. {FORMS['launch'].help} vela-tflite: a .tflite with ethos-u operators, for TFLite Micro and "
         "Arm's driver as they are. one-arena: of a .pte, planned buffer and scratch in one arena, for a runner with "
         "the header that is written beside it.")  # fmt: skip
@_option_groups(OUTPUT)
@verbosity
@option_group("Printed output")("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    model: Path,
    output: Path | None,
    force: bool,
    as_json: bool,
    emit: str,
    check: bool | None,
    no_cache: bool,
    data_files: tuple[Path, ...],
    verbosity: Verbosity,
    **requested: Any,
) -> None:
    if _is_program(model):
        given = {"objective": requested["objective"], "external": data_files, "one_arena": emit == _ONE_ARENA}
        click.echo(_compile_program(model, output, force, as_json, **given))
        return
    if model.is_file():  # else it is what reading it says
        if data_files:
            raise click.UsageError(
                f"{data_files[0]} is left over behind {model.name}; only a .pte takes more files, and a size has no "
                "blank: sram=64KiB"
            )
        check_unused(model.name, "no .pte", {f"--emit {_ONE_ARENA}": emit == _ONE_ARENA})
    all_boards = requested["board"] == ALL
    options = options_of(**{**requested, "emit": emit, "board": "" if all_boards else requested["board"]})
    emit = emit if emit == _TFLITE else "c"
    if options.max_ms is not None and (all_boards or emit != "c"):
        flag = f"--board {ALL}" if all_boards else "--emit"
        raise click.UsageError(f"--max-ms chooses one program by its time, {flag} by something else; leave one out")
    if all_boards:
        if emit != "c" or output is not None:
            flag = "--emit" if emit != "c" else "--output"
            raise click.UsageError(f"--board {ALL} writes nothing and chooses nothing; leave {flag} out")
        where_it_fits(model, options, as_json, verbosity, None if no_cache else program_cache())
        return
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    if emit == "c":
        check_place(output, force)  # before any work
    from ..frontend.start import start_loading

    cache = None if no_cache or emit != "c" else program_cache()
    is_known = cache is not None and cache.has_program(model, options)
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
    from ..checking.claims import compile_checked, start

    mode = start(check, is_known)
    with show_progress(f"compiling {model.name}", verbosity):
        artifact = compile_checked(model, options, output, force, mode, cache)
    if as_json:
        click.echo(json.dumps(summary(artifact)))
    elif verbosity is Verbosity.QUIET:
        click.echo(verdict(artifact))
    else:
        _print(artifact, output, verbosity)


def _is_program(model: Path) -> bool:
    """Whether a model is ExecuTorch's, by its first bytes."""
    if not model.is_file():
        return False
    with open_file(model) as file:
        return is_program(file.read(8))


def _compile_program(model: Path, output: Path | None, force: bool, as_json: bool, **how: Any) -> str:
    """Write a `.pte` again with less memory; returns the text to print."""
    from fvp_runner import compile_program

    context = click.get_current_context()
    given = {
        parameter.opts[-1]: context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        for parameter in command.params
        if parameter.name not in _OF_PROGRAMS and (parameter.name, how["one_arena"]) != ("emit", True)
    }
    check_unused(model.name, "a .pte", given)
    if output is None:
        raise click.UsageError("Missing option '-o' / '--output'.")
    made = compile_program(model, output, force, **how)
    return json.dumps(made.to_dict()) if as_json else made.to_text()


def _print(artifact: Artifact, output: Path, verbosity: Verbosity) -> None:
    """Print the result of a compile: the verdict, what was selected."""
    from ..report.facts.dearest import DEAREST_HEADING, dearest_lines
    from ..report.text.first_screen import first_screen

    for line in first_screen(artifact, output):
        click.echo(line)
    if verbosity is Verbosity.VERBOSE and (lines := dearest_lines(artifact)):
        click.echo("\n".join((f"{DEAREST_HEADING}:", *lines)))


def where_it_fits(
    model: Path, options: CompileOptions, as_json: bool, verbosity: Verbosity, cache: ProgramCache | None
) -> None:
    """`--board all`: print a row a board."""
    from ..board_rows import on_boards, print_fits

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


def options_of(**requested: Any) -> CompileOptions:
    """The options from click's parameters of the command line; `OptionError` for words that an option does not have."""
    defaults = default_values()
    values: dict[str, Any] = {}
    if requested.pop("emit", "") == ARM_DRIVER:
        values["launch"] = ARM_DRIVER
    for name, given in requested.items():
        words, flag = FORMS[name].words, FORMS[name].flag
        if len(FLAGS[flag]) > 1:
            values |= read_words(flag, given)
        elif words is SWITCH and given:
            values[name] = not defaults[name]
        elif given not in (None, (), False, defaults[name]):
            values[name] = words.read(given if words.repeats else (given,))
    return options_from(values)


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
    if given["emit"] not in ("c", ARM_DRIVER) or any(
        given[name] != usual[name] for name in given.keys() - {*FORMS, "emit"}
    ):
        raise OptionError(
            f"{text!r}: what the command itself takes is no option of a target: leave out the model, -o, --force"
        )
    return options_of(**{name: given[name] for name in (*FORMS, "emit") if name in given})


def _times(artifact: Artifact) -> dict[str, Any]:
    """Milliseconds by the estimate, and of Vela's stream: its own figure, and ours of it."""
    timing = artifact.timing
    total, npu = artifact.total_milliseconds, artifact.npu_milliseconds
    return {
        "total_ms": total[0] if total else None,
        "total_ms_least": min(total, default=None),
        "total_ms_most": max(total, default=None),
        "estimated_ms": npu[0] if npu else None,
        "host_ms": artifact.host_milliseconds,
        "unknown_calls": artifact.unknown_calls,
        "vela_total_ms": artifact.vela_milliseconds,
        "vela_estimated_cycles": None if timing is None else timing.vela_cycles,
        "vela_stream_cycles": None if timing is None else sum(timing.vela_stream_bounds.values()) or None,
    }


def summary(artifact: Artifact) -> dict[str, Any]:
    """The object that `--json` prints; null: not known, or not requested."""
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
