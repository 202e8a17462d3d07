"""A network with what its custom operators leave unsaid in the file, and with what a compiler lost of it.

Invariant: a network without custom operators stays as it is, and TVM is not imported for it. Vela's compiled core drops
omitted optional inputs (-1) of the operators it leaves to the CPU, and with them the positions that give the others
their meaning: only operators whose present inputs are all accounted for are changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from ...models.network import CpuOperator, Network
from ...models.vela import NpuCall
from ...vela.worker import VelaError
from ..host_choice import check_known

NONE: Mapping[str, int | None] = MappingProxyType({})


def completed(network: Network, external: Mapping[str, int | None] = NONE, host_kernels: str = "") -> Network:
    """`network` with own states of operators as tensors, and shapes that operators imply (see `host_ops.completed`).

    Operators named in `external` are external C functions, with that many bytes of scratch; `host_kernels` is the
    option of that name.
    """
    if host_kernels:
        network = replace(network, host_kernels=host_kernels)
    if external:
        network = _marked(network, {name.casefold(): size or 0 for name, size in external.items()})
    if not any(operator.is_custom for operator in network.cpu_operators):
        return network
    from ..host_ops import completed

    return completed(network)


def _marked(network: Network, external: Mapping[str, int]) -> Network:
    operators = tuple(
        replace(operator, external_scratch_bytes=external[operator.name.casefold()])
        if isinstance(operator, CpuOperator) and operator.name.casefold() in external
        else operator
        for operator in network.operators
    )
    return replace(network, operators=operators)


def external_builtins(network: Network, external: Mapping[str, int | None]) -> tuple[str, ...]:
    """The operators of TFLite's own that `external` names, and that the NPU therefore leaves alone.

    `HostOpsError` for names the network has no operator of.
    """
    present = {operator.name.casefold(): operator for operator in network.cpu_operators}
    names = {name: operator.name for name, operator in present.items()}
    names |= {name: names[name.casefold()] for name in external if name.casefold() in names}  # however it is written
    check_known("--external", external, names, f"{network.name} has no such operator")
    named = [present[name.casefold()] for name in external]
    return tuple(operator.name for operator in named if not operator.is_custom)


def with_omitted_inputs(network: Network, source: Network) -> Network:
    """`network` with every host operator's inputs at the positions they have in `source`."""
    originals: dict[tuple[object, ...], list[CpuOperator]] = defaultdict(list)
    for known in reversed(source.cpu_operators):
        originals[_key(source, known)].append(known)
    operators: list[NpuCall | CpuOperator] = []
    for operator in network.operators:
        if isinstance(operator, NpuCall):
            operators.append(operator)
            continue
        found = originals[_key(network, operator)]
        original = found.pop().inputs if found else ()
        present = [i for i in operator.inputs if i >= 0]
        if -1 in original and len(present) == sum(i >= 0 for i in original):
            rest = iter(present)
            operators.append(replace(operator, inputs=tuple(next(rest) if i >= 0 else -1 for i in original)))
        else:
            operators.append(operator)
    return replace(network, operators=tuple(operators))


def with_constant_outputs(network: Network, source: Network) -> Network:
    """`network` with the bytes of results that are constants in `source`: Vela leaves them without any."""
    tensors = list(network.tensors)
    for index, original in zip(network.outputs, source.outputs, strict=True):
        constant = source.tensors[original]
        if constant.data is not None and tensors[index].data is None:
            tensors[index] = replace(tensors[index], data=constant.data, shape=constant.shape)
    return replace(network, tensors=tuple(tensors))


def require_made(network: Network) -> None:
    """`VelaError` where Vela has left out what makes an output or an input of an operator (a padding that a convolution
    took in, and that is an output of the network as well)."""
    made = {*network.inputs, *(i for o in network.operators for i in o.outputs)}
    for index in (*network.outputs, *(i for o in network.operators for i in o.inputs)):
        if index < 0 or index in made:
            continue
        tensor = network.tensors[index]
        if tensor.data is None and not tensor.is_variable:
            raise VelaError(
                f"nothing in what Vela made of {network.name} makes tensor {tensor.name!r}, which the network needs; "
                "compile it with --npu-compiler tvm"
            )


def _key(network: Network, operator: CpuOperator) -> tuple[object, ...]:
    if not operator.outputs:
        return (operator.name,)
    tensor = network.tensors[operator.outputs[0]]
    return operator.name, tensor.name, tensor.shape, tensor.dtype, tensor.scales
