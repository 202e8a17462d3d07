"""One network asked in ten ways: bytes, estimated cycles, inexact operators; fails where two answers contradict.

    python -m benchmarks.one_answer MODEL.tflite ...

A row a way, for the usual NPU: the default compile, `--effort quick`, `--objective bytes`, `--pool` with three sizes,
`--max-ms`, `explore`, native lowering alone, the CPU alone. It is a contradiction where a way that compares all
candidates takes no fewer bytes and no fewer cycles than another row and more of one, where a program has fewer bytes
than that of `--objective bytes`, where a larger pool is slower, or where a pool that is too small requires other bytes
than that program takes.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from npu_memplan.commands.compile import parse_options
from npu_memplan.compiler import model_loader, plan_model
from npu_memplan.exactness import Exactness
from npu_memplan.planners import PlanningError
from npu_memplan.tuning.pareto import explore


@dataclass(frozen=True, slots=True)
class Answer:
    """What one way says; `cycles` 0: of the CPU's clock, `inexact` None: nothing was built."""

    way: str
    size_bytes: int
    cycles: int
    inexact: int | None
    compares: bool = True  # all candidates

    def beats(self, other: Answer) -> bool:
        """Whether it has fewer bytes or cycles and no more of either."""
        own, its = (self.size_bytes, self.cycles), (other.size_bytes, other.cycles)
        return 0 < self.cycles <= other.cycles and self.size_bytes <= other.size_bytes and own != its

    def row(self) -> str:
        """The columns of the table."""
        inexact = "-" if self.inexact is None else str(self.inexact)
        cycles = f"{self.cycles:,}" if self.cycles else "-"
        return f"| {self.way or '(default)'} | {self.size_bytes:,} | {cycles} | {inexact} |"


def compile_answer(model: Path, way: str, compares: bool = True) -> Answer:
    """The answer of `compile` with the options of `way`."""
    made = plan_model(model, parse_options(shlex.split(way))).artifact
    used = sum(usage.used_bytes for usage in made.plan.usage)
    inexact = sum(operator.claim.exactness is not Exactness.EXACT for operator in made.operators)
    cycles = made.estimated_cycles or (sum(layer.cycles for layer in made.host_layers) if compares else 0)
    return Answer(way, used, cycles, inexact, compares)


def required_bytes(model: Path, size: int) -> int:
    """The bytes that a pool of `size` bytes is said to lack nothing with; `size` where a program fits it."""
    try:
        plan_model(model, parse_options(["--pool", f"sram={size}"]))
    except PlanningError as error:
        return error.required_bytes
    return size


def ask(model: Path) -> tuple[list[Answer], list[str]]:
    """The ten answers, and what contradicts."""
    usual, least = compile_answer(model, ""), compile_answer(model, "--objective bytes")
    sizes = (least.size_bytes, (least.size_bytes + usual.size_bytes) // 2, usual.size_bytes)
    pools, wrong = list[Answer](), list[str]()
    for size in sizes:
        try:
            pools.append(compile_answer(model, f"--pool sram={size}"))
        except PlanningError as error:
            wrong.append(f"{size:,} bytes are taken without a size, and {error.required_bytes:,} required with one")
    clock_hz = 500e6  # of the usual memory system
    answers = [
        usual,
        compile_answer(model, "--effort quick", compares=False),
        least,
        *pools,
        compile_answer(model, f"--max-ms {1500 * usual.cycles / clock_hz:.4f}"),
        compile_answer(model, "--objective bytes --npu-compiler tvm", compares=False),
        compile_answer(model, "--accelerator none", compares=False),
    ]
    front = explore(model, parse_options([]), model_loader(model), sizes[1:2])
    answers += [Answer(f"explore {p.limit_bytes}", p.bytes, p.cycles, None) for p in front.points]
    wrong += [f"{a.way!r} is beaten by {b.way!r}" for a in answers if a.compares for b in answers if b.beats(a)]
    wrong += [f"{a.way!r} has fewer bytes than the fewest" for a in answers if a.size_bytes < least.size_bytes]
    slower = [(a, b) for a, b in pairwise(pools) if b.cycles > a.cycles]
    wrong += [f"{b.way!r} is slower than {a.way!r}" for a, b in slower]
    if (required := required_bytes(model, least.size_bytes - 1)) != least.size_bytes:
        wrong.append(f"{required:,} bytes are required, {least.size_bytes:,} are the fewest")
    return answers, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL.tflite")
    contradictions = []
    for model in parser.parse_args().models:
        answers, wrong = ask(model)
        print(f"\n| {model.stem} | bytes | cycles | not exact |\n|---|--:|--:|--:|")
        print("\n".join(answer.row() for answer in answers), flush=True)
        contradictions += [f"{model.stem}: {text}" for text in wrong]
    if contradictions:
        raise SystemExit("\n".join(contradictions))
    print("\nno contradiction")


if __name__ == "__main__":
    main()
