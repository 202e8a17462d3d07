"""How long the reports take, and how soon the page paints, up to 10,000 buffers.

    python -m benchmarks.report [--browser]

Prints one row a size: buffers, bytes of report.html, seconds to write all files, and with
--browser the milliseconds from navigation to the first drawn map (headless Chromium).
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.model import Call
from npu_memplan.options import CompileOptions
from npu_memplan.planners import plan
from npu_memplan.problem import Agent, Buffer, BufferKind, Lifetime, Pool, Problem
from npu_memplan.report.files import write_reports

REPOSITORY = Path(__file__).resolve().parent.parent


def synthetic(count: int, seed: int = 0) -> Artifact:
    """An artifact of `count` buffers with mostly short lives, as inference has them."""
    rng = random.Random(seed)
    kinds = [BufferKind.TENSOR, BufferKind.NPU_INTERNAL, BufferKind.WEIGHTS, BufferKind.HOST_SCRATCH]
    buffers = []
    for i in range(count):
        last = min(count, i + 1 + int(rng.expovariate(0.3)))
        agents = frozenset((Agent.NPU,)) if i % 3 else frozenset((Agent.HOST, Agent.NPU))
        buffers.append(
            Buffer(
                f"tensor_{i}",
                16 * rng.randint(1, 2000),
                (Lifetime(i, max(last, i + 1)),),
                agents=agents,
                kind=kinds[i % 4],
                producer=f"0:net.{i}",
                consumers=(f"0:net.{min(count - 1, i + 1)}",),
            )
        )
    problem = Problem(
        tuple(buffers), (Pool("sram"),), points=tuple(f"0:net.{i}" for i in range(count)), name=f"synthetic_{count}"
    )
    answer = plan(problem, "greedy-by-size")
    target = CompileOptions("ethos-u55-256", "Ethos_U55_High_End_Embedded", "Shared_Sram")
    calls = (Call("net", Agent.NPU, (), (), (0, count)),)
    return Artifact(
        problem.name, "synthetic.tflite", "0" * 64, target, problem, answer, (1,), (), (), calls=calls
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", action="store_true")
    arguments = parser.parse_args()
    browser = None
    if arguments.browser:
        from tests.support.browser import Browser

        browser = Browser()
    print(f"{'buffers':>8} {'report.html':>12} {'write s':>8} {'paint ms':>9} {'redraw ms':>9}")
    for count in (100, 1_000, 10_000):
        artifact = synthetic(count)
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            files = write_reports(artifact, Path(folder))
            seconds = time.perf_counter() - started
            paint = redraw = "-"
            if browser is not None:
                browser.open(files["html"])
                paint = f"{browser.run('npuMemplan.painted'):.0f}"
                script = "(() => { const t = performance.now(); npuMemplan.draw(); return performance.now() - t; })()"
                redraw = f"{browser.run(script):.1f}"
            size = files["html"].stat().st_size
        print(f"{count:>8} {size:>12,} {seconds:>8.2f} {paint:>9} {redraw:>9}")
    if browser is not None:
        browser.close()


if __name__ == "__main__":
    main()
