"""Comparison operator by operator (`run --layers`): each tensor of a compiled model with the reference's.

Invariant: an operator is called right only when every element of what it made was seen and equal, and wrong only when
something that works for it wrote an unequal tensor of its form; tensors that exist nowhere are called not visible. The
program, its pools and its streams are those of an ordinary run; what is kept are copies, made when an NPU operation or
a host call has ended. A kernel's output is held against tensors of the operator that it works for, and of those that
were folded into it; where that is nothing, it is any tensor that it equals. What was written last counts: an operator
of several kernels may keep what it needs in between in the form of its result. The exit code is 0 when no visible
operator differs and the outputs are right, else 1.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from npu_memplan.artifact import Artifact
from npu_memplan.exactness import HOST_MOVES
from npu_memplan.models.folding import fold_constants
from npu_memplan.models.network import Network
from npu_memplan.models.tflite import read_network
from npu_memplan.names import legal_name
from npu_memplan.problem import Agent
from npu_memplan.sizes import count_text
from npu_memplan.vocabulary import TFLITE_RESHAPING

from .base import RunnerError, RunOptions, RunOutputs
from .host.runner import LocalRunner
from .npu_model.bound.kernels import Bound
from .npu_model.bound.memory import Dma
from .npu_model.network import Written, as_map, closest_part, kernel_output, same_form
from .npu_model.spec.feature_maps import Bytes
from .npu_model.spec.stream import DecodedStep
from .references.kernels import TFLiteReference, describe_disagreements, find_disagreements
from .result import Array, OperatorResult, Verdict, compare_outputs, ulps_between


@dataclass(frozen=True, slots=True)
class NpuOutput(Written):
    """The output of one kernel."""

    operator: int = -1  # of the source model; -1: not known


@dataclass(frozen=True, slots=True)
class HostOutput:
    """The output of a host call: the bytes of a planned buffer."""

    where: str
    operator: int  # of the source model; -1: not known
    buffer: str
    data: Bytes


class Recorder:
    """Watches a `LocalRunner`; see `LocalRunner.watch`."""

    def __init__(self, runner: LocalRunner) -> None:
        self.written: list[NpuOutput | HostOutput] = []
        self._runner, self._artifact = runner, runner.artifact
        self._served = [call.operators for call in self._artifact.calls if call.agent is Agent.NPU]
        self._operator_of = _host_operators(self._artifact)

    def see_npu(self, launch: int, step: DecodedStep, bound: Bound) -> None:
        if isinstance(bound, Dma):
            return
        served = self._served[launch] if launch < len(self._served) else ()
        index = step.registers.index
        operator = served[index] if index < len(served) else -1
        self.written.append(NpuOutput(*kernel_output(step, bound, launch), operator))

    def see_host(self, number: int) -> None:
        call = self._artifact.calls[number]
        for name in call.writes:
            operator = self._operator_of.get(number, -1)
            self.written.append(HostOutput(f"host call {call.function}", operator, name, self._buffer_bytes(name)))

    def _buffer_bytes(self, buffer: str) -> Bytes:
        artifact = self._artifact
        place = next(p for p in artifact.plan.placements if p.buffer == buffer)
        pool = [p.name for p in artifact.run_pools].index(place.pool)
        size = artifact.problem.buffer(buffer).size_bytes
        data: Bytes = self._runner.pools[pool][place.offset_bytes : place.offset_bytes + size].copy()
        return data


def _host_operators(artifact: Artifact) -> dict[int, int]:
    """Call -> operator of the source model, where each of the host's operators that computes is one call, in order."""
    calls = [number for number, call in enumerate(artifact.calls) if call.agent is Agent.HOST]
    operators = [
        index
        for index, operator in enumerate(artifact.operators)
        if operator.agent is Agent.HOST and operator.kind not in TFLITE_RESHAPING
    ]
    return dict(zip(calls, operators, strict=True)) if len(calls) == len(operators) else {}


def recorded_run(runner: LocalRunner, inputs: Sequence[Array]) -> tuple[RunOutputs, list[NpuOutput | HostOutput]]:
    """One inference from a fresh start and what it wrote. `RunnerError` for programs with branches."""
    recorder = Recorder(runner)
    runner.watch = recorder
    try:
        return runner.run(inputs), recorder.written
    finally:
        runner.watch = None


DISTINCTIVE_ELEMENTS = 16  # a tensor with fewer may equal another by chance
_ALIKE = 0.5  # share of equal elements from which on a wrong tensor is the one that was meant


@dataclass(slots=True, eq=False)
class _Seen:
    """A tensor of the reference, and what was written of it."""

    expected: Array
    whole: Array  # as [height, width, depth]
    made: Array
    known: Array  # bool: written, as [height, width, depth]
    where: str = ""

    @property
    def wrong_elements(self) -> Array:
        """Elements that were written and are not right; NaN equals NaN."""
        made, whole = self.made, self.whole
        return np.asarray(self.known & (made != whole) & ~((made != made) & (whole != whole)))


class LayerComparison:
    """The comparison of one run: `layers` are the reference's tensors by index in `network`, not compiled."""

    def __init__(
        self,
        network: Network,
        layers: Mapping[int, Array],
        written: Sequence[NpuOutput | HostOutput],
        outputs: Sequence[Array] = (),
    ) -> None:
        """`outputs` of the program, if given: what of them no kernel was seen to write is taken from there."""
        self._network = network
        self._seen = {i: _Seen(v, m, np.zeros_like(m), np.zeros(m.shape, np.bool_))
                      for i, v in layers.items() if (m := as_map(v)) is not None}  # fmt: skip
        served = Counter(part.operator for part in written if isinstance(part, NpuOutput))
        self._kernels = served
        self._moving = {o.index for o in network.cpu_operators if o.name in HOST_MOVES}
        self._folded = {o.index for o in network.cpu_operators} - served.keys()
        names: dict[str, list[int]] = {}
        for index in self._seen:
            names.setdefault(legal_name(network.tensors[index].name), []).append(index)
        self._named = {name: found[0] for name, found in names.items() if len(found) == 1}
        for part in written:
            if isinstance(part, NpuOutput):
                self._see_kernel(part)
            else:
                self._see_call(part)
        self._see_reshapes()
        for index, values in zip(network.outputs, outputs, strict=False):
            seen = self._seen.get(index)
            if seen is not None and not seen.known.all() and values.nbytes == seen.whole.nbytes:
                self._put_part(seen, values.reshape(-1).view(seen.whole.dtype), None, "the output")

    def operator_results(self) -> list[OperatorResult]:
        return [self._operator_result(o.index, o.name, o.outputs) for o in self._network.cpu_operators]

    def first_difference(self) -> OperatorResult | None:
        return next((result for result in self.operator_results() if result.verdict is Verdict.DIFFERS), None)

    def outputs_of(self, operator: int) -> dict[int, Array]:
        """The outputs of an operator as they were made; nothing if they were not all seen whole."""
        outputs = [i for i in self._network.operators[operator].outputs if i >= 0]
        seen = {i: self._seen[i] for i in outputs if i in self._seen and self._seen[i].known.all()}
        return {i: s.made.reshape(s.expected.shape) for i, s in seen.items()} if len(seen) == len(outputs) else {}

    def seen_tensors(self) -> Iterator[tuple[int, str, Array, Array]]:
        """(index, name, as it was made, as the reference has it) of every tensor that was seen whole."""
        for index, tensor in self._seen.items():
            if tensor.known.all():
                made = tensor.made.reshape(tensor.expected.shape)
                yield index, self._network.tensors[index].name, made, tensor.expected

    # -- what was written -----------------------------------------------------------------------------

    def _candidate_tensors(self, operator: int) -> list[int]:
        """Tensors that a kernel of `operator` may have written: its own, then those of operators folded into it."""
        found: dict[int, None] = {}
        waiting = [operator] if operator >= 0 else []
        while waiting:
            outputs = self._network.operators[waiting.pop(0)].outputs
            found.update(dict.fromkeys(outputs))
            for reader in self._network.cpu_operators:
                read = reader.index in self._folded and set(reader.inputs) & set(outputs)
                if read and not set(reader.outputs) <= found.keys():
                    waiting.append(reader.index)
        return [index for index in found if index in self._seen]

    def _see_kernel(self, part: NpuOutput) -> None:
        own = self._candidate_tensors(part.operator)
        best = self._best_tensor(part, own, by_zero_point=False)
        if best is None or best[0] < 1:
            other = self._best_tensor(part, [index for index in self._seen if index not in own], by_zero_point=True)
            if other is not None and other[0] == 1 and part.values.size >= DISTINCTIVE_ELEMENTS:
                best = other
        if best is None:
            return
        # Of several kernels of one operator some keep what it needs in between in the form of its result; of one that
        # moves elements, these have many in their places by chance. Kernels of no known operator may be others of it.
        moving = part.operator in self._moving
        alike = part.values.size >= DISTINCTIVE_ELEMENTS and best[0] > _ALIKE and not moving
        alone = self._kernels[part.operator] == 1 and not (moving and self._kernels[-1])
        if best[0] == 1 or alike or alone:
            self._put_part(self._seen[best[1]], part.values, best[2], part.where)

    def _best_tensor(
        self, part: NpuOutput, tensors: Sequence[int], by_zero_point: bool
    ) -> tuple[float, int, tuple[slice, ...] | None] | None:
        """The tensor that a part equals most: (share of equal elements, index, where in it).

        A kernel that only moves or averages may have a zero point of 0 on both sides, so an operator's own are not
        stated by it.
        """
        best: tuple[float, int, tuple[slice, ...] | None] | None = None
        for index in tensors:
            seen, tensor = self._seen[index], self._network.tensors[index]
            zero_point = part.zero_point if by_zero_point else tensor.zero_point
            if not same_form(part.values, zero_point, seen.whole, tensor):
                continue
            share, box = closest_part(part.values, seen.whole)
            if best is None or share > best[0]:
                best = share, index, box
        return best

    def _see_call(self, part: HostOutput) -> None:
        index = self._named.get(part.buffer)
        if index is None and part.operator >= 0:
            outputs = [i for i in self._network.operators[part.operator].outputs if i in self._seen]
            fitting = [i for i in outputs if self._seen[i].whole.nbytes == part.data.nbytes]
            index = fitting[0] if len(fitting) == 1 else None
        if index is not None and self._seen[index].whole.nbytes == part.data.nbytes:
            self._put_part(self._seen[index], part.data.view(self._seen[index].whole.dtype), None, part.where)

    def _see_reshapes(self) -> None:
        """A reshape that nothing computes is the bytes that it sees."""
        for operator in self._network.cpu_operators:
            if operator.name not in TFLITE_RESHAPING or operator.index not in self._folded:
                continue
            source, target = (self._seen.get(i) for i in (operator.inputs[0], operator.outputs[0]))
            if source is None or target is None or source.made.size != target.made.size:
                continue
            if source.known.all() and not target.known.any():
                self._put_part(target, source.made, None, source.where)

    def _put_part(self, seen: _Seen, values: Array, box: tuple[slice, ...] | None, where: str) -> None:
        place = box if box is not None else ...
        seen.made[place] = values.reshape(seen.whole.shape) if box is None else values
        seen.known[place] = True
        if seen.wrong_elements[place].any():
            seen.where = where

    def _operator_result(self, index: int, kind: str, outputs: Sequence[int]) -> OperatorResult:
        found = [self._seen[t] for t in outputs if t in self._seen]
        name = self._network.tensors[outputs[0]].name if outputs else ""
        elements = sum(int(np.count_nonzero(seen.known)) for seen in found)
        wrong = [(seen, mask) for seen in found if (mask := seen.wrong_elements).any()]
        if wrong:
            count = sum(int(np.count_nonzero(mask)) for _, mask in wrong)
            most = max(_largest_difference(seen.made[mask], seen.whole[mask]) for seen, mask in wrong)
            ulps = [ulps_between(seen.made[mask], seen.whole[mask]) for seen, mask in wrong if _is_float(seen.made)]
            apart = None if None in ulps else max((u or 0 for u in ulps), default=0)
            return OperatorResult(index, name, kind, Verdict.DIFFERS, elements, count, most, apart, wrong[0][0].where)
        whole = bool(found) and all(seen.known.all() for seen in found)
        return OperatorResult(index, name, kind, Verdict.EQUAL if whole else Verdict.HIDDEN, elements)


def _largest_difference(made: Array, expected: Array) -> int | float:
    kind = np.float64 if _is_float(made) else np.int64
    most: int | float = np.abs(made.astype(kind) - expected.astype(kind)).max().item()
    return most


def _is_float(values: Array) -> bool:
    return values.dtype.kind == "f"


def run_layers(
    directory: Path, options: RunOptions, inputs: Sequence[Array], model: object, dump: Path | None, as_json: bool
) -> None:
    """Run the artifact once on the host and print every operator; `dump`: a folder that gets the tensors."""
    import click  # a check, which compares layers as well, prints nothing

    if not isinstance(model, TFLiteReference):
        raise RunnerError("--layers compares with the tensors of a .tflite: give --reference MODEL.tflite")
    runner = LocalRunner(directory, replace(options, pools_after=False))
    ran, written = recorded_run(runner, inputs)
    expected = model.run(inputs)
    compiled = read_network(fold_constants(model.model), model.name)  # operators as the compiler counted them
    comparison = LayerComparison(compiled, model.layer_values(inputs), written, ran.outputs)
    names = [slot.name for slot in runner.artifact.outputs]
    result = compare_outputs("local", names, ran.outputs, expected)
    if dump is not None:
        _dump_tensors(dump, comparison)
    rows, first = comparison.operator_results(), comparison.first_difference()
    disagreement = describe_disagreements(find_disagreements(model, inputs, expected))
    if as_json:
        click.echo(json.dumps({
            "model": runner.artifact.name, "bit_exact": result.bit_exact, "reference": model.what,
            "first_that_differs": None if first is None else _json_row(first),
            "operators": [_json_row(row) for row in rows],
            **({"references_disagree": disagreement} if disagreement else {}),
        }))  # fmt: skip
    else:
        click.echo("\n".join(_report_lines(runner.artifact.name, rows, first, result.bit_exact, model.what)))
        if disagreement:
            click.echo(f"note: {disagreement}")
    if first is not None or not result.bit_exact:
        raise click.exceptions.Exit(1)


def _json_row(row: OperatorResult) -> dict[str, Any]:
    return {
        "operator": row.index, "name": row.name, "kind": row.kind, "verdict": row.verdict.value,
        "elements": row.elements, "mismatches": row.mismatches, "max_abs_diff": row.max_abs_diff, "where": row.where,
    }  # fmt: skip


def _report_lines(
    name: str, rows: Sequence[OperatorResult], first: OperatorResult | None, right: bool, reference: str
) -> list[str]:
    counts = {verdict: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    summary = ", ".join(f"{count} {verdict.value}" for verdict, count in counts.items() if count)
    if first is not None:
        verdict = f"the first operator that differs is {first.index} {first.kind} {first.name!r}, by {first.where}"
    elif right:
        verdict = f"bit-exact against {reference}"
    else:
        verdict = "outputs differ, in operators that are not visible"
    lines = [f"{name}: {verdict}", f"{count_text(len(rows), 'operator')}: {summary}"]
    for row in rows:
        numbers = f"{row.elements:>10,}" if row.elements else " " * 10
        wrong = f"  {row.mismatches:,} wrong, by {row.max_abs_diff:g} at most" if row.mismatches else ""
        lines.append(f"{row.index:>4}  {row.kind:24.24}  {row.verdict.value:11}  {numbers}  {row.name:.48}{wrong}")
    return lines


def _dump_tensors(folder: Path, comparison: LayerComparison) -> None:
    """Each tensor that was seen whole as `<index>_<name>.npy`, and the reference's next to it."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, name, made, expected in comparison.seen_tensors():
        stem = f"{index:03}_{re.sub(r'[^A-Za-z0-9_.-]', '_', name)[:80]}"
        np.save(folder / f"{stem}.npy", made)
        np.save(folder / f"{stem}.reference.npy", expected)
