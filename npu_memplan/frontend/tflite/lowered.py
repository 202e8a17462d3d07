"""A TFLite file to one IRModule by TVM's frontend, our partitioning and our lowering: no Vela stream.

Invariant: the module has the same form and the same attributes as the one that `tflite.import_tflite` lifts
from Vela's stream, so nothing that uses this module depends on which compiler made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...exactness import Code
from ...models.tflite import read_network
from ...models.variables import DONE_BEFORE, OF_VARIABLES
from ...vocabulary import RESHAPING
from ..attributes import BY_USER, SourceOperator, operator_attributes
from ..errors import TvmFrontendError
from ..host_choice import forced_operators
from ..legalize import legalize_host
from .completion import NONE, completed, external_builtins
from .described import doubt, known_of, operator_label
from .lifted import Imported, from_network, read_folded
from .on_host import ONLY_FLOATS, check_on_host, float_operators, host_reason
from .states import settled

if TYPE_CHECKING:
    from ...ethosu.lowering import LoweringTarget
    from ...models.network import Network
    from .operators import RelaxImport


@dataclass(frozen=True, slots=True)
class Partitioned:
    """A network in parts for the NPU and the host, which do not depend on what it is lowered for."""

    network: Network
    imported: RelaxImport
    module: Any
    left: Mapping[int, str]  # operators on the host, and why
    on_host: Mapping[int, str]  # those with exact code there


def build_module(
    model: bytes | Path,
    accelerator: str = "ethos-u55-256",
    host_ops: Sequence[str] = (),
    name: str = "",
    lowering_target: LoweringTarget | None = None,
    external: Mapping[str, int | None] = NONE,
    host_kernels: str = "",
    known: dict[object, Partitioned] | None = None,
) -> Imported:
    """Import, partition and lower `model` for `accelerator`.

    `host_ops` are TFLite operators to keep on the CPU, `external` those that external C functions run there;
    `lowering_target` says what it is lowered for (None: few bytes, in the default system); `known` keeps what was
    partitioned, for the next target. Raises `NetworkError` for files that
    are no TFLite, `TvmFrontendError` for those that Vela has compiled, `HostOpsError`, `UnsupportedModelError` for
    operators that neither side can run, `LoweringError` where a layer defeats the lowering.
    """
    from ...ethosu.lowering import LoweringTarget
    from ...ethosu.relax.lowering import lower_for_ethosu
    from .operators import OperatorNames
    from .repairs import round_integer_averages

    file, data, name = read_folded(model, name)
    key = file, accelerator, tuple(host_ops), name, tuple(external.items()), host_kernels
    parts = None if known is None else known.get(key)
    if parts is None:
        network = completed(read_network(data, name), external, host_kernels)
        if network.npu_calls:
            raise TvmFrontendError(f"{name} is compiled by Vela already; use --npu-compiler vela to import it")
        floats = float_operators(network)
        forced = _forced(network, (*host_ops, *external_builtins(network, external)), floats)
        check_on_host(network, forced, file)
        if len(floats) == len(network.operators):
            return Imported(from_network(network), network, notes=(f"{name} {ONLY_FLOATS}",))
        parts = _partition(network, file, data, accelerator, forced)
        if known is not None:
            known[key] = parts
    network, left = parts.network, parts.left
    operators = OperatorNames(network, parts.imported.operator_of)
    module = lower_for_ethosu(parts.module, accelerator, lowering_target or LoweringTarget(), operators)
    reasons = {variable: left[index] for variable, index in parts.imported.operator_of.items() if index in left}
    module = legalize_host(round_integer_averages(module), reasons, name)
    described = [
        SourceOperator(
            operator_label(network, o),
            o.name,
            o.index not in left,
            left.get(o.index, ""),
            known_of(_code(o.index, left, parts.on_host), network, o),
        )
        for o in network.cpu_operators
    ]
    main = settled(module["main"], parts.imported.updates).with_attr(operator_attributes(described))
    module.update_func(module.get_global_var("main"), main)
    return Imported(module, network)


def _forced(network: Network, host_ops: Sequence[str], floats: Mapping[int, str]) -> dict[int, str]:
    """Operators on the host by their kind, their types, or because native lowering may not give their results."""
    names = forced_operators(network, host_ops)
    forced = {**floats, **{o.index: BY_USER for o in network.cpu_operators if o.name in names}}
    for operator in network.cpu_operators:
        doubted = doubt(Code.LOWERED, network, operator)
        if doubted and host_reason(network, operator) is None:
            forced.setdefault(operator.index, doubted)
    return forced


def _partition(network: Network, file: bytes, data: bytes, accelerator: str, forced: Mapping[int, str]) -> Partitioned:
    """`network` of `file`, or of the `data` that is read of it, with operators in `forced` on the host."""
    from .operators import import_operators

    imported = import_operators(data, network, forced, file)
    partitioned = _partitioned(imported, accelerator, forced)
    left = _left(partitioned, imported)
    exact = {i: why for i, why in left.items() if host_reason(network, network.cpu_operators[i]) is None}
    if exact.keys() - imported.on_host.keys():
        imported = import_operators(data, network, forced, file, unmatched=exact)
        partitioned = _partitioned(imported, accelerator, forced)
        left = _left(partitioned, imported)
    left |= forced
    on_host = dict(imported.on_host) | {o.index: "" for o in network.cpu_operators if o.name in DONE_BEFORE}
    left |= {i: why for i, why in on_host.items() if network.cpu_operators[i].name in OF_VARIABLES}
    return Partitioned(network, imported, partitioned, left, on_host)


def _code(index: int, left: Mapping[int, str], on_host: Mapping[int, str]) -> Code:
    """Whose code an operator got: `left` are not on the NPU, and those `on_host` have exact code."""
    if index not in left:
        return Code.LOWERED
    return Code.HOST if index in on_host else Code.TVM


def _partitioned(imported: RelaxImport, accelerator: str, forced: Mapping[int, str]) -> Any:
    """The module in parts for the NPU and the host; of `forced` also what is no call, but a reshape."""
    from ...ethosu.relax.partition import partition_for_ethosu

    keep = {variable: forced[index] for variable, index in imported.operator_of.items() if index in forced}
    return partition_for_ethosu(imported.module, accelerator, keep=keep)


def _left(partitioned: Any, imported: RelaxImport) -> dict[int, str]:
    """Operators that a partitioned `main` still calls, by their index in the file, and why."""
    from ...ethosu.relax.partition import NO_PATTERN, HostOperator, remaining_operators

    parts: dict[int, list[HostOperator]] = {}
    for part in remaining_operators(partitioned):
        index = imported.operator_of.get(part.name, -1)
        if index >= 0 and part.kind not in RESHAPING:
            parts.setdefault(index, []).append(part)
    # the part that does the work has the best reason
    left = {i: next((p for p in found if not p.carries), found[0]).reason for i, found in parts.items()}
    return left | {i: why for i, why in imported.on_host.items() if left.get(i) == NO_PATTERN}
