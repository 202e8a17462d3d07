"""Whether this tree's artifacts have the bytes of another commit's, to check a change of structure.

    python -m benchmarks.same_bytes COMMIT MODEL.tflite... [--accelerators A,B] [--jobs 2]

Compiles every model with Vela's streams lifted, with native lowering, in stripes and for the host alone, for each
accelerator, and plans every program of the Relax zoo, with the code of COMMIT (in a worktree of its own) and with the
code of this tree; prints each file that differs and exits with 1 when there is one. What a commit makes is kept in
build/same_bytes/, so that the next comparison costs half.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
CACHE = REPOSITORY / "build" / "same_bytes"
ACCELERATORS = ("ethos-u55-128", "ethos-u55-256", "ethos-u65-256")
WAYS = {
    "lifted": ("--npu-compiler", "vela"),
    "own": ("--npu-compiler", "tvm"),
    "stripes": ("--npu-compiler", "tvm", "--stripes"),
}

Digests = dict[str, str]  # "case/file" -> SHA-256, or what the compile said instead


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def cases(models: Sequence[Path], accelerators: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """The name and the arguments of every compile."""
    for model in models:
        yield f"{model.stem}/host", [str(model), "--accelerator", "none"]
        for accelerator in accelerators:
            for way, options in WAYS.items():
                yield f"{model.stem}/{way}/{accelerator}", [str(model), "--accelerator", accelerator, *options]


def compiled(arguments: Sequence[str]) -> Digests:
    """Digest of each file that `npu-memplan compile` writes; of its error where it refuses."""
    from npu_memplan.cli import cli
    from npu_memplan.errors import NpuMemplanError

    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "artifact"
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                cli.main(["compile", *arguments, "-o", str(output)], "npu-memplan", standalone_mode=False)
        except NpuMemplanError as error:
            return {"error": str(error)}
        return {
            str(path.relative_to(output)): sha256(path.read_bytes())
            for path in sorted(output.rglob("*"))
            if path.is_file()
        }


def planned_zoo() -> Iterator[tuple[str, Digests]]:
    """The text of every program of the zoo after `PlanMemory`."""
    from npu_memplan.problem import Pool
    from npu_memplan.transform import PlanMemory

    sys.path.insert(0, str(REPOSITORY))  # this tree's zoo for both sides: constants' texts name the file they came from
    zoo = importlib.import_module("tests.support.zoo").ZOO
    for name, build in zoo.items():
        if (entry := build()) is not None:
            planned = PlanMemory([Pool("sram")])(entry.module)
            yield f"zoo/{name}", {"script": sha256(planned.script(show_meta=True).encode())}


def dump(models: Sequence[Path], accelerators: Sequence[str], part: int, parts: int) -> Digests:
    """Every digest of one share of the work, by the code that this process imports."""
    found: Digests = {}
    for case, arguments in list(cases(models, accelerators))[part::parts]:
        found |= {f"{case}/{name}": digest for name, digest in compiled(arguments).items()}
    if part == 0:
        for case, digests in planned_zoo():
            found |= {f"{case}/{name}": digest for name, digest in digests.items()}
    return found


def digests_of(tree: Path, arguments: Sequence[str], jobs: int) -> Digests:
    """`dump` in processes that import the packages of `tree`."""
    data = os.environ.get("NPU_MEMPLAN_SHARED", str(REPOSITORY.parent / "shared"))  # the zoo's models, as in tests
    paths = os.pathsep.join((str(tree), str(REPOSITORY)))  # this one for tests.support only
    environment = os.environ | {"PYTHONPATH": paths, "NPU_MEMPLAN_SHARED": data, "TVM_DEVICE_BACKEND_AUTOLOAD": "1"}

    def share(part: int) -> Digests:
        command = [sys.executable, __file__, *arguments, "--dump", "--part", f"{part}/{jobs}"]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        return dict(json.loads(done.stdout))

    found: Digests = {}
    with ThreadPoolExecutor(jobs) as pool:
        for digests in pool.map(share, range(jobs)):
            found |= digests
    return found


def digests_at(commit: str, arguments: Sequence[str], jobs: int) -> Digests:
    """What the code of `commit` makes, from the cache where it is known."""
    kept = CACHE / f"{sha256(json.dumps([commit, *arguments]).encode())[:16]}.json"
    if not kept.is_file():
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            git = ("git", "-C", str(REPOSITORY), "worktree")
            subprocess.run([*git, "add", "--quiet", "--detach", str(tree), commit], check=True)
            try:
                found = digests_of(tree, arguments, jobs)
            finally:
                subprocess.run([*git, "remove", "--force", str(tree)], check=True)
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(found, indent=1, sort_keys=True), encoding="utf-8")
    return dict(json.loads(kept.read_text(encoding="utf-8")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--accelerators", default=",".join(ACCELERATORS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--dump", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--part", default="0/1", help=argparse.SUPPRESS)
    given = parser.parse_args()
    accelerators = given.accelerators.split(",")
    if given.dump:
        part, parts = map(int, given.part.split("/"))
        json.dump(dump(given.models, accelerators, part, parts), sys.stdout)
        return
    resolved = ["git", "-C", str(REPOSITORY), "rev-parse", f"{given.commit}^{{commit}}"]
    commit = subprocess.run(resolved, stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    arguments = [commit, *(str(model.resolve()) for model in given.models), "--accelerators", given.accelerators]
    before, now = digests_at(commit, arguments, given.jobs), digests_of(REPOSITORY, arguments, given.jobs)
    differing = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    for name in differing:
        print(f"differs: {name}")
    print(f"{len(now)} files, {len(differing)} differ from {commit[:12]}")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
