"""Which operator of a TFLite file a layer of our own lowering is.

Invariant: a layer whose variable the importer named is the operator it was named for; one without a name is what the
file says reads the result of the operator before it, when only one can.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...models.network import Network
from ...names import node_of


@dataclass(slots=True)
class OperatorNames:
    """Called with a layer's output and the operators of its inputs (-1: none); answers with an index, or -1."""

    network: Network
    named: Mapping[str, int]  # Relax variable -> operator
    _labelled: dict[str, int] = field(init=False)
    _readers: dict[int, list[int]] = field(init=False)

    def __post_init__(self) -> None:
        self._labelled = {node_of(name): index for name, index in self.named.items()} | dict(self.named)
        readers: dict[int, list[int]] = {}
        for operator in self.network.operators:
            for tensor in operator.inputs:
                readers.setdefault(tensor, []).append(operator.index)
        self._readers = {
            operator.index: sorted({reader for tensor in operator.outputs for reader in readers.get(tensor, ())})
            for operator in self.network.operators
        }

    def __call__(self, output: str, inputs: tuple[int, ...]) -> int:
        """The operator that makes `output` of what `inputs` made."""
        if output in self._labelled:
            return self._labelled[output]
        claimed = set(self.named.values())
        following = [reader for source in inputs for reader in self._readers.get(source, ())]
        free = [reader for reader in following if reader not in claimed] or following
        return free[0] if free else max(inputs, default=-1)
