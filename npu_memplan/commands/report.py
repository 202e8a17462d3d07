"""`npu-memplan report`, `explain` and `diff`: a compiled model as page, tables, files or text.

Invariant: files go beside plan.json (or to -o) complete or not at all; in a pipe a command prints nothing but what was
requested. `diff` ends with exit code 0, also when the plans differ; with --exit-code 1 when they differ, as git diff
does.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click

from ..artifact import Artifact
from ..command_line import FILE, FOLDER, PLACE, show_progress
from ..files import folders as manifest
from ..files.paths import read_bytes, write_inside
from ..models.executorch.program import is_program
from ..models.flatbuffer import read_file
from ..names import printable_text
from ..options import CompileOptions
from ..problem import Lifetime, Plan, Problem


@click.command(help="Write the HTML report of a compiled model (a directory), of a problem file and its --plan, or of "
               "the memory of an ExecuTorch program (.pte).")  # fmt: skip
@click.argument("directory", metavar="DIRECTORY|PROBLEM|MODEL.pte", type=PLACE)
@click.option("--method", default="", metavar="NAME", help="Of a .pte; default: its first.")
@click.option("--data", "external", multiple=True, type=FILE, metavar="FILE.ptd", help="External data of a .pte.")
@click.option("--plan", "plan_file", type=FILE, metavar="PLAN", help="The plan (.csv or .json) of a problem file.")
@click.option("-o", "--output", type=FOLDER, metavar="DIR", help="Where to write; default: beside plan.json.")
@click.option("--table", is_flag=True, help="Print the table of memory.txt, write nothing.")
@click.option("--against", type=FOLDER, metavar="DIRECTORY",
              help="Also write compare.html: this model beside another one, and say what differs.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def report_command(
    directory: Path,
    method: str,
    external: tuple[Path, ...],
    plan_file: Path | None,
    output: Path | None,
    table: bool,
    against: Path | None,
    as_json: bool,
) -> None:
    from ..report.files import ReportError, write_reports

    if plan_file is not None:
        artifact, directory = bare_artifact(directory, plan_file), directory.parent
    elif directory.is_file() and is_program(data := read_file(directory)):
        artifact, directory = program_artifact(directory, data, method, external), directory.parent
    elif directory.is_file() and directory.suffix.lower() in (".csv", ".json"):
        raise ReportError(
            f"{directory} is a file; give its plan with --plan PLAN, or the directory of a compiled model"
        )
    else:
        artifact = Artifact.load_verified(directory)
    if table:
        from ..report.text.memory_txt import print_memory

        print_memory(artifact)
        return
    other = None if against is None else Artifact.load_verified(against)
    target = directory if output is None else output
    with show_progress(f"drawing {artifact.name}"):
        written = write_reports(artifact, target, directory)
    changes = None
    if other is not None and against is not None:
        from ..report.page.compare import compare_page
        from ..report.text.diff import compare_plans

        changes = compare_plans(other, artifact, (against, directory))
        written["compare"] = write_inside(target, "compare.html", compare_page(other, artifact, changes).encode())
    manifest.add(directory, written.values())  # beside plan.json they are part of the artifact
    document: dict[str, object] = {"model": artifact.name, "files": {role: str(path) for role, path in written.items()}}
    lines = [f"{role:8} {path}  ({path.stat().st_size:,} bytes)" for role, path in written.items()]
    if changes is not None:
        document["against"] = changes.to_dict()
        lines += ["", changes.to_text().rstrip()]
    click.echo(json.dumps(document) if as_json else "\n".join(lines))


def open_artifact(path: Path) -> Artifact:
    """The artifact in a directory, its plan verified, or of the first method of an ExecuTorch program."""
    if path.is_file() and is_program(data := read_file(path)):
        return program_artifact(path, data, "", ())
    return Artifact.load_verified(path)


def bare_artifact(problem_file: Path, plan_file: Path) -> Artifact:
    """A problem and its plan as an artifact without calls, operators and code; errors are those of the readers and the
    verifier."""
    from ..artifact.files import read_plan, read_problem
    from ..verify import check

    problem = read_problem(problem_file)
    plan = read_plan(plan_file, problem)
    check(problem, plan)
    problem, notes = _from_zero(problem)
    return _bare(problem_file, read_bytes(problem_file), problem, plan, notes)


def _bare(path: Path, data: bytes, problem: Problem, plan: Plan, notes: tuple[str, ...]) -> Artifact:
    import hashlib

    return Artifact(
        name=problem.name or printable_text(path.stem),
        source=printable_text(path.name),
        source_sha256=hashlib.sha256(data).hexdigest(),
        target=CompileOptions("none", "", ""),
        problem=problem,
        plan=plan,
        regions=tuple(range(1, len(problem.pools) + 1)),
        inputs=(),
        outputs=(),
        notes=notes,
    )


def program_artifact(path: Path, data: bytes, method: str, external: tuple[Path, ...]) -> Artifact:
    """A method of an ExecuTorch program as an artifact without code: its memory, its calls and the NPU's time."""
    from ..artifact.timing import Timing, layers_of
    from ..ethosu.time import sum_bounds
    from ..executorch.board import memories_for, options_for
    from ..executorch.memory_map import memory_of
    from ..models.executorch.delegates import npu_calls, open_program
    from ..verify import check

    program = open_program(path.name, data, external)
    chosen = program.method(method)
    found = memory_of(program, chosen)
    check(found.problem, found.plan)
    artifact = _bare(path, data, found.problem, found.plan, found.notes)
    calls = [one for one in npu_calls(program) if one.method is chosen]
    if not calls:
        return replace(artifact, calls=found.calls)
    times, names = found.delegates, [(f"delegate {one.delegate}", "ETHOSU") for one in calls]
    runs = [(time, (number,) * len(time.shares)) for number, time in enumerate(times)]
    return replace(
        artifact,
        target=options_for(calls[0], {}),
        calls=found.calls,
        constants_bytes=sum(one.blocks.constants.nbytes for one in calls),
        stream_bytes=sum(one.blocks.command_bytes for one in calls),
        npu_operations=sum(len(time.shares) for time in times),
        timing=Timing(memories_for(calls[0], {}).clock_hz, sum_bounds(times)),
        layers=layers_of(runs, names),
    )


def _from_zero(problem: Problem) -> tuple[Problem, tuple[str, ...]]:
    """`problem` with no lifetime before point 0, and what the reader of its report should know then."""
    first = min((life.first for b in problem.buffers for life in b.lifetimes), default=0)
    if first >= 0:
        return problem, ()
    buffers = tuple(
        replace(b, lifetimes=tuple(Lifetime(life.first - first, life.last - first) for life in b.lifetimes))
        for b in problem.buffers
    )
    return replace(problem, buffers=buffers, points=()), (f"point 0 here is point {first} of the problem",)


@click.command(help="Compare the plans of two compiled models, or of two ExecuTorch programs (.pte).")
@click.argument("before", type=PLACE)
@click.argument("after", type=PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--exit-code", is_flag=True, help="Exit with 1 when the plans differ.")
def diff_command(before: Path, after: Path, as_json: bool, exit_code: bool) -> None:
    from ..report.text.diff import compare_plans

    answer = compare_plans(open_artifact(before), open_artifact(after), (before, after))
    click.echo(json.dumps(answer.to_dict()) if as_json else answer.to_text(), nl=as_json)
    if exit_code and not answer.is_same:
        raise click.exceptions.Exit(1)


@click.command(help="Say where the peak is, with the memory map, or where one buffer lies and why; with --advise, "
               "which changes of the model gain.")  # fmt: skip
@click.argument("directory", metavar="DIRECTORY|MODEL.pte", type=PLACE)
@click.argument("name", required=False)
@click.option("--advise", "advises", is_flag=True, help="Change the model (operators, channels, float ends), compile "
              "each change with --effort quick, and print those that gain most.")  # fmt: skip
@click.option("--model", type=FILE, metavar="MODEL.tflite", help="The model that was compiled, for --advise; default: "
              "of its name here, or beside DIRECTORY.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def explain_command(directory: Path, name: str | None, advises: bool, model: Path | None, as_json: bool) -> None:
    from ..report.text.explain import explain_name, explain_peak

    if model is not None and not advises:
        raise click.UsageError("--model is for --advise")
    artifact = open_artifact(directory)
    if advises:
        _print_advice(artifact, directory, name, model, as_json)
        return
    answer = explain_peak(artifact, directory) if name is None else explain_name(artifact, name, directory)
    click.echo(json.dumps(answer.to_dict()) if as_json else answer.to_text(), nl=as_json)
    if name is None and not as_json:
        from ..report.text.memory_txt import print_maps

        click.echo()
        print_maps(artifact)


def _print_advice(artifact: Artifact, directory: Path, name: str | None, model: Path | None, as_json: bool) -> None:
    from ..cache import program_cache
    from ..model_advice import advise, find_model

    if name is not None:
        raise click.UsageError(f"--advise is about the whole model: leave out {name}")
    path = find_model(artifact, directory, model)
    with show_progress(f"changing {path.name}") as shown:
        answer = advise(artifact, path, shown.show_part, program_cache())
    click.echo(json.dumps(answer.to_dict()) if as_json else answer.to_text(), nl=as_json)
