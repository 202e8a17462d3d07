"""The result of a run: every output compared element by element with a reference.

Invariant: `bit_exact` is true exactly when there is at least one output and every output has the reference's shape,
type and elements; a tolerance never makes a result bit-exact.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from npu_memplan.errors import NpuMemplanError
from npu_memplan.sizes import count_text

Array = npt.NDArray[Any]


class ComparisonError(NpuMemplanError):
    """Outputs and reference cannot be compared: other count, shape or type."""


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """One output against its reference; `max_ulps`: representable numbers between them; None: a NaN."""

    name: str
    elements: int
    mismatches: int
    max_abs_diff: float
    max_ulps: int | None = 0


@dataclass(frozen=True, slots=True)
class RunResult:
    """The verdict on one run, with what ran it."""

    runner: str
    outputs: tuple[OutputComparison, ...]
    runner_version: str = ""
    npu_cycles: int | None = None
    cycles_are_estimates: bool = True

    @property
    def bit_exact(self) -> bool:
        return bool(self.outputs) and all(o.mismatches == 0 for o in self.outputs)

    @property
    def max_ulps(self) -> int | None:
        """The greatest distance in units of the last place where every difference is one of floats, else None."""
        distances = [o.max_ulps for o in self.outputs if o.mismatches]
        return None if None in distances or 0 in distances else max((d or 0 for d in distances), default=0)

    def is_within(self, tolerance: float) -> bool:
        """Whether no element of any output is further than `tolerance` (units of the output) from the reference."""
        return bool(self.outputs) and all(o.max_abs_diff <= tolerance for o in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: runner, bit_exact, outputs; version and cycles only when they are known."""
        result: dict[str, Any] = {
            "runner": self.runner,
            "bit_exact": self.bit_exact,
            "outputs": [{k: v for k, v in asdict(o).items() if k != "max_ulps" or v} for o in self.outputs],
        }
        if self.runner_version:
            result["runner_version"] = self.runner_version
        if self.npu_cycles is not None:
            result["npu_cycles"] = self.npu_cycles
            result["npu_cycles_are_estimates"] = self.cycles_are_estimates
        return result

    def to_json(self) -> str:
        return json.dumps(self.to_dict())


def compare_output(name: str, actual: Array, expected: Array) -> OutputComparison:
    """Compare one output; a NaN equals a NaN of the same place, and only that. Scalars are [1] here."""
    actual, expected = (values.reshape(1) if values.shape == () else values for values in (actual, expected))
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ComparisonError(
            f"output {name!r} is {actual.dtype}{list(actual.shape)}, the reference {expected.dtype}"
            f"{list(expected.shape)}; both must come from the same model"
        )
    if np.issubdtype(actual.dtype, np.floating):
        both_nan = np.isnan(actual) & np.isnan(expected)
        wrong = (actual != expected) & ~both_nan
        difference = np.abs(actual[wrong].astype(np.float64) - expected[wrong].astype(np.float64))
        largest = float(np.nan_to_num(difference, nan=np.inf).max(initial=0.0))
        return OutputComparison(
            name, int(actual.size), int(wrong.sum()), largest, ulps_between(actual[wrong], expected[wrong])
        )
    difference = np.abs(actual.astype(np.int64) - expected.astype(np.int64))
    return OutputComparison(name, int(actual.size), int(np.count_nonzero(difference)), int(difference.max(initial=0)))


def ulps_between(actual: Array, expected: Array) -> int | None:
    """The greatest number of steps between neighbouring floats from `actual` to `expected`; None for a NaN."""
    if np.isnan(actual).any() or np.isnan(expected).any():
        return None
    places = []
    for values in (actual, expected):
        bits = np.ascontiguousarray(values).view(f"int{8 * values.itemsize}")
        places.append([int(b) if b >= 0 else int(np.iinfo(bits.dtype).min) - int(b) for b in bits])
    return max((abs(a - b) for a, b in zip(*places, strict=True)), default=0)


def compare_outputs(
    runner: str,
    names: Sequence[str],
    actual: Sequence[Array],
    expected: Sequence[Array],
    *,
    runner_version: str = "",
    npu_cycles: int | None = None,
    cycles_are_estimates: bool = True,
) -> RunResult:
    """Compare all outputs in order; `ComparisonError` when the counts, shapes or types differ."""
    if not len(names) == len(actual) == len(expected):
        raise ComparisonError(
            f"{runner} gave {count_text(len(actual), 'output')}, the reference {len(expected)}, "
            f"the model names {len(names)}"
        )
    outputs = tuple(compare_output(n, a, e) for n, a, e in zip(names, actual, expected, strict=True))
    return RunResult(runner, outputs, runner_version, npu_cycles, cycles_are_estimates)


class Verdict(Enum):
    """The verdict on an operator; the value is printed."""

    EQUAL = "equal"
    DIFFERS = "DIFFERS"  # from what the reference makes of the same inputs
    FOLLOWS = "differs too"  # and so did an input, for which the reference was not run
    HIDDEN = "not visible"


@dataclass(frozen=True, slots=True)
class OperatorResult:
    """One operator of the source model. Counts are of elements that were seen."""

    index: int
    name: str  # of its first output
    kind: str
    verdict: Verdict
    elements: int = 0
    mismatches: int = 0
    max_abs_diff: int | float = 0
    max_ulps: int | None = 0  # of floats, how many representable numbers lie between; None: one is not a number
    where: str = ""  # what wrote the first unequal part
