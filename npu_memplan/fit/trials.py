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
from ..clock import limited
from ..errors import InternalError, NpuMemplanError, RefusalError
from ..exactness import Exactness
from ..knobs import by_one, further, trials
from ..options import NO_NPU, CompileOptions
from ..problem import PlanStatus
from ..process.incidents import FAULT, FAULTS, gathering, report_fault
from ..sizes import both, parse_named_size, parse_size
from ..text_table import align

if TYPE_CHECKING:
    from ..cache.programs import ProgramCache
    from ..stages import Compiled

PRICE = (
    "What fits comes first, the cheapest first: on the NPU in the memories requested, then with a second memory,",
    "then without the NPU; of these fewest operators whose results are not proven exact, then fewest host calls",
    "(their time is not estimated), then fewest estimated NPU cycles, then fewest bytes. What does not fit follows,",
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
    faults: tuple[str, ...] = ()  # of ours, while it was compiled

    @property
    def flags(self) -> str:
        """The command line for it."""
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
        keys = ("flags", "required_bytes", "estimated_cycles", "host_operations", "inexact", "fits")
        return {name: getattr(self, name) for name in (*keys, "message", "faults")}


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

    @property
    def faults(self) -> tuple[str, ...]:
        """Faults of ours in any trial, a line each."""
        return tuple(dict.fromkeys(FAULT + text for trial in self.trials for text in trial.faults))

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
        return "\n".join([*align(rows, right={0, 1, 3, 4, 5}), *failed, *(f"  {text}" for text in self.faults), *PRICE])


def compile_to_fit(
    model: Path,
    options: CompileOptions,
    output: Path,
    budget: str,
    write: Callable[[Compiled, Path], Artifact],
    force: bool = False,
    say: Callable[[str], None] | None = None,
    cache: ProgramCache | None = None,
) -> tuple[Artifact, FitResult]:
    """Compile for `budget` (`SIZE`, of pool sram, or `NAME=SIZE`) and write the cheapest artifact that fits.

    `options` are left alone when they fit. `say` is called with what is being tried, `write` writes what was chosen.
    Nothing is written when nothing fits (`FitError`). What `cache` has is not compiled again.
    """
    from ..compiler import plan_model
    from ..files.staging import staged_directory

    pool, size = parse_named_size(budget) if "=" in budget else ("sram", parse_size(budget))
    options = options.resolved()
    known = [p.name for p in options.planned_pools()]
    if pool not in known:
        raise FitError(f"--fit names pool {pool!r}, but there are: {', '.join(known)}; name one of these")

    def compile(wanted: CompileOptions) -> Compiled:
        if say is not None:
            say(shlex.join(wanted.to_cli_args()))
        return plan_model(model, wanted, pool, cache)

    with limited(options.time_limit_s), staged_directory(output, force) as folder:
        options = by_one(replace(options, pools={**options.pools, pool: size}))  # the trials are of each by itself
        result, compiled = fit(compile, options, pool, size, model.name)
        notes = tuple(dict.fromkeys((*compiled.artifact.notes, *result.faults)))
        return write(replace(compiled, artifact=replace(compiled.artifact, notes=notes)), folder), result


def fit(
    compile: Callable[[CompileOptions], Compiled], options: CompileOptions, pool: str, budget_bytes: int, source: str
) -> tuple[FitResult, Compiled]:
    """The trials of `options` for the file called `source`, and what the chosen one made.

    `compile` may exceed `pool`. Raises `FitError` when nothing fits, what the first trial refuses, and a fault of ours
    when it ended every trial; one that ended some is reported in their rows.
    """
    tried: list[Trial] = []
    seen: list[CompileOptions] = []
    best: tuple[Trial, Compiled] | None = None

    def attempt(wanted: CompileOptions) -> tuple[Trial, Artifact | None]:
        nonlocal best
        seen.append(wanted)
        with gathering() as incidents:
            compiled = _compiled(compile, wanted, first=not tried)
        faults = tuple(incidents.faults)
        if isinstance(compiled, str):
            tried.append(Trial(wanted, message=compiled, faults=faults))
            return tried[-1], None
        made = compiled.artifact
        needs = made.pool_bytes(pool)
        inexact = sum(operator.claim.exactness is not Exactness.EXACT for operator in made.operators)
        cost = (made.estimated_cycles, made.host_operations, inexact, len(made.run_pools))
        tried.append(Trial(wanted, needs <= budget_bytes, needs, *cost, faults=faults))
        if tried[-1].fits and (best is None or tried[-1].price < best[0].price):
            best = tried[-1], compiled
        return tried[-1], made

    for wanted in trials(options, budget_bytes, source):
        trial, made = attempt(wanted)
        if made is not None and not trial.fits:
            searched = made.plan.status is PlanStatus.OPTIMAL
            for more in further(wanted, budget_bytes, searched=searched):
                if more in seen:  # several ways lead to it
                    continue
                added, _ = attempt(more)
                if added.needed >= trial.needed and not added.faults:
                    tried.remove(added)  # it bought nothing
        if tried[0].fits:
            break
    result = FitResult(pool, budget_bytes, tuple(sorted(tried, key=lambda t: t.price)))
    if best is None and result.trials[0].required_bytes is None:
        raise InternalError("; ".join(dict.fromkeys(text for trial in tried for text in trial.faults)))
    if best is None:
        raise FitError(_no_fit(result))
    return result, best[1]


def _compiled(compile: Callable[[CompileOptions], Compiled], wanted: CompileOptions, first: bool) -> Compiled | str:
    """What `compile` makes, or why it makes nothing; what is wrong with the model or the options ends the `first`."""
    try:
        return compile(wanted)
    except RefusalError as error:
        if first:  # nothing changes that
            raise
        return str(error)
    except (NpuMemplanError, *FAULTS) as error:
        if isinstance(error, NpuMemplanError) and first:
            raise
        return FAULT + report_fault(shlex.join(wanted.to_cli_args()), error)


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
