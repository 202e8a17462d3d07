"""The attributes of `main` that describe its model: names, quantisation, what runs which operator, which operators
users keep on the CPU.

Invariant: attributes are strings, ints and lists of them only, so that TVMScript text keeps them bit for bit; scales
are C99 hex floats (`float.fromhex` reads them). A name in `--host-ops` of which the model has no operator is an error
that lists the operators it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..errors import RefusalError
from ..exactness import Claim, Exactness
from ..models.network import Network
from ..vocabulary import STATE_STARTS, STATES

if TYPE_CHECKING:
    from .graph import SourceNode


_COLUMNS = ("names", "kinds", "agents", "reasons", "exactness", "references", "doubts")  # of source operators
_INDEX_RANGES = "npu.input_index_ranges"  # [first, end] of each input, [] of one that is no index
MADE, MADE_BY = "npu.variables", "npu.variable_operators"  # what the calls of main make, and of which operator (or -1)
BY_USER = "kept on the CPU by --host-ops"


@dataclass(frozen=True, slots=True)
class Quantised:
    """An input, output or state of a model as `main` describes it."""

    name: str  # the tensor's name in the source file
    scale: float  # 0.0: not quantised
    zero_point: int
    start: bytes = b""  # of a state: what it starts with; nothing: its zero point
    index_range: tuple[int, int] | None = None  # of an input that is an index: its values, half-open


@dataclass(frozen=True, slots=True)
class SourceOperator:
    """An operator of the source model; `reason`: why it is not on the NPU; `claim`: how exact it is."""

    name: str  # of its first output tensor
    kind: str
    on_npu: bool
    reason: str
    claim: Claim


def main_attributes(
    inputs: Sequence[Quantised],
    outputs: Sequence[Quantised],
    states: Mapping[str, Quantised],
    operators: Sequence[SourceOperator],
) -> dict[str, Any]:
    """Attributes of `main`. `states`: name of its parameter -> state; `operators` of the source model."""
    attributes: dict[str, Any] = {STATES: list(states)}
    if any(state.start for state in states.values()):
        attributes[STATE_STARTS] = [state.start.hex() for state in states.values()]
    if any(tensor.index_range for tensor in inputs):
        attributes[_INDEX_RANGES] = [list(tensor.index_range or ()) for tensor in inputs]
    for kind, tensors in {"input": inputs, "output": outputs, "state": tuple(states.values())}.items():
        attributes[f"npu.{kind}_names"] = [t.name for t in tensors]
        attributes[f"npu.{kind}_scales"] = [t.scale.hex() for t in tensors]
        attributes[f"npu.{kind}_zero_points"] = [t.zero_point for t in tensors]
    return attributes | operator_attributes(operators)


def operator_attributes(operators: Sequence[SourceOperator]) -> dict[str, Any]:
    """The part of main's attributes that lists the source model's operators."""
    rows = [
        (o.name, o.kind, agent, o.reason, o.claim.exactness.value, o.claim.reference, o.claim.reason)
        for o, agent in ((o, "npu" if o.on_npu else "host") for o in operators)
    ]
    return {f"npu.operator_{column}": [row[i] for row in rows] for i, column in enumerate(_COLUMNS)}


def quantised_tensors(main: Any, kind: str) -> tuple[Quantised, ...]:
    """The "input", "output" or "state" tensors of a `main`, in order."""
    columns = [list(main.attrs[f"npu.{kind}_{column}"]) for column in ("names", "scales", "zero_points")]
    found = [
        Quantised(str(name), float.fromhex(str(scale)), int(zero)) for name, scale, zero in zip(*columns, strict=True)
    ]
    if kind == "input" and _INDEX_RANGES in main.attrs:
        ranges = [(int(limits[0]), int(limits[1])) if len(limits) else None for limits in main.attrs[_INDEX_RANGES]]
        found = [replace(q, index_range=limits) for q, limits in zip(found, ranges, strict=True)]
    return tuple(found)


def operators_of(main: Any) -> tuple[SourceOperator, ...]:
    """The source model's operators as `main` describes them."""
    columns = [[str(cell) for cell in main.attrs[f"npu.operator_{name}"]] for name in _COLUMNS]
    return tuple(
        SourceOperator(name, kind, agent == "npu", reason, Claim(Exactness(exactness), reference, doubt))
        for name, kind, agent, reason, exactness, reference, doubt in zip(*columns, strict=True)
    )


class HostOpsError(RefusalError):
    """`--host-ops` names an operator that does not exist or that the model does not have."""


def forced_operators(network: Network, names: Sequence[str]) -> tuple[str, ...]:
    """`names` as Vela wants them, each once; `HostOpsError` for names the model has no operator of."""
    wanted = tuple(dict.fromkeys(name.strip().upper() for name in names if name.strip()))
    check_known(
        "--host-ops", wanted, {o.name: o.name for o in network.cpu_operators}, f"{network.name} has no such operator"
    )
    return wanted


def check_known(option: str, wanted: Iterable[str], present: Mapping[str, str], otherwise: str) -> None:
    """`HostOpsError` for the first of `wanted` that is no key of `present`, whose values are the names to list."""
    for name in wanted:
        if name not in present:
            raise HostOpsError(
                f"{option} names {name!r}, but {otherwise}; it has: {', '.join(sorted(set(present.values())))}"
            )


def forced_nodes(nodes: Sequence[SourceNode], host_ops: Sequence[str], name: str) -> frozenset[int]:
    """Positions of the operators in `host_ops` (upper case); `HostOpsError` for operators that are not there."""
    kinds = {node.kind.upper(): node.kind for node in nodes if not node.conversion}
    check_known("--host-ops", host_ops, kinds, f"{name} has no such operator that the NPU could run")
    return frozenset(i for i, node in enumerate(nodes) if node.kind.upper() in host_ops and not node.conversion)
