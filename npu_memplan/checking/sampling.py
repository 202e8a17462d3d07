"""Operators of a network that is too much work for a whole check, as a network of their own, which is compiled as the
whole was.

Invariant: the sample follows from the program and the limit alone: of each kind in turn, the operator of most work that
still fits. An operator keeps its constants and quantisation; what it reads of others becomes an input of the sample,
over the whole range of its type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..artifact import Artifact
from ..artifact.model import CheckResult, CheckVerdict
from ..errors import RefusalError
from ..files.folders import scratch_folder
from ..models.network import CpuOperator, Network
from ..models.tflite import read_network
from ..options import CompileOptions
from ..process.incidents import contain_faults
from ..sizes import count_text
from .judge import CheckWork

Works = Callable[[Network], Mapping[int, CheckWork]]  # of the operators of a network whose work is known, by index

_FILLED = ("int8", "uint8", "int16", "float32")  # types of which every stored value is a value of any tensor
_SEPARATE = ("CALL_ONCE", "IF", "WHILE")


@dataclass(frozen=True, slots=True)
class SampleNetwork:
    """Operators of a network by their indices there, and the TFLite file of them alone."""

    operators: tuple[int, ...]
    kinds: frozenset[str]
    content: bytes
    total: int  # operators of the network

    def result(self, check: CheckResult, reason: str) -> CheckResult:
        """The result of the whole program, whose own check was left out for `reason`; `check`: that of the sample."""
        if check.verdict is CheckVerdict.NOT_CHECKED:
            return CheckResult(reason=reason)
        if check.verdict is CheckVerdict.DIFFERS and check.first is not None:
            first, place = check.first, check.first.operator
            hidden = tuple(self.operators[i] for i in first.hidden)
            found = self.operators[place] if place >= 0 else place
            return replace(check, first=replace(first, operator=found, hidden=hidden))
        outcome = "equal" if check.verdict is CheckVerdict.EQUAL else "differ as claimed from"
        some = f"{len(self.operators)} of {count_text(self.total, 'operator')}, compiled as a network of their own,"
        return CheckResult(reason=f"{reason}; {some} {outcome} {check.reference} on {', '.join(check.inputs)}")


def check_sample(
    sample: SampleNetwork | None,
    options: CompileOptions,
    unchecked: CheckResult,
    check: Callable[[Path, CompileOptions], CheckResult],
) -> CheckResult:
    """The result of a program that `options` made and that is too much work: `unchecked`, with what a `check` of its
    `sample` came to, or the difference of one operator.
    """
    if sample is None:
        return unchecked
    options = replace(
        options, effort="quick", pools={}, max_ms=None, name="", io="file",
        host_ops=tuple(kind for kind in options.host_ops if kind in sample.kinds),
    )  # fmt: skip
    with scratch_folder("sample") as folder, contain_faults("the sample of the check"), suppress(RefusalError):
        path = folder / "sample.tflite"
        path.write_bytes(sample.content)
        return sample.result(check(path, options), unchecked.reason)
    return unchecked


def draw_sample(data: bytes, works: Works, inputs: int, limit: int) -> SampleNetwork | None:
    """The sample of the TFLite file `data` whose check on so many inputs is within `limit`; None: there is none."""
    from fvp_runner import CutError, cut_part

    network = read_network(data, "the network")
    taken: list[CpuOperator] = []
    total = CheckWork(0, 0, 0)
    for operator, work in _order_operators(network, works(network)):
        more = total + work
        if not more.too_much(inputs, limit):
            taken, total = [*taken, operator], more
    if not taken:
        return None
    taken.sort(key=lambda operator: operator.index)
    try:
        content, _ = cut_part(data, network, taken)
    except CutError:
        return None
    kinds = frozenset(operator.name for operator in taken)
    return SampleNetwork(tuple(operator.index for operator in taken), kinds, content, len(network.cpu_operators))


def _order_operators(network: Network, work: Mapping[int, CheckWork]) -> Iterator[tuple[CpuOperator, CheckWork]]:
    """Operators of known work that can be checked alone: of each kind, the one of most work that is left."""
    kinds: dict[str, list[CpuOperator]] = {}
    for operator in network.cpu_operators:
        if operator.index in work and _can_be_alone(network, operator):
            kinds.setdefault(operator.name, []).append(operator)
    for found in kinds.values():
        found.sort(key=lambda operator: (-work[operator.index].units_of_work(1), operator.index))
    for turn in range(max(map(len, kinds.values()), default=0)):
        for found in kinds.values():
            if turn < len(found):
                yield found[turn], work[found[turn].index]


def works_of(artifact: Artifact) -> Works:
    """The work of the operators of an artifact, where it says what runs for each."""
    return lambda network: _work_of_operators(artifact, network)


def _work_of_operators(artifact: Artifact, network: Network) -> dict[int, CheckWork]:
    found = works_of_layers(network, ((layer.operator, layer.operations, layer.macs) for layer in artifact.layers))
    for call in artifact.host_layers:
        if call.operator >= 0:
            found[call.operator] = CheckWork(0, 0, 0, 1, 1, call.cycles)
    return found


def works_of_layers(network: Network, layers: Iterable[tuple[int, int, int]]) -> dict[int, CheckWork]:
    """The work of operators for which the NPU works: index, operations and MACs of each; an index below 0: unknown."""
    return {
        index: CheckWork(operations, macs, _constant_bytes(network, network.operators[index].inputs))
        for index, operations, macs in layers
        if index >= 0
    }


def _constant_bytes(network: Network, tensors: Sequence[int]) -> int:
    constants = (network.tensors[i].data for i in tensors if i >= 0)
    return sum(len(data) for data in constants if data is not None)


def _can_be_alone(network: Network, operator: CpuOperator) -> bool:
    """Whether an operator has no state and no subgraph, and takes any values of its inputs' types."""
    tensors = [network.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]
    return operator.name not in _SEPARATE and all(
        not tensor.is_variable and (tensor.data is not None or tensor.dtype in _FILLED) for tensor in tensors
    )
