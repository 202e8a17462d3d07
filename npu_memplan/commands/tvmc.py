"""`npu-memplan tvmc`: the microNPU flow of tvmc.

Invariant: `compile` reads every option of tvmc's (see `npu_memplan.tvmc.options`); `run`, `micro` and `tune`
say what replaces them.
"""

from __future__ import annotations

import click

from ..files.paths import check_file_place
from ..tvmc import TvmcError

_REPLACED = {
    "run": "tvmc run is not available: run a compiled model with 'npu-memplan run DIRECTORY --on local|qemu|fvp'",
    "micro": "tvmc micro is not available: firmware is built and run with 'npu-memplan run DIRECTORY --on qemu|fvp'",
    "tune": "tvmc tune is not available: nothing is tuned, NPU block sizes are chosen by estimated cycles",
}


@click.group(help="The microNPU flow of tvmc, on today's TVM.")
def command() -> None:
    """Sub-commands of tvmc."""


@command.command(
    "compile",
    help="Compile a TFLite or ONNX model to a Model Library Format tar.",
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    add_help_option=False,  # `tvmc.options` has the options, and so the help
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def compile_(context: click.Context, arguments: tuple[str, ...]) -> None:
    from ..tvmc.options import COMMAND, parse_compile

    given = {*arguments, *context.args}
    if help_flags := {"-h", "--help", "--help-all"} & given:
        flag = "--help-all" if "--help-all" in help_flags else "--help"
        COMMAND.main([flag], prog_name=context.command_path, standalone_mode=False)
        return
    options = parse_compile([*arguments, *context.args])
    for note in options.notes:
        click.echo(f"note: {note}", err=True)
    from ..checking.claims import start
    from ..checking.other_outputs import compile_library_checked
    from ..report.text.compile_result import result_texts

    check_file_place(options.output)
    library, artifact = compile_library_checked(options, start(None))
    library.write_tar(options.output)
    for note in artifact.notes:
        click.echo(f"note: {note}", err=True)
    click.echo("\n".join((f"wrote {options.output}", *result_texts(artifact))))


def _replace_help(name: str, sentence: str) -> None:
    @command.command(name, help=sentence, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def refuse(arguments: tuple[str, ...]) -> None:
        raise TvmcError(sentence)


for _name, _sentence in _REPLACED.items():
    _replace_help(_name, _sentence)
