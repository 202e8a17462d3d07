"""`npu-memplan run`: one inference of a compiled model, and whether it is bit-exact.

Invariant: the command says which runner ran; "bit-exact" is printed only after a comparison
of every element of every output. Exit codes: 0 right, 1 wrong result, 2 bad use or input.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from .. import command_line
from ..artifact import Artifact
from ..artifact.files import is_application
from ..command_line import (
    FILE,
    FOLDER,
    PLACE,
    TIME,
    GroupedCommand,
    NumberRange,
    RunnerName,
    Verbosity,
    option_group,
    show_progress,
    verbosity,
)
from ..errors import NpuMemplanError
from ..files import folders
from ..files.arrays import InputError, check_outputs, check_unused, read_inputs, read_steps, save_arrays, seed_of
from ..files.paths import read_bytes
from ..models.executorch.program import is_program
from ..models.flatbuffer import read_file
from ..names import split_names

if TYPE_CHECKING:
    from fvp_runner import FrameworkReference, RunOptions, RunOutputs, RunResult, TFLiteReference


_what, _data, _checked = (
    option_group("Program and runner"),
    option_group("Inputs and outputs"),
    option_group("Comparison with a reference"),
)
_own, _firmware = option_group("Your own firmware"), option_group("Built-in firmware (fvp, qemu, unicorn)")


_RARE = (
    "--method --data --timeout --no-checks --external-source --operators --dump --interrupt --fvp-path "
    "--cycles --npu --semihosting --trace"
)  # options of --help-all alone


@click.command(cls=GroupedCommand, rare=_RARE,
               help="Run a compiled model on its planned pools and compare with a reference; its "
               "plan is verified first. --on local compiles its C and runs it in this process: run only artifacts that "
               "you trust.")  # fmt: skip
@click.argument("directory", metavar="DIRECTORY|MODEL.pte", type=PLACE, required=False)
@_what("--method", default="", metavar="NAME", help="Of a .pte, whose delegates run on the NPU model; default: its "
       "first.")  # fmt: skip
@_what("--data", "external", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte.")
@_what("--on", "runner", type=RunnerName("auto", "local", "qemu", "unicorn", "fvp", "arm-runner"), default="auto",
       show_default=True, help="Runner; auto takes the best one that is installed, local where the board is "
       "too small. arm-runner: Arm's own firmware with TFLite Micro or ExecuTorch, which takes a .tflite or .pte in "
       "place of DIRECTORY.")  # fmt: skip
@_what("--board", metavar="NAME|FILE.toml", shell_complete=command_line.boards,
       help="Board of the firmware runners; default: the accelerator's.")  # fmt: skip
@_what("--steps", type=click.IntRange(1, 1_000_000), metavar="N", help="N inferences one after another, states kept, "
       "each compared; files of --input and --output hold all steps, as their first dimension.")  # fmt: skip
@_what("--timeout", type=TIME, default=300.0, show_default=True,
       metavar="SECONDS", help="Wall time a run may take.")  # fmt: skip
@_what("--no-checks", is_flag=True, help="Do not look for uninitialised reads and missing waits.")
@_what("--sanitize", is_flag=True, help="Build the host's C with the compiler's sanitizers: the first "
       "access outside of an operator's own buffers, the first read of bytes that were never written and the first "
       "undefined operation end the run; slower, on this machine.")  # fmt: skip
@_what("--external-source", "external_sources", multiple=True, type=FILE, metavar="FILE.c",
       help="C that defines external operators (compile --host-ops OP=SIZE).")  # fmt: skip
@_what("--operators", default="", type=split_names, metavar="FILE.py,FILE.py", shell_complete=command_line.files,
       help="As for compile: their NumPy references are used.")  # fmt: skip
@_data("--input", "inputs", multiple=True, metavar="FILE.npy|random:SEED|extreme", shell_complete=command_line.files,
       help="Repeat for every model input; random:SEED or extreme (ends of the type) alone fills all of them. "
       "Default: random:0.")  # fmt: skip
@_data("--output", "outputs", multiple=True, type=FILE, metavar="FILE.npy", help="Keep an output; repeat for each one.")
@_checked("--reference", type=FILE, metavar="MODEL", help="Compare with this model's reference result: of each "
          "operator of a .tflite tflite-micro's (LiteRT's where that has no kernel for it, as for uint8), TVM's Relax "
          "VM for .onnx, PyTorch for .pt2.")  # fmt: skip
@_checked("--tolerance", type=NumberRange(min=0), default=0.0, metavar="DIFF", help="With --reference: exit "
          "with 0 too when no output element is further than DIFF from it, in the output's own units. "
          "Default: 0, bit-exact.")  # fmt: skip
@_checked("--layers", is_flag=True, help="Compare every operator's output with the reference's, also inside fused "
          "streams, and name the first that differs; on this machine.")  # fmt: skip
@_checked("--dump", type=FOLDER, metavar="DIR", help="With --layers: keep the tensors, and the reference's.")
@_firmware("--interrupt", is_flag=True, help="The firmware waits for the NPU's interrupt instead of polling.")
@_firmware("--fvp-path", type=PLACE, metavar="PATH", help="Arm's FVP, or the folder it was "
           "installed in; default: FVP_PATH, then PATH.")  # fmt: skip
@_firmware("--cycles", is_flag=True, help="Let Arm's FVP count NPU cycles, which is slower; the others always give "
           "the NPU model's estimate.")  # fmt: skip
@_own("--elf", type=FILE, metavar="MY.elf", help="In place of DIRECTORY: firmware of your own on QEMU, our NPU behind "
      "its registers; needs --board.")  # fmt: skip
@_own("--npu", default="", metavar="NAME", shell_complete=command_line.accelerators, help="With --elf: the "
      "accelerator; default: what a driver payload in it is for, or the board's largest.")  # fmt: skip
@_own("--semihosting", is_flag=True, help="With --elf: the program may exit by semihosting, and read and write files "
      "here.")  # fmt: skip
@_own("--trace", type=FILE, metavar="FILE.json", help="With --elf: the NPU's operations for Perfetto, and every "
      "access to its registers.")  # fmt: skip
@verbosity
@option_group("Printed output")("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def command(
    directory: Path | None,
    elf: Path | None,
    layers: bool,
    dump: Path | None,
    runner: str,
    inputs: tuple[str, ...],
    outputs: tuple[Path, ...],
    reference: Path | None,
    tolerance: float,
    steps: int | None,
    external_sources: tuple[Path, ...],
    operators: tuple[str, ...],
    no_checks: bool,
    sanitize: bool,
    timeout: float,
    board: str | None,
    interrupt: bool,
    fvp_path: Path | None,
    cycles: bool,
    verbosity: Verbosity,
    as_json: bool,
    **own: Any,
) -> None:
    from fvp_runner import NpuModelError, RunCheckError, RunOptions, create, run_steps, wants_sanitizer

    del own["method"], own["external"]  # `_directory` has them from the context
    if elf is not None:
        from fvp_runner import run_own_elf

        if board is None or directory is not None:
            raise InputError("--elf takes the place of DIRECTORY and needs --board, e.g. one that `doctor` lists")
        run_own_elf(elf, board, **own, options=RunOptions(timeout_s=timeout, checks=not no_checks), as_json=as_json)
        return
    directory = _directory(directory, own, click.get_current_context())
    if directory is None:
        return
    artifact = Artifact.load(directory)
    if changed := folders.changed_files(directory):
        click.echo(f"note: changed since they were written: {', '.join(changed)}; they run as they are", err=True)
    several = () if steps is None else read_steps(artifact.name, artifact.inputs, inputs, steps)
    sequence = several or [read_inputs(artifact.name, artifact.inputs, inputs)]
    check_outputs(artifact.name, [slot.name for slot in artifact.outputs], outputs)
    _load(operators)
    model = _open_reference(reference, artifact, tolerance)
    options = RunOptions(
        board=board, timeout_s=timeout, checks=not no_checks, sanitize=sanitize or wants_sanitizer(), pools_after=False,
        interrupt=interrupt, fvp_path=fvp_path, npu_cycles=cycles, external_sources=external_sources, steps=steps or 1,
        progress=None if as_json or verbosity is Verbosity.QUIET else lambda line: click.echo(line, err=True),
    )  # fmt: skip
    runner = _sanitizing(runner) if sanitize else runner
    if layers or dump is not None:
        from fvp_runner import run_layers

        if runner not in ("auto", "local") or steps is not None:
            raise InputError("--layers looks into one inference of the local runner: leave --on and --steps out")
        run_layers(directory, options, sequence[0], model, dump, as_json)
        return
    with show_progress(f"running {artifact.name}", verbosity) as shown:
        shown.show_part("building what runs")
        chosen = create(runner, directory, options)
    _check_runner(chosen.name, options)
    try:
        with show_progress(f"running {artifact.name}", verbosity) as shown:
            shown.show_part(f"on {chosen.name}")
            ran = run_steps(chosen, sequence) if several else chosen.run(sequence[0])
    except (NpuModelError, RunCheckError) as error:  # the run has no right result: that is not bad use, it is wrong
        _complain(artifact, chosen.name, error, as_json)
    save_arrays(outputs, ran.outputs)
    result, disagreement = None, ""
    if model is not None:
        result, disagreement = _compare(artifact, chosen.name, ran, model, sequence, bool(several))
    what = "" if model is None else model.what
    if as_json:
        document = _document(artifact, chosen.name, ran, result, tolerance, what)
        click.echo(json.dumps(document | ({"references_disagree": disagreement} if disagreement else {})))
    else:
        click.echo(_verdict(artifact, result, tolerance, what))
        if verbosity is not Verbosity.QUIET:
            _print_table(artifact, chosen.name, ran, result)
        if disagreement:
            click.echo(f"note: {disagreement}")
    if result is not None and not result.is_within(tolerance):
        raise click.exceptions.Exit(1)


_OF_APPLICATIONS = ("directory", "inputs", "steps", "timeout", "no_checks", "quiet", "verbose", "as_json")
_CALLS = 200  # of linked networks


def _run_application(directory: Path, context: click.Context) -> None:
    """Linked networks, in a random order on their memory, each compared with itself alone."""
    from fvp_runner import ApplicationRunner, NpuModelError, RunCheckError, RunOptions

    given, typed = context.params, click.core.ParameterSource.COMMANDLINE
    others = [key for key in given if key not in _OF_APPLICATIONS]
    options_given = {f"--{key.replace('_', '-')}": context.get_parameter_source(key) is typed for key in others}
    options_given["--on"] = options_given.pop("--runner") and given["runner"] != "local"
    check_unused(directory.name, "linked networks", options_given)
    options = RunOptions(timeout_s=given["timeout"], checks=not given["no_checks"])
    count, seed = given["steps"] or _CALLS, seed_of(given["inputs"])
    runner = ApplicationRunner(directory, options)
    try:
        result = runner.run(count, seed)
    except (NpuModelError, RunCheckError) as error:
        _complain(runner.joint, "local", error, given["as_json"])
    if given["as_json"]:
        click.echo(json.dumps({"name": runner.application.name, "equal": True, **asdict(result)}))
        return
    each = ", ".join(f"{name} {number}" for name, number in result.runs.items())
    each += f"; {result.overlapped} during another one's" if result.overlapped else ""
    click.echo(f"{runner.application.name}: {count} runs in a random order equal those of each network alone")
    click.echo(f"runs on local, seed {seed}: {each}")


_OF_ARM_RUNNER = (
    "directory", "runner", "external", "inputs", "outputs", "reference", "board", "timeout", "no_checks", "quiet",
    "verbose", "as_json",
)  # fmt: skip
_OF_PROGRAMS = ("directory", "method", "external", "inputs", "outputs", "no_checks", "quiet", "verbose", "as_json")


def _directory(path: Path | None, own: Mapping[str, Any], context: click.Context) -> Path | None:
    """The artifact that is run; None where `path` was an ExecuTorch program or an application, which has been run."""
    if path is None or any(own.values()):
        raise InputError(
            "--npu, --semihosting and --trace are for --elf MY.elf; without it give an artifact's DIRECTORY"
        )
    given = context.params
    if given["runner"] == "arm-runner":
        from fvp_runner import run_in_arm_runner

        typed = click.core.ParameterSource.COMMANDLINE
        others = {f"--{key.replace('_', '-')}": key for key in given if key not in _OF_ARM_RUNNER}
        check_unused(
            path.name, "--on arm-runner", {o: context.get_parameter_source(key) is typed for o, key in others.items()}
        )
        run_in_arm_runner(path, given)
        return None
    if is_application(path):
        _run_application(path, context)
        return None
    if not (path.is_file() and is_program(data := read_file(path))):
        check_unused(path.name, "no .pte", {"--method": given["method"], "--data": given["external"]})
        return path
    from fvp_runner import ProgramOptions, run_program

    typed = click.core.ParameterSource.COMMANDLINE
    others = {f"--{key.replace('_', '-')}": key for key in given if key not in _OF_PROGRAMS}
    check_unused(path.name, "a .pte", {o: context.get_parameter_source(key) is typed for o, key in others.items()})
    texts = given["method"], given["external"], given["inputs"], given["outputs"]
    run_program(path.name, data, ProgramOptions(*texts, not given["no_checks"], whole=True, as_json=given["as_json"]))
    return None


def _sanitizing(runner: str) -> str:
    """The runner that has C to sanitize; `InputError` where another one was requested."""
    if runner not in ("auto", "local"):
        raise InputError(f"--sanitize is about the local runner's C, and --on names {runner}; leave --on out")
    return "local"


def _check_runner(name: str, options: RunOptions) -> None:
    """`InputError` for options that the runner called `name` has no use for."""
    from fvp_runner import missing

    if options.interrupt and name == "local":
        raise InputError("--interrupt is for firmware, and the local runner has none; choose --on qemu, unicorn or fvp")
    if name != "fvp" and (options.fvp_path is not None or options.npu_cycles):
        reason = missing("fvp", options)
        raise InputError(
            f"{'--cycles' if options.npu_cycles else '--fvp-path'} is for Arm's FVP, and the runner here is {name}; "
            + (f"the FVP cannot run: {reason}" if reason else "add --on fvp")
        )


def _complain(artifact: Artifact, name: str, error: NpuMemplanError, as_json: bool) -> NoReturn:
    click.echo(f"npu-memplan: {artifact.name} on {name}: {error}", err=True)
    if as_json:
        document = {"runner": name, "bit_exact": False, "outputs": [], "model": artifact.name, "error": str(error)}
        click.echo(json.dumps(document))
    else:
        click.echo(f"runner {name}\nNOT bit-exact: the run was stopped by a check")
    raise click.exceptions.Exit(1) from None


def _load(operators: Sequence[str]) -> None:
    if not operators:
        return
    from ..frontend.host_ops.own import load_operators

    for path in operators:
        load_operators(path)


def _open_reference(
    path: Path | None, artifact: Artifact, tolerance: float
) -> TFLiteReference | FrameworkReference | None:
    if path is None:
        if tolerance:
            raise InputError("--tolerance is how far outputs may be from a reference; give --reference MODEL too")
        return None
    import hashlib

    from fvp_runner import open_reference

    try:
        data = read_bytes(path)
    except OSError as error:
        raise InputError(f"cannot read the reference {path}: {error.strerror}") from None
    if hashlib.sha256(data).hexdigest() != artifact.source_sha256:
        click.echo(f"note: {path.name} is not the file that {artifact.name} was compiled from", err=True)
    return open_reference(path, artifact.target.io)


def _compare(
    artifact: Artifact,
    name: str,
    ran: RunOutputs,
    model: TFLiteReference | FrameworkReference,
    sequence: Sequence[Sequence[Any]],
    several: bool,
) -> tuple[RunResult, str]:
    """The comparison, and where references of the first inference disagree."""
    from fvp_runner import compare_outputs, describe_disagreements, find_disagreements, reference_steps

    expected = reference_steps(model, sequence) if several else model.run(sequence[0])
    names = [slot.name for slot in artifact.outputs]
    result = compare_outputs(
        name, names, ran.outputs, expected,
        runner_version=ran.version, npu_cycles=ran.npu_cycles, cycles_are_estimates=ran.cycles_are_estimates,
    )  # fmt: skip
    first = tuple(output[0] for output in expected) if several else expected
    return result, describe_disagreements(find_disagreements(model, sequence[0], first))


def _document(
    artifact: Artifact, name: str, ran: RunOutputs, result: RunResult | None, tolerance: float, reference: str
) -> dict[str, Any]:
    if result is not None:
        document = result.to_dict()
        if tolerance:
            document |= {"tolerance": tolerance, "within_tolerance": result.is_within(tolerance)}
    else:  # nothing was compared: neither right nor wrong
        nothing = {"mismatches": None, "max_abs_diff": None}
        rows = zip(artifact.outputs, ran.outputs, strict=True)
        outputs = [{"name": slot.name, "elements": int(array.size), **nothing} for slot, array in rows]
        document = {"runner": name, "bit_exact": None, "outputs": outputs}
    stack = {} if ran.stack is None else {"stack_used_bytes": ran.stack[0], "stack_bytes": ran.stack[1]}
    document |= {**stack, "model": artifact.name, "seconds": round(ran.seconds, 6), "notes": list(ran.notes)}
    return {**document, "reference": reference} if reference else document


def _verdict(artifact: Artifact, result: RunResult | None, tolerance: float, reference: str) -> str:
    """The first line of the output."""
    if result is None:
        suffix = Path(artifact.source).suffix or ".tflite"
        return f"not compared with any reference: give --reference MODEL{suffix}"
    verdict = "bit-exact" if result.bit_exact else "NOT bit-exact" + _ulps(artifact, result)
    if tolerance and not result.bit_exact:
        verdict += f", {'within' if result.is_within(tolerance) else 'not within'} the tolerance of {tolerance:g}"
    return f"against {reference}: {verdict}"


def _print_table(artifact: Artifact, name: str, ran: RunOutputs, result: RunResult | None) -> None:
    from ..text_table import align_rows

    rows = [("output", "elements", "mismatches", "max |diff|")]
    if result is not None:
        for output in result.outputs:
            difference = f"{output.max_abs_diff:g}" + (f" ({output.max_ulps} ulp)" if output.max_ulps else "")
            rows.append((output.name, f"{output.elements:,}", f"{output.mismatches:,}", difference))
    else:
        sizes = zip(artifact.outputs, ran.outputs, strict=True)
        rows += [(slot.name, f"{array.size:,}", "-", "-") for slot, array in sizes]
    lines = [f"{artifact.name} on {name}", *align_rows(rows, right={1, 2, 3}), *(f"note: {note}" for note in ran.notes)]
    lines.append(f"runner {name}{f' ({ran.version})' if ran.version else ''}, {ran.seconds:.3f} s")
    if ran.npu_cycles is not None:
        lines.append(f"{ran.npu_cycles:,} {'estimated ' if ran.cycles_are_estimates else ''}NPU cycles")
    if ran.stack is not None:
        lines.append(f"stack of the firmware, measured: {ran.stack[0]:,} of {ran.stack[1]:,} bytes")
    click.echo("\n".join(lines))


def _ulps(artifact: Artifact, result: RunResult) -> str:
    """The largest difference of float outputs, as text, where operators that call the C library may cause it."""
    from ..exactness import Exactness

    kinds = dict.fromkeys(o.kind for o in artifact.operators if o.claim.exactness is Exactness.ULPS)
    if not result.max_ulps or not kinds:
        return ""
    return f", within {result.max_ulps} ulp ({', '.join(kinds)}: functions of the C library)"
