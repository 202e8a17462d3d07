"""What was written against the reference's tensors.

Invariant: a kernel's output is held against tensors of the operator that it works for, and of those that were folded
into it; where that is nothing, it is any tensor that it equals. What was written last counts: an operator of several
kernels may keep what it needs in between in the form of its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npu_memplan.exactness import HOST_MOVES
from npu_memplan.models.network import Network
from npu_memplan.names import legal
from npu_memplan.vocabulary import TFLITE_RESHAPING

from ..npu_model.network.layers import as_map, closest, same_form
from ..result import Array, ulps_between
from .operator_result import OperatorResult, Verdict
from .record import HostOutput, NpuOutput

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
    def wrong(self) -> Array:
        """Elements that were written and are not right; NaN equals NaN."""
        made, whole = self.made, self.whole
        return np.asarray(self.known & (made != whole) & ~((made != made) & (whole != whole)))


class LayerComparison:
    """Of one run: `layers` are the reference's tensors by index in `network`, the model as it was before compiling."""

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
            names.setdefault(legal(network.tensors[index].name), []).append(index)
        self._named = {name: found[0] for name, found in names.items() if len(found) == 1}
        for part in written:
            if isinstance(part, NpuOutput):
                self._kernel(part)
            else:
                self._host(part)
        self._reshapes()
        for index, values in zip(network.outputs, outputs, strict=False):
            seen = self._seen.get(index)
            if seen is not None and not seen.known.all() and values.nbytes == seen.whole.nbytes:
                self._put(seen, values.reshape(-1).view(seen.whole.dtype), None, "the output")

    def operators(self) -> list[OperatorResult]:
        return [self._result(o.index, o.name, o.outputs) for o in self._network.cpu_operators]

    def first(self) -> OperatorResult | None:
        return next((result for result in self.operators() if result.verdict is Verdict.DIFFERS), None)

    def made(self, operator: int) -> dict[int, Array]:
        """The outputs of an operator as they were made; nothing if they were not all seen whole."""
        outputs = [i for i in self._network.operators[operator].outputs if i >= 0]
        seen = {i: self._seen[i] for i in outputs if i in self._seen and self._seen[i].known.all()}
        return {i: s.made.reshape(s.expected.shape) for i, s in seen.items()} if len(seen) == len(outputs) else {}

    def tensors(self) -> Iterator[tuple[int, str, Array, Array]]:
        """(index, name, as it was made, as the reference has it) of every tensor that was seen whole."""
        for index, seen in self._seen.items():
            if seen.known.all():
                yield index, self._network.tensors[index].name, seen.made.reshape(seen.expected.shape), seen.expected

    # -- what was written -----------------------------------------------------------------------------

    def _candidates(self, operator: int) -> list[int]:
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

    def _kernel(self, part: NpuOutput) -> None:
        own = self._candidates(part.operator)
        best = self._best(part, own, by_zero_point=False)
        if best is None or best[0] < 1:
            other = self._best(part, [index for index in self._seen if index not in own], by_zero_point=True)
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
            self._put(self._seen[best[1]], part.values, best[2], part.where)

    def _best(
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
            share, box = closest(part.values, seen.whole)
            if best is None or share > best[0]:
                best = share, index, box
        return best

    def _host(self, part: HostOutput) -> None:
        index = self._named.get(part.buffer)
        if index is None and part.operator >= 0:
            outputs = [i for i in self._network.operators[part.operator].outputs if i in self._seen]
            fitting = [i for i in outputs if self._seen[i].whole.nbytes == part.data.nbytes]
            index = fitting[0] if len(fitting) == 1 else None
        if index is not None and self._seen[index].whole.nbytes == part.data.nbytes:
            self._put(self._seen[index], part.data.view(self._seen[index].whole.dtype), None, part.where)

    def _reshapes(self) -> None:
        """A reshape that nothing computes is the bytes that it sees."""
        for operator in self._network.cpu_operators:
            if operator.name not in TFLITE_RESHAPING or operator.index not in self._folded:
                continue
            source, target = (self._seen.get(i) for i in (operator.inputs[0], operator.outputs[0]))
            if source is None or target is None or source.made.size != target.made.size:
                continue
            if source.known.all() and not target.known.any():
                self._put(target, source.made, None, source.where)

    def _put(self, seen: _Seen, values: Array, box: tuple[slice, ...] | None, where: str) -> None:
        place = box if box is not None else ...
        seen.made[place] = values.reshape(seen.whole.shape) if box is None else values
        seen.known[place] = True
        if seen.wrong[place].any():
            seen.where = where

    def _result(self, index: int, kind: str, outputs: Sequence[int]) -> OperatorResult:
        found = [self._seen[t] for t in outputs if t in self._seen]
        name = self._network.tensors[outputs[0]].name if outputs else ""
        elements = sum(int(np.count_nonzero(seen.known)) for seen in found)
        wrong = [(seen, mask) for seen in found if (mask := seen.wrong).any()]
        if wrong:
            count = sum(int(np.count_nonzero(mask)) for _, mask in wrong)
            most = max(_difference(seen.made[mask], seen.whole[mask]) for seen, mask in wrong)
            ulps = [ulps_between(seen.made[mask], seen.whole[mask]) for seen, mask in wrong if _is_float(seen.made)]
            apart = None if None in ulps else max((u or 0 for u in ulps), default=0)
            return OperatorResult(index, name, kind, Verdict.DIFFERS, elements, count, most, apart, wrong[0][0].where)
        whole = bool(found) and all(seen.known.all() for seen in found)
        return OperatorResult(index, name, kind, Verdict.EQUAL if whole else Verdict.HIDDEN, elements)


def _difference(made: Array, expected: Array) -> int | float:
    kind = np.float64 if _is_float(made) else np.int64
    most: int | float = np.abs(made.astype(kind) - expected.astype(kind)).max().item()
    return most


def _is_float(values: Array) -> bool:
    return values.dtype.kind == "f"
