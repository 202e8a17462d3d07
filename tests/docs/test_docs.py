"""Every command in docs/ is run, and what the page shows is what it prints.

A fenced block ```console holds commands (`$ ` in front, `> ` for further lines) with the output they
print; `...` stands for anything, and a command without output may print what it likes. A block whose
info string ends in `file=NAME` is written to NAME first. All pages are read in one working directory, in the
order of docs/README.md, as one person would, with a cache of programs; `models/` in it holds the real models. The
package is then run from its wheel. `pytest tests/docs --update-golden` puts real outputs into the pages.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
ORDER = re.findall(r"\]\(([^)#]+\.md)\)", (DOCS / "README.md").read_text(encoding="utf-8"))
PAGES = [page for page in dict.fromkeys(ORDER) if "```console" in (DOCS / page).read_text(encoding="utf-8")]
# up to what is the shell's: a pipe, another command, a file that output goes to
_PLAIN = re.compile(r"npu-memplan\b(?:(?!\s\d>)[^|><;&$`])*(?=$|\s\d>|[|><;&])")
_BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.M | re.S)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.M | re.S)
_LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)(?:#[^)]*)?\)")


@dataclass
class Step:
    """One command of a console block; `begin`, `end` is where its output stands in the page."""

    command: str
    output: str
    begin: int
    end: int


def steps(body: str, offset: int) -> list[Step]:
    """The commands of a console block that starts at `offset` of its page."""
    found: list[Step] = []
    at = offset
    for line in body.splitlines(keepends=True):
        start, at = at, at + len(line)
        if line.startswith("$ "):
            found.append(Step(line[2:], "", at, at))
        elif found and line.startswith("> ") and not found[-1].output:
            found[-1].command += line[2:]
            found[-1].begin = found[-1].end = at
        elif found:
            found[-1].output += line
            found[-1].end = at
        else:
            raise AssertionError(f"a console block begins with output, not with a command: {line!r} at {start}")
    return found


def matches(expected: str, actual: str) -> bool:
    """`expected` is the whole output, with `...` for anything."""
    tidy = ["\n".join(line.rstrip() for line in text.strip().splitlines()) for text in (expected, actual)]
    pattern = ".*?".join(re.escape(part) for part in tidy[0].split("..."))
    return re.fullmatch(pattern, tidy[1], re.S) is not None


LIMIT_S = 900  # of one command: README's table over all boards takes minutes where the machine is slow
ENVIRONMENT = {"COLUMNS": "100", "NO_COLOR": "1", "NPU_MEMPLAN_CHECK": "auto", "NPU_MEMPLAN_PROGRAM_CACHE": "64MiB"}


def environment_of(folder: Path) -> dict[str, str]:
    """What one who reads in `folder` has set; programs that a page compiles are known to the pages behind it."""
    return {**ENVIRONMENT, "NPU_MEMPLAN_CACHE": str(folder.with_name(f"{folder.name}-cache"))}


def run(command: str, folder: Path, installed: Path | None = None) -> tuple[int, str]:
    """Exit code and merged output of one shell command, run in `folder`, the current directory.

    Of the package in folder `installed`, or of this checkout. Of this checkout, npu-memplan at the start of a command
    runs in this process: importing TVM once a command is most of the time. The shell gets what it printed for the rest.
    """
    start = _PLAIN.match(command)
    if start is not None and installed is None:
        words, rest = shlex.split(start[0].replace("\\\n", " ")), command[start.end() :]
        printed = io.StringIO()
        complained = io.StringIO() if rest else printed
        code = run_here(words, folder, printed, complained)
        if not rest:
            return code, printed.getvalue()
        with tempfile.NamedTemporaryFile() as errors:
            errors.write(complained.getvalue().encode())
            errors.flush()
            instead = f"(cat; cat {errors.name} >&2; exit {code}) {rest}"
            return run_by_shell(instead, folder, None, printed.getvalue().encode())
    return run_by_shell(command, folder, installed)


def run_by_shell(command: str, folder: Path, installed: Path | None, given: bytes = b"") -> tuple[int, str]:
    """Exit code and merged output of a command that reads `given`."""
    paths = [str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        **os.environ,
        **environment_of(folder),
        "PATH": os.pathsep.join([str(installed / "bin"), *paths] if installed else paths),
        "PYTHONPATH": str(installed or REPOSITORY),
    }
    if installed and (installed / "pyvenv.cfg").is_file():  # an environment of its own: nothing of this one
        environment["PATH"] = os.pathsep.join([str(installed / "bin"), os.environ["PATH"]])
        del environment["PYTHONPATH"]
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env=environment,
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=LIMIT_S,
    )
    return done.returncode, done.stdout.decode()


def run_here(words: list[str], folder: Path, printed: io.StringIO, complained: io.StringIO) -> int:
    """Exit code of the real entry point with these arguments, which writes into these."""
    from npu_memplan.cli import main

    code = 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(complained),
    ):
        patch.setattr(sys, "argv", words)
        for name, value in environment_of(folder).items():
            patch.setenv(name, value)
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return code


_PROGRESS = re.compile(r"^(?:\w+ing \S+|sweep) \(\d+ of \d+\): .*\n", re.M)  # what no terminal keeps


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one who reads page after page."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
@pytest.mark.parametrize("page", PAGES)
def test_page(
    page: str,
    reader: Path,
    real_network: Callable[[str], Path],
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = DOCS / page
    text = path.read_text(encoding="utf-8")
    if not (reader / "models").exists():
        (reader / "models").symlink_to(real_network("vww_96_int8").parent)  # the larger ones and kws
    monkeypatch.chdir(reader)
    read(text, page, reader, path if request.config.getoption("--update-golden") else None)


def read(text: str, page: str, folder: Path, update: Path | None = None, installed: Path | None = None) -> None:
    """Do what `text` says; put what was printed into the file `update`, or hold it to the text."""
    changes: list[tuple[int, int, str]] = []
    for block in _BLOCK.finditer(text):
        language, file, body = block[1], block[2], block[3]
        if file is not None:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(body, encoding="utf-8")
        if language != "console":
            continue
        for step in steps(body, block.start(3)):
            code, output = run(step.command, folder, installed)
            output = _PROGRESS.sub("", output)
            fails = "exit code" in step.command
            assert code == 0 or fails, f"{page}: {step.command.strip()} ended with {code}:\n{output}"
            if step.output and not matches(step.output, output):
                tidy = "".join(line.rstrip() + "\n" for line in output.strip("\n").splitlines())
                tidy = re.sub(r"\b\d+\.\d+ s\b", "... s", tidy)  # times differ from run to run
                assert update, f"{page}: {step.command.strip()} printed\n{tidy}\nbut the page shows\n{step.output}"
                changes.append((step.begin, step.end, tidy))
    for begin, end, new in reversed(changes):
        text = text[:begin] + new + text[end:]
    if changes and update:
        update.write_text(text, encoding="utf-8")


@pytest.mark.slow
@pytest.mark.timeout(2 * LIMIT_S)
def test_the_wheel_does_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a wheel, outside of the checkout, with the dependencies that are there; or from a virtual environment that
    has the wheel and what pip took with it, where NPU_MEMPLAN_VENV names one (hosted CI makes it).
    """
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    apart = ["--no-deps", "--no-index"]
    made, installed, folder = tmp_path / "made", tmp_path / "installed", tmp_path / "reader"
    if "NPU_MEMPLAN_VENV" in os.environ:
        installed = Path(os.environ["NPU_MEMPLAN_VENV"]).resolve()
        assert (installed / "pyvenv.cfg").is_file()
    else:
        build = [*pip, "wheel", *apart, "--no-build-isolation", "-w", str(made), str(REPOSITORY)]
        subprocess.run(build, check=True, timeout=LIMIT_S)
        (wheel,) = made.glob("*.whl")
        subprocess.run([*pip, "install", *apart, "--target", str(installed), str(wheel)], check=True, timeout=LIMIT_S)
    folder.mkdir()
    monkeypatch.chdir(folder)
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (folder / "examples" / "digits").mkdir(parents=True)
    shutil.copy(REPOSITORY / "examples" / "digits" / "digits.tflite", folder / "examples" / "digits")
    read(readme, "README.md", folder, installed=installed)
    # what else lies in the wheel: boards, the firmware project, networks
    assert run("npu-memplan boards", folder, installed) == run("npu-memplan boards", folder)
    made = run("npu-memplan new-firmware firmware --board corstone-300-u55 --model build/digits", folder, installed)
    assert made[0] == 0, made[1]
    code, said = run("npu-memplan evidence --on local --only hello_world_int8 -o evidence -q", folder, installed)
    assert code == 0, said
    assert said.startswith("4 of 4 programs bit-exact on local; cycles"), said
    where = "import fvp_runner, npu_memplan; print(npu_memplan.__file__, fvp_runner.__file__)"
    _, printed = run(f'python -c "{where}"', folder, installed)
    assert all(path.startswith(str(installed)) for path in printed.split())


@pytest.mark.parametrize("page", sorted(p.relative_to(REPOSITORY).as_posix() for p in DOCS.rglob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    path = REPOSITORY / page
    text = _CODE.sub("", path.read_text(encoding="utf-8"))
    broken = [m for m in _LINK.findall(text) if not (path.parent / m).exists()]
    assert broken == []


def test_every_page_is_in_the_list_of_pages() -> None:
    assert {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md")} - {"README.md"} == set(ORDER)


def test_reference_names_every_key_of_plan_json(shared_model: Callable[[str], Path]) -> None:
    from npu_memplan.artifact import Artifact
    from npu_memplan.compiler import plan_model
    from npu_memplan.options import CompileOptions
    from npu_memplan.problem import BufferKind

    artifact: Artifact = plan_model(shared_model("ad01_int8"), CompileOptions()).artifact
    document = json.loads(artifact.to_json())
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_0-9]+)(?:\[\])?`", text))
    rows = ("buffers", "pools", "calls", "operators", "inputs")
    keys = set(document) | set(document["target"]) | {key for row in rows for key in document[row][0]}
    # of a pool, what weighs spilling is described together
    together = {k for k in keys if k.startswith(("read_bandwidth", "write_bandwidth", "read_latency", "write_latency"))}
    assert keys - together - {"clock_hz", "burst_bytes", "schema"} - named == set()
    assert {kind.value for kind in BufferKind} - named == set()
    assert document["schema"] in text


def test_matching_is_strict_where_it_says_so() -> None:
    assert matches("a\nb ...\n", "a  \nb 17\n")
    assert matches("first\n...\nlast\n", "first\nx\ny\nlast\n")
    assert not matches("a\n", "a\nb\n")
    assert not matches("1 + 1", "1 * 1")
