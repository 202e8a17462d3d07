"""One network asked in twelve ways: bytes, estimated cycles, inexact operators; fails where two answers contradict.

    python -m benchmarks.one_answer MODEL.tflite ...

A row a way, for the usual NPU: the default compile, `--objective cycles`, `--effort quick`, `--objective bytes`,
`--pool` with three sizes, `--max-ms`, `explore`, native lowering alone, the CPU alone. Cycles are nominal, the most of
the models that programs are compared under, and those where one operation runs at a time. It is a contradiction where
a way that compares all candidates is beaten: another row takes no more bytes, no more cycles under any model, and less
of something; where a program has fewer bytes than that of `--objective bytes`, where a larger pool is slower, or where
a pool that is too small requires other bytes than that program takes. What is beaten by nominal cycles alone, which no
program is chosen by, is printed, too.
"""

from __future__ import annotations

import argparse
import shlex
from dataclasses import dataclass
from itertools import pairwise
from operator import le
from pathlib import Path

from npu_memplan.commands.compile import parse_options
from npu_memplan.compiler import model_loader, plan_network
from npu_memplan.exactness import Exactness
from npu_memplan.frontend.attributes import operators_of
from npu_memplan.planners import PlanningError
from npu_memplan.stages import Planned
from npu_memplan.tuning.candidate import ProgramCandidate, cycles_by_model
from npu_memplan.tuning.pareto import explore
from npu_memplan.tuning.ranking import Ranking


@dataclass(frozen=True, slots=True)
class Answer:
    """What one way says; `cycles`: by timing model, the nominal ones first; none: of the CPU's clock."""

    way: str
    size_bytes: int
    cycles: tuple[int, ...]
    inexact: int
    compares: bool = True  # all candidates

    def beats(self, other: Answer, models: int | None = None) -> bool:
        """Whether it has fewer bytes or cycles and no more of either, under the first `models`, or under all."""
        if not self.cycles or not other.cycles:
            return False
        own, its = (self.size_bytes, *self.cycles[:models]), (other.size_bytes, *other.cycles[:models])
        return own != its and all(map(le, own, its))

    def row(self) -> str:
        """The columns of the table."""
        shown = (self.cycles[0], max(self.cycles[:-1]), self.cycles[-1]) if self.cycles else ()
        cycles = " | ".join(f"{count:,}" for count in shown) or "- | - | -"
        return f"| {self.way or '(default)'} | {self.size_bytes:,} | {cycles} | {self.inexact} |"


def compile_answer(model: Path, way: str, compares: bool = True) -> Answer:
    """The answer of `compile` with the options of `way`."""
    return answer_of(plan_network(model, parse_options(shlex.split(way))), way, compares)


def answer_of(planned: Planned, way: str, compares: bool = True) -> Answer:
    """The answer that a program is."""
    loaded = planned.extracted.loaded
    operators = operators_of(loaded.module[loaded.request.function])
    inexact = sum(operator.claim.exactness is not Exactness.EXACT for operator in operators)
    cycles: tuple[int, ...] = ()
    if (memory_map := loaded.request.options.memory_map()) is not None:
        rank = Ranking(memory_map)
        cycles = cycles_by_model(ProgramCandidate(planned, rank(planned)), rank)
    return Answer(way, sum(usage.used_bytes for usage in planned.plan.usage), cycles, inexact, compares)


def required_bytes(model: Path, size: int) -> int:
    """The bytes that a pool of `size` bytes is said to lack nothing with; `size` where a program fits it."""
    try:
        plan_network(model, parse_options(["--pool", f"sram={size}"]))
    except PlanningError as error:
        return error.required_bytes
    return size


def ask(model: Path) -> tuple[list[Answer], list[str]]:
    """All answers, and what contradicts."""
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
        compile_answer(model, "--objective cycles"),
        compile_answer(model, "--effort quick", compares=False),
        least,
        *pools,
        compile_answer(model, f"--max-ms {1500 * usual.cycles[0] / clock_hz:.4f}"),
        compile_answer(model, "--npu-compiler tvm", compares=False),
        compile_answer(model, "--objective bytes --npu-compiler tvm", compares=False),
        compile_answer(model, "--accelerator none", compares=False),
    ]
    found: dict[str, Planned] = {}
    front = explore(
        model, parse_options([]), model_loader(model), sizes[1:2],
        keep=lambda one: found.update({" ".join(one.extracted.loaded.request.options.to_cli_args()): one}),
    )  # fmt: skip
    answers += [answer_of(found[point.flags], f"explore {point.limit_bytes}") for point in front.points]
    wrong += [f"{a.way!r} is beaten by {b.way!r}" for a in answers if a.compares for b in answers if b.beats(a)]
    wrong += [f"{a.way!r} has fewer bytes than the fewest" for a in answers if a.size_bytes < least.size_bytes]
    slower = [(a, b) for a, b in pairwise(pools) if b.cycles[:1] > a.cycles[:1]]
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
        print(f"\n| {model.stem} | bytes | cycles | at most | one at a time | not exact |\n|---|--:|--:|--:|--:|--:|")
        print("\n".join(answer.row() for answer in answers), flush=True)
        nearly = [(a, b) for a in answers if a.compares for b in answers if b.beats(a, 1) and not b.beats(a)]
        print("\n".join(f"by nominal cycles alone {a.way!r} is beaten by {b.way!r}" for a, b in nearly), flush=True)
        contradictions += [f"{model.stem}: {text}" for text in wrong]
    if contradictions:
        raise SystemExit("\n".join(contradictions))
    print("\nno contradiction")


if __name__ == "__main__":
    main()
