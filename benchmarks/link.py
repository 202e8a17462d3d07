"""Several networks in one memory: bytes against those apart and TFLite Micro's shared arena, random orders of runs.

    python -m benchmarks.link MODEL.tflite ... [--accelerator NAME] [--effort quick] [--pool SIZE] [--steps 200]
    python -m benchmarks.link MODEL.tflite ... --copies 60     # CPU seconds of linking so many networks

First form: bytes of the joint plan, what networks keep, the bound and status; the sum of the artifacts; the largest
arena of Vela's own plans; the shared arena of TFLite Micro's interpreters for the models without an NPU, by its own
allocator (64-bit structures): the largest planned part and all persistent parts. Then so many runs in a random order,
each compared with the network alone, and whether a buffer moved onto bytes that another network keeps is found by the
verifier. Second form: copies of the models, each model compiled once before; CPU seconds of `link` (problem, plan,
verification) and of writing all artifacts, C included, are counted, the compiles are not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.application import Application
from npu_memplan.compiler import plan_network
from npu_memplan.link.networks import link
from npu_memplan.link.writing import write_application
from npu_memplan.options import CompileOptions
from npu_memplan.problem import BufferKind
from npu_memplan.stages import Planned
from npu_memplan.verify import verify


def bytes_of_tflite_micro(models: Sequence[Path]) -> str:
    """Of interpreters with one allocator."""
    from tests.support.tflm_npu import MicroWithNpu

    made = [MicroWithNpu(model.read_bytes()) for model in models]
    heads, tails = [one.head_bytes for one in made], [one.tail_bytes for one in made]
    return f"{max(heads) + sum(tails):,} bytes, planned {max(heads):,}, persistent {sum(tails):,} (no NPU, 64 bits)"


def corrupted(joint: Artifact) -> str:
    """What the verifier says of a buffer that was moved onto what another network keeps, or another one's input."""
    kept = [b for b in joint.problem.buffers if b.kind in (BufferKind.STATE, BufferKind.RESIDENT)]
    if not kept:
        return "nothing is kept"
    at = joint.plan.placement(kept[0].name)
    owner = kept[0].name.partition("/")[0]
    other = next(
        b for b in joint.problem.buffers if b.name.partition("/")[0] != owner and b.kind not in (kept[0].kind,)
    )
    moved = [
        replace(p, pool=at.pool, offset_bytes=at.offset_bytes) if p.buffer == other.name else p
        for p in joint.plan.placements
    ]
    found = verify(joint.problem, replace(joint.plan, placements=tuple(moved)))
    return found[0].message if found else "NOT FOUND"


def compare(models: Sequence[Path], options: CompileOptions, steps: int, resident: str, folder: Path) -> None:
    """The first form; `resident`: as of the command."""
    started = time.process_time()
    options = replace(options, resident=resident)
    linked = link(models, options, "app", plan_network)
    folder.mkdir()
    application, joint = write_application(linked, "app", folder, (), {})
    print(f"{time.process_time() - started:.1f} CPU s, compiles included", flush=True)
    for usage in joint.plan.usage:
        apart = sum(network.alone_bytes[usage.pool] for network in application.networks)
        gap = usage.used_bytes / max(1, usage.lower_bound_bytes) - 1
        kept = sum(network.kept_bytes for network in application.networks)
        print(
            f"{usage.pool}: {usage.used_bytes:,} bytes for {len(models)} networks ({joint.plan.status.value}, bound "
            f"{usage.lower_bound_bytes:,}, gap {gap:.1%}), of which {kept:,} are kept; {apart:,} apart"
        )
    arenas = {n.name: sum(Artifact.load(folder / n.name).vela_arena_bytes.values()) for n in application.networks}
    print(f"Vela's arenas: {', '.join(f'{n} {size:,}' for n, size in arenas.items())}")
    print(f"TFLite Micro, shared arena: {bytes_of_tflite_micro(models)}")
    command = [sys.executable, "-m", "npu_memplan", "run", str(folder), "--steps", str(steps), "--json"]
    ran = subprocess.run(command, check=False, capture_output=True, text=True)
    outcome = json.loads(ran.stdout)["runs"] if ran.returncode == 0 else ran.stderr.strip().splitlines()[-1]
    print(f"{steps} runs in a random order, all equal to those alone: {outcome}")
    print(f"corrupted: {corrupted(joint)}")


def copies(models: Sequence[Path], options: CompileOptions, count: int, folder: Path) -> None:
    """The second form."""
    known: dict[bytes, Planned] = {}

    def compiled(model: Path, wanted: CompileOptions) -> Planned:
        data = model.read_bytes()
        if data not in known:
            known[data] = plan_network(model, wanted)
        return known[data]

    named = [folder / f"{models[i % len(models)].stem}_{i}.tflite" for i in range(count)]
    for i, path in enumerate(named):
        shutil.copy(models[i % len(models)], path)
        compiled(path, options)
    started = time.process_time()
    linked = link(named, options, "app", compiled)
    middle = time.process_time()
    (folder / "app").mkdir()
    _, joint = write_application(linked, "app", folder / "app", (), {})
    done = time.process_time()
    used = ", ".join(f"{u.pool} {u.used_bytes:,} (bound {u.lower_bound_bytes:,})" for u in joint.plan.usage)
    print(
        f"{count} networks, {len(joint.problem.buffers):,} buffers: linked in {middle - started:.1f} CPU s, written in "
        f"{done - middle:.1f}; {used}, {joint.plan.status.value}"
    )
    assert len(Application.load(folder / "app").networks) == count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--accelerator", default="ethos-u55-256")
    parser.add_argument("--effort", default="quick")
    parser.add_argument("--pool", type=int, default=0, metavar="BYTES", help="of sram; default: no size")
    parser.add_argument("--resident", default="none")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--copies", type=int, default=0)
    given = parser.parse_args()
    pools = {"sram": given.pool} if given.pool else {}
    options = CompileOptions(given.accelerator, effort=given.effort, pools=pools)
    with tempfile.TemporaryDirectory() as place:
        if given.copies:
            copies(given.models, options, given.copies, Path(place))
        else:
            compare(given.models, options, given.steps, given.resident, Path(place, "app"))


if __name__ == "__main__":
    main()
