"""The ladder of `compile --fit`: what would make a model fit, cheapest change first.

Invariant: a rung is kept only when it lowers what the pool needs, every attempt is reported
with the bytes it bought, and the answer is the first attempt that fits. The ladder never
decides whether a plan is right: it calls the ordinary compiler, whose plans are verified.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

from .artifact import Artifact
from .errors import NpuMemplanError
from .options import NO_NPU, CompileOptions
from .planners.errors import PlanningError
from .report.memory import both
from .sizes import parse_named_size, parse_size

T = TypeVar("T")


class FitError(NpuMemplanError):
    """No rung of the ladder fits (the message says what each reached), or the budget is for no pool."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One change of the compiler's options, and what it costs the user."""

    name: str
    changes: Mapping[str, object]  # of `CompileOptions`, by field name
    cost: str
    flags: Mapping[str, str | None] = field(default_factory=dict)  # option -> value; None: to be left out
    same_buffers: bool = False  # only the placement changes: pointless once a bound is proven


@dataclass(frozen=True, slots=True)
class Attempt:
    """One compile. `required_bytes` None: it failed for another reason, `message` says which."""

    rung: Rung
    required_bytes: int | None
    bought_bytes: int  # less than the best attempt before; 0 for none, and for the first
    fits: bool
    kept: bool
    message: str = ""
    proven: bool = False  # no placement of these buffers needs less

    def to_text(self, budget_bytes: int) -> str:
        """One line for people."""
        if self.required_bytes is None:
            return f"{self.rung.name}: not possible ({self.message})"
        needs = f"{self.rung.name}: needs {both(self.required_bytes)}"
        if self.fits:
            return f"{needs}, fits {both(budget_bytes)}" + self._bought()
        return f"{needs}, {self.required_bytes - budget_bytes:,} too many" + self._bought()

    def _bought(self) -> str:
        return f"; it bought {self.bought_bytes:,} bytes ({self.rung.cost})" if self.bought_bytes else ""


@dataclass(frozen=True, slots=True)
class FitResult(Generic[T]):
    """All attempts in order; `compiled` is what the last one, which fits, made."""

    budget_bytes: int
    attempts: tuple[Attempt, ...]
    compiled: T
    changes: Mapping[str, object] = field(default_factory=dict)  # of the compiler's options, together
    flags: str = ""  # the options that give this plan again

    def to_dict(self) -> dict[str, Any]:
        """For --json: the attempts and the changes, without what was compiled."""
        return {
            "budget_bytes": self.budget_bytes,
            "changes": dict(self.changes),
            "flags": self.flags,
            "attempts": [
                {
                    "rung": a.rung.name,
                    "flags": dict(a.rung.flags),
                    "required_bytes": a.required_bytes,
                    "bought_bytes": a.bought_bytes,
                    "fits": a.fits,
                    "kept": a.kept,
                    "message": a.message,
                }
                for a in self.attempts
            ],
        }


def ladder(options: CompileOptions, pool: str, budget_bytes: int) -> tuple[Rung, ...]:
    """The rungs that would change something of `options`, cheapest first: what costs nothing at run time,
    then what costs NPU cycles, then what moves feature maps to slower memory.
    """
    capacity = {**options.pools, pool: budget_bytes}
    rungs = [Rung("as asked", {"pools": capacity}, "nothing", {"--pool": f"{pool}={budget_bytes}"})]
    if options.planner != "optimal":
        rungs.append(
            Rung("another planner", {"planner": "optimal"}, "compile time", {"--planner": "optimal"}, same_buffers=True)
        )
    if not options.overlaps:
        rungs.append(Rung("in-place and overlap", {"overlaps": True}, "nothing at run time", {"--no-overlap": None}))
    if not options.reorder:
        rungs.append(Rung("operator order", {"reorder": True}, "nothing at run time", {"--reorder": ""}))
    if not options.reuse_inputs:
        rungs.append(
            Rung("inputs in the workspace", {"reuse_inputs": True}, "inputs are overwritten", {"--keep-inputs": None})
        )
    if options.accelerator == NO_NPU:
        return tuple(rungs)
    vela = options.npu_compiler == "vela"
    if vela:
        rungs += _vela_rungs(options, budget_bytes)
    elif not options.stripes:
        striped: dict[str, str | None] = {"--stripes": ""}
        if not options.overlaps:
            striped["--no-overlap"] = None
        rungs.append(Rung("NPU operations in stripes", {"stripes": True, "overlaps": True}, "NPU cycles", striped))
    mode = "Dedicated_Sram"
    if options.memory_mode is None or not options.memory_mode.startswith(mode):
        spilled: dict[str, object] = {"memory_mode": mode}
        flags: dict[str, str | None] = {"--memory-mode": mode}
        if vela:
            spilled |= {"optimise": "Performance", "arena_cache_size_bytes": budget_bytes}
            flags |= {"--optimise": "Performance", "--arena-cache-size": str(budget_bytes)}
        rungs.append(Rung(f"{mode}, spilling by cost", spilled, "feature maps in slower memory", flags))
    return tuple(rungs)


def _vela_rungs(options: CompileOptions, budget_bytes: int) -> list[Rung]:
    """What Vela can be asked for: our own lowering has no target to aim at."""
    rungs = []
    arena = {"arena_cache_size_bytes": budget_bytes}
    size: dict[str, str | None] = {"--optimise": "Size"}
    target: dict[str, str | None] = {"--arena-cache-size": str(budget_bytes)}
    if options.arena_cache_size_bytes != budget_bytes:
        rungs.append(Rung("Vela aims at this arena", arena, "maybe NPU cycles", target))
    # Vela stops as soon as its own placement meets the target; below it, it cascades more
    lower = budget_bytes * 3 // 4 // 16 * 16
    rungs.append(
        Rung("Vela aims lower", {"arena_cache_size_bytes": lower}, "NPU cycles", {"--arena-cache-size": str(lower)})
    )
    if options.optimise != "Size":
        rungs.append(Rung("Vela optimises for size", {"optimise": "Size"}, "NPU cycles", size))
        rungs.append(Rung("both of Vela's", {"optimise": "Size", **arena}, "NPU cycles", {**size, **target}))
    return rungs


def fit_model(
    compile: Callable[[CompileOptions], T],
    measure: Callable[[T], int],
    options: CompileOptions,
    pool: str,
    budget_bytes: int,
    progress: Callable[[Attempt], None] | None = None,
) -> FitResult[T]:
    """`fit` over the compiler's own options: `compile(options)` is called for every rung of `ladder`."""

    def changed(changes: Mapping[str, object]) -> T:
        return compile(dataclasses.replace(options, **dict(changes)))  # type: ignore[arg-type]

    return fit(changed, measure, budget_bytes, ladder(options, pool, budget_bytes), progress)


def compile_to_fit(
    model: Path,
    options: CompileOptions,
    output: Path,
    budget: str,
    force: bool = False,
    say: Callable[[str], None] | None = None,
) -> tuple[Artifact, FitResult[Artifact]]:
    """Climb the ladder for `budget` (`SIZE`, of pool sram, or `NAME=SIZE`) and write the first artifact that fits.

    `say` gets one line for every attempt. Nothing is written when nothing fits (`FitError`).
    """
    from .pipeline import compile_model, plan_model

    pool, size = parse_named_size(budget) if "=" in budget else ("sram", parse_size(budget))

    known = [p.name for p in options.resolved().planned_pools()]
    if pool not in known:
        raise FitError(f"--fit names pool {pool!r}, but there are: {', '.join(known)}; name one of these")

    def compile(changed: CompileOptions) -> Artifact:
        return plan_model(model, changed).artifact

    def progress(attempt: Attempt) -> None:
        assert say is not None
        say(attempt.to_text(size))

    result = fit_model(compile, lambda a: a.pool_bytes(pool), options, pool, size, progress if say else None)
    final = dataclasses.replace(options, **dict(result.changes))  # type: ignore[arg-type]
    return compile_model(model, final, output, force=force), result


def fit(
    compile: Callable[[Mapping[str, object]], T],
    measure: Callable[[T], int],
    budget_bytes: int,
    rungs: Collection[Rung],
    progress: Callable[[Attempt], None] | None = None,
) -> FitResult[T]:
    """Climb `rungs` until a plan needs at most `budget_bytes`.

    `compile(changes)` compiles with these options changed (it may raise `PlanningError`, whose
    `required_bytes` counts as measured); `measure` is what the result needs of the pool in bytes.
    `progress` sees every attempt. Raises `FitError` when no rung fits, and what the first one raises when it
    is something else than a lack of memory.
    """
    attempts: list[Attempt] = []
    kept: dict[str, object] = {}
    best: int | None = None
    tried: list[dict[str, object]] = []
    for rung in rungs:
        changes = {**kept, **rung.changes}
        if changes in tried or (rung.same_buffers and attempts and attempts[-1].proven):
            continue
        tried.append(changes)
        compiled, required, message, proven = _attempt(compile, measure, changes, first=not attempts)
        fits = compiled is not None and required is not None and required <= budget_bytes
        bought = 0 if required is None or best is None else max(0, best - required)
        keep = required is not None and (best is None or required < best)
        attempts.append(Attempt(rung, required, bought, fits, keep, message, proven))
        if progress is not None:
            progress(attempts[-1])
        if keep:
            kept, best = changes, required
        if fits and compiled is not None:
            return FitResult(budget_bytes, tuple(attempts), compiled[0], changes, _flags(attempts))
    raise FitError(_no_fit(budget_bytes, attempts, best, told=progress is not None))


def _attempt(
    compile: Callable[[Mapping[str, object]], T],
    measure: Callable[[T], int],
    changes: Mapping[str, object],
    first: bool,
) -> tuple[tuple[T] | None, int | None, str, bool]:
    """(what was compiled, bytes it needs, why it failed, whether those bytes are proven to be needed)."""
    try:
        compiled = compile(changes)
    except PlanningError as error:
        return None, error.required_bytes, "", error.proven
    except NpuMemplanError as error:
        if first:  # the model or the options are at fault: no rung changes that
            raise
        return None, None, str(error), False
    return (compiled,), measure(compiled), "", False


def _flags(attempts: list[Attempt]) -> str:
    """The options of the rungs that count: those kept, and the last; a later one overrides an earlier one."""
    chosen: dict[str, str | None] = {}
    for attempt in attempts:
        if attempt.kept or attempt is attempts[-1]:
            chosen.update(attempt.rung.flags)
    given = " ".join(f"{name} {value}".strip() for name, value in chosen.items() if value is not None)
    dropped = " ".join(name for name, value in chosen.items() if value is None)
    return f"{given} (without {dropped})" if dropped else given


def _no_fit(budget_bytes: int, attempts: list[Attempt], best: int | None, told: bool) -> str:
    """The message; `told`: the attempts have been shown one by one already."""
    lines = [f"nothing that was tried fits {both(budget_bytes)}" + ("" if told else ":")]
    lines += [] if told else [f"  {a.to_text(budget_bytes)}" for a in attempts]
    if best is not None:
        lines.append(f"the least is {both(best)}, {best - budget_bytes:,} too many")
    lines.append("a larger pool is needed, or a smaller model or input")
    return "\n".join(lines)
