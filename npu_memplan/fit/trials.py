"""`compile --fit`: all that the product can do about a pool that is too small, compiled and compared.

Invariant: every trial is a compile like any other, so its plan is verified; what is written is the first row of the
table, and the order of rows is the one that `PRICE` states.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..artifact import Artifact
from ..artifact.writing import write
from ..errors import NpuMemplanError, RefusalError
from ..exactness import Exactness
from ..options import NO_NPU, CompileOptions
from ..problem import PlanStatus
from ..report.facts.memory import both
from ..report.text.explain import align
from ..sizes import parse_named_size, parse_size
from .knobs import by_one, further, trials

if TYPE_CHECKING:
    from ..stages import Compiled

PRICE = (
    "What fits comes first, the cheapest first: on the NPU in the memories asked for, then with a second memory,",
    "then without the NPU; of these fewest operators whose results are not proven exact, then fewest host calls",
    "(nobody estimates their time), then fewest estimated NPU cycles, then fewest bytes. What does not fit follows,",
    "fewest bytes first.",
)


class FitError(RefusalError):
    """Nothing that was tried fits (the message has the table), or the budget is for no pool."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One compile and what it needs of the pool. `required_bytes` None: it cannot be made, `message` says why."""

    options: CompileOptions
    fits: bool = False
    required_bytes: int | None = None
    estimated_cycles: int | None = None
    host_operations: int = 0
    inexact: int = 0  # operators
    pools: int = 1
    message: str = ""

    @property
    def flags(self) -> str:
        """The command line that asks for it."""
        return shlex.join(self.options.to_cli_args())

    @property
    def needed(self) -> int:
        """`required_bytes`, or more than any pool has."""
        return 1 << 62 if self.required_bytes is None else self.required_bytes

    @property
    def price(self) -> tuple[int, ...]:
        """What `PRICE` says, as a key to sort by."""
        if not self.fits:
            return (1, self.needed)
        where = 2 if self.options.accelerator == NO_NPU else self.pools - 1
        return (0, where, self.inexact, self.host_operations, self.estimated_cycles or 0, self.needed)

    def to_dict(self) -> dict[str, Any]:
        told = ("flags", "required_bytes", "estimated_cycles", "host_operations", "inexact", "fits", "message")
        return {name: getattr(self, name) for name in told}


@dataclass(frozen=True, slots=True)
class FitResult:
    """All trials, the chosen one first."""

    pool: str
    budget_bytes: int
    trials: tuple[Trial, ...]

    @property
    def flags(self) -> str:
        """The command line that gives the chosen plan again."""
        return self.trials[0].flags

    def to_dict(self) -> dict[str, Any]:
        trials = [trial.to_dict() for trial in self.trials]
        return {"pool": self.pool, "budget_bytes": self.budget_bytes, "flags": self.flags, "trials": trials}

    def to_text(self) -> str:
        """The table, and in which order it is."""
        head = ("bytes", "KiB", "fits", "NPU cycles", "host calls", "inexact")
        rows: list[tuple[str, ...]] = [(*head, f"flags (of {self.pool} {self.budget_bytes:,})")]
        failed = []
        for t in self.trials:
            if t.required_bytes is None:
                failed.append(f"  not possible: {t.flags}: {t.message.splitlines()[0].rstrip(':')}")
                continue
            cycles = "-" if t.estimated_cycles is None else f"{t.estimated_cycles:,}"
            size = (f"{t.required_bytes:,}", f"{t.required_bytes / 1024:.2f}")
            rows.append((*size, "yes" if t.fits else "no", cycles, str(t.host_operations), str(t.inexact), t.flags))
        return "\n".join([*align(rows, right={0, 1, 3, 4, 5}), *failed, *PRICE])


def compile_to_fit(
    model: Path,
    options: CompileOptions,
    output: Path,
    budget: str,
    force: bool = False,
    say: Callable[[str], None] | None = None,
    write: Callable[[Compiled, Path], Artifact] = write,
) -> tuple[Artifact, FitResult]:
    """Compile for `budget` (`SIZE`, of pool sram, or `NAME=SIZE`) and write the cheapest artifact that fits.

    `options` are left alone when they fit. `say` is told what is being tried, `write` writes what was chosen. Nothing
    is written when nothing fits (`FitError`).
    """
    from ..files.staging import staged_directory
    from ..pipeline import plan_model

    pool, size = parse_named_size(budget) if "=" in budget else ("sram", parse_size(budget))
    options = options.resolved()
    known = [p.name for p in options.planned_pools()]
    if pool not in known:
        raise FitError(f"--fit names pool {pool!r}, but there are: {', '.join(known)}; name one of these")

    def compile(wanted: CompileOptions) -> Compiled:
        if say is not None:
            say(shlex.join(wanted.to_cli_args()))
        return plan_model(model, wanted, beyond=pool)

    with staged_directory(output, force) as folder:
        options = by_one(replace(options, pools={**options.pools, pool: size}))  # the trials are of each by itself
        result, compiled = fit(compile, options, pool, size, model.name)
        return write(compiled, folder), result


def fit(
    compile: Callable[[CompileOptions], Compiled], options: CompileOptions, pool: str, budget_bytes: int, source: str
) -> tuple[FitResult, Compiled]:
    """The trials of `options` for the file called `source`, and what the chosen one made.

    `compile` may exceed `pool`. Raises `FitError` when nothing fits, and what the first trial raises.
    """
    tried: list[Trial] = []
    seen: list[CompileOptions] = []
    best: tuple[Trial, Compiled] | None = None

    def attempt(wanted: CompileOptions) -> tuple[Trial, Artifact | None]:
        nonlocal best
        seen.append(wanted)
        try:
            compiled = compile(wanted)
        except NpuMemplanError as error:
            if not tried:  # the model or the options are at fault: nothing changes that
                raise
            tried.append(Trial(wanted, message=str(error)))
            return tried[-1], None
        made = compiled.artifact
        needs = made.pool_bytes(pool)
        inexact = sum(operator.claim.exactness is not Exactness.EXACT for operator in made.operators)
        cost = (made.estimated_cycles, made.host_operations, inexact, len(made.run_pools))
        tried.append(Trial(wanted, needs <= budget_bytes, needs, *cost))
        if tried[-1].fits and (best is None or tried[-1].price < best[0].price):
            best = tried[-1], compiled
        return tried[-1], made

    for wanted in trials(options, budget_bytes, source):
        trial, made = attempt(wanted)
        if made is not None and not trial.fits:
            searched = made.plan.status is PlanStatus.OPTIMAL
            for more in further(wanted, budget_bytes, searched=searched, calls=len(made.calls)):
                if more in seen:  # several ways lead to it
                    continue
                added, _ = attempt(more)
                if added.needed >= trial.needed:
                    tried.remove(added)  # it bought nothing
        if tried[0].fits:
            break
    result = FitResult(pool, budget_bytes, tuple(sorted(tried, key=lambda t: t.price)))
    if best is None:
        raise FitError(_no_fit(result))
    return result, best[1]


def _no_fit(result: FitResult) -> str:
    least = result.trials[0]
    assert least.required_bytes is not None
    kept = replace(least.options, pools={**least.options.pools, result.pool: least.required_bytes})
    return (
        f"nothing that was tried fits {both(result.budget_bytes)} of {result.pool}:\n"
        f"{result.to_text()}\n"
        f"the least is {both(least.required_bytes)}, {least.required_bytes - result.budget_bytes:,} too many:\n"
        f"  {shlex.join(kept.to_cli_args())}\n"
        "what is left to change is the pool, or the model or its input"
    )
