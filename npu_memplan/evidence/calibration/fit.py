"""The fit: figures whose estimates are nearest to the counted cycles, and which of them the record decides.

Invariant: the residual of a stream is in half steps of the counter. A parameter is decided where a twentieth more or
less of it, with all others fitted anew, is distinguished from the fit by the streams. Deterministic: nothing is drawn
at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ...ethosu.time import estimate
from .observations import Observation
from .parameters import Facts, Parameter

TOLERANCE = 0.05  # of a parameter's value
_STEPS = (0.1, 0.02)  # of a parameter, for slopes: large ones see over the corners of the estimate
_ROUNDS = 12  # of a descent with one of them
_FEW_ROUNDS = 4  # of a descent from a place that is nearly one
_LEAST = 0.25  # of any parameter: a start of 0 cycles has no logarithm
_NEAR = 2.0  # half steps of the counter that any stream may be off where a fit is one
_SIGNIFICANT_RISE = 4.0  # rise of the sum of squares that separates a value from the fit's: two standard deviations
_STARTS = ((1.0, 1.0), (0.5, 2.0), (2.0, 0.5))  # factors of rates, and of latencies
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """One parameter and its value; `alike` could make up for it where it is not decided."""

    parameter: Parameter
    value: float
    decided: bool
    alike: str = ""


@dataclass(frozen=True, slots=True)
class Calibration:
    """Facts with the figures that were fitted, and what is left of the counted cycles."""

    facts: Facts
    fitted: tuple[Fitted, ...]
    residuals: tuple[tuple[str, int, int], ...]  # stream, counted, estimated

    @property
    def undecided(self) -> tuple[Fitted, ...]:
        return tuple(f for f in self.fitted if not f.decided)

    @property
    def worst(self) -> float:
        """The largest residual, of the counted cycles."""
        return max(abs(estimated / counted - 1) for _, counted, estimated in self.residuals)


def calibrate(
    facts: Facts, parameters: Sequence[Parameter], measured: Sequence[Observation], counter_step: int
) -> Calibration:
    """Fit `parameters`, from the values that they have in `facts`, to what was `measured`."""
    problem = _Fit(facts, tuple(parameters), tuple(measured), max(counter_step, 1))
    best = problem.best()
    better = problem.profiles(best)
    while better is not None:  # a profile found a deeper valley
        best, better = better, problem.profiles(better)
    fitted = tuple(
        Fitted(p, float(value), problem.decides(best, column), problem.alike(best, column))
        for column, (p, value) in enumerate(zip(parameters, np.exp(best), strict=True))
    )
    made = problem.facts_of(best)
    estimates = [estimate(o.commands, made.accelerator, made.memory_map).total for o in measured]
    residuals = tuple((o.name, o.cycles, cycles) for o, cycles in zip(measured, estimates, strict=True))
    return Calibration(made, fitted, residuals)


@dataclass(frozen=True, slots=True, eq=False)
class _Fit:
    facts: Facts
    parameters: tuple[Parameter, ...]
    measured: tuple[Observation, ...]
    counter_step: int

    def facts_of(self, place: Vector) -> Facts:
        """The facts with the parameters that `place` holds the logarithms of."""
        facts = self.facts
        for parameter, value in zip(self.parameters, np.exp(place), strict=True):
            facts = parameter.write(facts, float(value))
        return facts

    def residuals(self, place: Vector) -> Vector:
        """Of each stream, in half steps of the counter."""
        made = self.facts_of(place)
        estimates = [estimate(o.commands, made.accelerator, made.memory_map).total for o in self.measured]
        off = [cycles - o.cycles for cycles, o in zip(estimates, self.measured, strict=True)]
        return np.array(off, float) / (self.counter_step / 2)

    def cost(self, place: Vector) -> float:
        return float(np.sum(self.residuals(place) ** 2))

    def best(self) -> Vector:
        """The deepest place that descents from a few starts reach: slow and fast memories have valleys of their own."""
        values = np.array([max(p.read(self.facts), _LEAST) for p in self.parameters])
        rates = np.array([p.name.endswith("bytes_per_cycle") for p in self.parameters])
        latencies = np.array([p.name.endswith("latency") for p in self.parameters])
        found: list[Vector] = []
        for rate, latency in _STARTS:
            start = np.log(values * np.where(rates, rate, 1.0) * np.where(latencies, latency, 1.0))
            found.append(self.descended(start, range(len(start))))
            if np.abs(self.residuals(found[-1])).max() < _NEAR:
                break
        return min(found, key=self.cost)

    def descended(self, place: Vector, free: Sequence[int], steps: Sequence[float] = _STEPS) -> Vector:
        """Levenberg and Marquardt's descent of the parameters `free`."""
        for step in steps if free else ():
            place = self._descend(place, step, list(free), _ROUNDS)
        return place

    def _descend(self, place: Vector, step: float, free: list[int], rounds: int) -> Vector:
        left, damping = self.residuals(place), 1e-2
        weight = self.counter_step / 2 / np.array([o.cycles for o in self.measured], float)  # ratios of cycles
        for _ in range(rounds):
            if np.abs(left).max() < 1:
                return place
            slope = self._slopes(place, step, free, left) * weight[:, None]
            square, pull, before = slope.T @ slope, slope.T @ (left * weight), float(np.sum((left * weight) ** 2))
            for _ in range(6):
                damped = square + damping * np.diag(np.diag(square) + 1e-9 * (np.diag(square).max() or 1.0))
                there = place.copy()
                there[free] -= np.clip(np.linalg.solve(damped, pull), -0.7, 0.7)
                there = np.maximum(there, np.log(_LEAST))
                after = self.residuals(there)
                gain = 1 - float(np.sum((after * weight) ** 2)) / before
                if gain > 0:
                    break
                damping *= 5
            else:
                return place
            place, left, damping = there, after, max(damping / 10, 1e-9)
            if gain < 1e-3:
                return place
        return place

    def _slopes(self, place: Vector, step: float, free: Sequence[int], left: Vector) -> Vector:
        """Change of the residuals `left` for each free parameter's logarithm."""
        columns = []
        for column in free:
            there = place.copy()
            there[column] += step
            columns.append((self.residuals(there) - left) / step)
        return np.stack(columns, axis=1)

    def _profile(self, place: Vector, column: int, factor: float) -> Vector:
        """The best place with one parameter held at a multiple of what it is at `place`."""
        there = place.copy()
        there[column] += np.log(factor)
        others = [i for i in range(len(place)) if i != column]
        return self._descend(there, _STEPS[-1], others, _FEW_ROUNDS) if others else there

    def profiles(self, place: Vector) -> Vector | None:
        """A deeper place, where holding one parameter elsewhere leads to one."""
        limit = 0.9 * self.cost(place)
        if np.abs(self.residuals(place)).max() < _NEAR:
            return None
        for column, factor in product(range(len(place)), (0.5, 2.0)):
            there = self._profile(place, column, factor)
            if self.cost(there) < limit:
                return self.descended(there, range(len(place)), _STEPS[-1:])
        return None

    def decides(self, place: Vector, column: int) -> bool:
        """Whether the streams tell a twentieth more and less of a parameter from what it is."""
        cost = self.cost(place)
        spare = max(1, len(self.measured) - len(place))
        rise = _SIGNIFICANT_RISE * max(1.0, cost / spare)  # streams that do not fit tell less
        return all(self.cost(self._profile(place, column, 1 + sign * TOLERANCE)) > cost + rise for sign in (1, -1))

    def alike(self, place: Vector, column: int) -> str:
        """The parameter whose effect on the streams is most like this one's."""
        slope = self._slopes(place, _STEPS[1], range(len(place)), self.residuals(place))
        lengths = np.linalg.norm(slope, axis=0)
        if not lengths[column] or len(place) == 1:
            return ""
        angles = np.abs(slope.T @ slope[:, column]) / np.maximum(lengths * lengths[column], 1e-12)
        angles[column] = -1
        return self.parameters[int(np.argmax(angles))].name
