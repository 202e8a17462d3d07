"""The command line: names and order of the sub-commands, and what an error looks like.

Invariant: no logic here. Each sub-command is one module of `npu_memplan.commands` that
is imported only when it is called; every `NpuMemplanError` and every error of the operating
system becomes one message on stderr and exit code 2. What else is raised is a fault of ours, and says so: exit code 3.
Faults that ended a part alone, and fallbacks, are reported on stderr when a command ends, also with --quiet.
"""

from __future__ import annotations

import difflib
import gc
import importlib
import os
import sys
import traceback

import click

from .errors import InternalError, NpuMemplanError, describe_error
from .process.ending import end_on_signals, is_disk_full, lacks_memory
from .process.incidents import gather_incidents, kind_of
from .process.lazy_imports import compile_methods_late, import_schema_lazily
from .process.requirements import missing_package
from .process.setup import check_limits, collect_rarely, only_printable, open_streams, print_nowhere

# command -> one-line help; it is `command` of npu_memplan.commands.<command> (with - as _), or <command>_command of the
# module of several that _MODULES names.
COMMANDS: dict[str, str] = {
    "compile": "Compile a TFLite, ONNX or PyTorch model: plan its memory, write streams, weights and C.",
    "link": "Compile several networks for one memory: one plan, one C library.",
    "explore": "Find the fastest program for several memory limits, compared with Vela's two modes.",
    "run": "Run a compiled model on its planned pools and compare with a reference.",
    "new-firmware": "Write a firmware project for a board: CMake, linker script, driver, main, a compiled model.",
    "sweep": "Compile many models for many targets, each once; one table of it all.",
    "simulate": "Run a Vela-compiled network on the NPU model.",
    "check": "Say why a Vela-compiled network will not run on a board.",
    "fvp": "Run a program for one of Arm's FVPs of Corstone, with its command line, on QEMU and our NPU model.",
    "disassemble": "Print the command streams of a Vela-compiled network.",
    "plan": "Plan a problem from CSV or JSON, without TVM.",
    "verify": "Check a plan against its problem.",
    "report": "Write the HTML report of a compiled model.",
    "explain": "Say where the peak is, with the memory map, or where one buffer lies and why; or what would gain.",
    "diff": "Compare the plans of two compiled models.",
    "operators": "List operators by what runs them and how exactly; or those that a model needs.",
    "accelerators": "List the NPU configurations, what is assumed around each, and boards that have it.",
    "boards": "List boards, or say what is known of one, with sources.",
    "evidence": "Run a fixed set of programs where you can, and write a record that you can send.",
    "doctor": "Say what is installed, what is missing and how to install it.",
    "tvmc": "The microNPU flow of tvmc, on today's TVM.",
}

_MODULES = {
    **dict.fromkeys(("accelerators", "boards", "operators"), "lists"),
    **dict.fromkeys(("report", "explain", "diff"), "report"),
    **dict.fromkeys(("plan", "verify"), "plan"),
    **dict.fromkeys(("new-firmware", "fvp", "evidence"), "firmware"),
}


class LazyGroup(click.Group):
    """A click group that imports a sub-command's module on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f".commands.{_MODULES.get(cmd_name, name)}", __package__)
        command = getattr(module, f"{name}_command" if cmd_name in _MODULES else "command")
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            close = difflib.get_close_matches(args[0], COMMANDS, n=1)
            more = f"Did you mean {close[0]!r}?" if close else f"There are: {', '.join(COMMANDS)}."
            raise click.UsageError(f"{error.message} {more}", ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="npu_memplan")
def cli() -> None:
    """Compile TFLite, ONNX, PyTorch and TOSA models for Arm Ethos-U NPUs: one static memory plan for a whole program,
    proven by running it.
    """


def main() -> None:
    """Run the command line, turning user errors into exit code 2."""
    # The NPU model's products are small: a second BLAS thread only waits for the first; with little memory, for ever.
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    collect_rarely()
    compile_methods_late()
    import_schema_lazily()
    open_streams()
    with end_on_signals(), only_printable():
        code = _run_commands()
    gc.freeze()  # nor is garbage looked for while the interpreter ends, three times, among all that is left
    sys.exit(code)


def _run_commands() -> int:
    """The exit code of the command requested; faults and fallbacks are reported last."""
    with gather_incidents() as incidents:
        code = _exit_code()
    for line in incidents.lines:
        click.echo(f"npu-memplan: {line}", err=True)
    if incidents.faults:
        click.echo(_REPORT_IT, err=True)
    return code


_INTERNAL = 3  # exit code
_READER_LEFT = 128 + 13  # what a shell shows of a program that SIGPIPE ended
_NO_MEMORY = (
    "npu-memplan: an allocation was refused: there is not enough memory here; give the command more "
    "(`ulimit -v`, a container's limit)"
)
_NO_TVM = (
    "npu-memplan: TVM's library was not loaded whole ({}): there is not enough memory here (`ulimit -v`, a container's "
    "limit), or apache-tvm is damaged; install it again"
)
_REPORT_IT = (
    "npu-memplan: that is a fault of npu_memplan, not of the model: please report it, with the model, the command and "
    "what `npu-memplan doctor` prints"
)


def _call_command() -> int:
    """The command's own exit code."""
    check_limits()
    _check_arguments(sys.argv[1:])
    # Outside its standalone mode click returns the code of Context.exit and Exit.
    try:
        code = cli.main(prog_name="npu-memplan", standalone_mode=False)
    except click.exceptions.Abort as error:
        if isinstance(error.__cause__, EOFError):  # click takes it for Ctrl-D; nothing is asked for here
            raise error.__cause__ from None
        raise
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _check_arguments(words: list[str]) -> None:
    """A name with ends of lines could put lines of its own between those of the output."""
    for word in words:
        if set(word) & {"\n", "\r"}:
            raise click.UsageError(f"the argument {word[:80]!r} has an end of a line in it; rename the file")


def _exit_code() -> int:
    try:
        return _call_command()
    except (click.exceptions.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        error.show()
        return 2
    except NpuMemplanError as error:
        click.echo(f"npu-memplan: {error}", err=True)
        return 2
    except BrokenPipeError:  # the reader has enough, as in `| head`
        print_nowhere()
        return _READER_LEFT
    except SystemExit:  # click and rich leave with 1 then
        if not getattr(sys.stdout, "reader_left", False):
            raise
        print_nowhere()
        return _READER_LEFT
    except OSError as error:  # a full disk, a file system that is read only
        where = f": {error.filename}" if error.filename else ""
        place = os.environ.get("TMPDIR", "/tmp")
        advice = f"; free some where the output goes, and in {place}" if is_disk_full(error) else ""
        click.echo(f"npu-memplan: {error.strerror or error}{where}{advice}", err=True)
        print_nowhere()
        return 2
    except MemoryError:
        click.echo(_NO_MEMORY, err=True)
        return 2
    except Exception as error:
        if lacks_memory(error):
            click.echo(_NO_MEMORY, err=True)
            return 2
        if isinstance(error, AttributeError) and "._ffi_api'" in str(error):
            click.echo(_NO_TVM.format(error), err=True)
            return 2
        if isinstance(error, ModuleNotFoundError) and (text := missing_package(error)):
            click.echo(f"npu-memplan: {text}", err=True)
            return 2
        if not isinstance(error, InternalError):
            traceback.print_exc()
        click.echo(f"npu-memplan: internal fault: {kind_of(error)}{describe_error(error, 0)}\n{_REPORT_IT}", err=True)
        return _INTERNAL


if __name__ == "__main__":
    main()
