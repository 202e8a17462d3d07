"""A user's own operators: C functions that the plan has room for, and functions that are linked from elsewhere.

Invariant: such a function gets pointers to its inputs, then to its outputs, then to its scratch and to what it keeps
(where the description asks for them), then the numbers of the description; it changes nothing but outputs, scratch and
state. All of these are buffers of the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import NpuMemplanError
from ...files.paths import open_file, read_text
from ...models.tensor import Tensor
from ...process.ending import raise_lack_of_memory
from ...vocabulary import EXTERNAL, EXTERNAL_PREFIX
from .operator import EXTERNAL_OPERATOR, Lowering, OwnState, lowering, require_supported

Number = int | float
NumpyReference = Callable[..., Any]
_REFERENCES: dict[str, NumpyReference] = {}


class OwnOperatorError(NpuMemplanError):
    """The description of a user's own operator cannot be used."""


@dataclass(frozen=True, slots=True, eq=False)
class OperatorCall:
    """One operator of a network, for what depends on its shapes and options."""

    inputs: tuple[Tensor | None, ...]  # None: left out
    outputs: tuple[Tensor, ...]
    options: Mapping[str, Any]  # of a custom operator, by name


Bytes = int | Callable[[OperatorCall], int]
Numbers = Sequence[Number] | Callable[[OperatorCall], Sequence[Number]]


def host_operator(
    name: str,
    *,
    function: str,
    source: str | Path,
    scratch_bytes: Bytes = 0,
    state_bytes: Bytes = 0,
    numbers: Numbers = (),
) -> Callable[[NumpyReference], NumpyReference]:
    """Let the C function `function`, which the file `source` defines, run the operator `name` on the host.

    `name` is the custom code in the TFLite file. `scratch_bytes` and `state_bytes` are what it needs while it runs and
    from one inference to the next (zeros at first), `numbers` what it gets after the pointers (int as int32_t, float as
    double): values, or functions of an `OperatorCall`. Returns a decorator for an optional NumPy reference: a function
    of the inputs as arrays and of the options by name, which returns the outputs. Raises `OwnOperatorError` where
    `source` cannot be read or does not define `function`.
    """
    path = Path(source)
    try:
        text = read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text"
        raise OwnOperatorError(f"own operator {name!r}: cannot read its C from {path} ({reason})") from None
    if f"{function}(" not in text:
        raise OwnOperatorError(f"own operator {name!r}: {path} defines no function {function}")

    def own_states(work: Lowering) -> list[OwnState]:
        size = _value(state_bytes, _call(work))
        return [OwnState("state", (size,), "uint8")] if size else []

    @lowering(name, keeps=own_states)
    def lower(work: Lowering) -> None:
        call = _call(work)
        scratch = _value(scratch_bytes, call)
        given = numbers(call) if callable(numbers) else numbers
        _pass(work, function, [text], scratch, [float(n) if isinstance(n, float) else int(n) for n in given])

    def decorate(reference: NumpyReference) -> NumpyReference:
        _REFERENCES[name] = reference
        return reference

    return decorate


def numpy_reference(name: str) -> NumpyReference | None:
    """The NumPy reference of a user's own operator, if it has one."""
    return _REFERENCES.get(name)


def load_operators(path: Path | str) -> None:
    """Run the Python file `path`, which describes own operators; `OwnOperatorError` says what is wrong with it."""
    import runpy

    try:
        with open_file(path):  # a pipe would be waited for
            runpy.run_path(str(path))
    except NpuMemplanError:
        raise
    except Exception as error:  # it is the user's own code
        raise_lack_of_memory(error)
        raise OwnOperatorError(
            f"cannot load operators from {path}: {type(error).__name__}: {error}; it is Python that calls "
            "npu_memplan.host_operator"
        ) from error


@lowering(EXTERNAL_OPERATOR)
def lower_external(work: Lowering) -> None:
    """An operator that is an external C function: declared, called, and given its scratch."""
    operator, scratch = work.operator, work.operator.external_scratch_bytes or 0
    name = "".join(c if c.isalnum() else "_" for c in operator.name.lower())
    symbol = f"{EXTERNAL_PREFIX}{name}_{operator.index}"
    _pass(work, symbol, [], scratch, [])
    rows = [
        (f"input_{i}", t.dtype, _describe(t))
        for i in range(len(operator.inputs))
        if (t := work.optional(i)) is not None
    ]
    rows += [(f"output_{i}", tensor.dtype, _describe(tensor)) for i, tensor in enumerate(work.outputs())]
    rows += [("scratch", "uint8", f"{scratch} bytes")] if scratch else []
    work.attributes[EXTERNAL] = {
        "symbol": symbol,
        "parameters": [name for name, _, _ in rows],
        "types": [dtype for _, dtype, _ in rows],
        "tensors": [f"   {name}: {description}" for name, _, description in rows],
    }


def _describe(tensor: Tensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    quantised = f", scale {tensor.scale!r}, zero point {tensor.zero_point}" if tensor.scales else ""
    several = f" (and {len(tensor.scales) - 1} more scales)" if len(tensor.scales) > 1 else ""
    constant = ", constant" if tensor.data is not None else ""
    return f"{tensor.name}: {tensor.dtype} {shape}{quantised}{several}{constant}"


def _call(work: Lowering) -> OperatorCall:
    operator = work.operator
    inputs = tuple(work.optional(position) for position in range(len(operator.inputs)))
    return OperatorCall(inputs, tuple(work.outputs()), operator.custom_options() if operator.is_custom else {})


def _value(wanted: Bytes, call: OperatorCall) -> int:
    return int(wanted(call) if callable(wanted) else wanted)


def _pass(work: Lowering, symbol: str, sources: list[str], scratch_bytes: int, numbers: list[Number]) -> None:
    """The call: inputs, outputs, scratch, state, numbers."""
    operator = work.operator
    require_supported(operator.outputs or operator.states, "it has no output")
    inputs = [work.read(i, f"input_{i}") for i in range(len(operator.inputs)) if work.optional(i) is not None]
    written = [work.own_state(i, "state") for i in range(len(operator.states))]
    if scratch_bytes:
        written.insert(0, work.function.scratch("scratch", (scratch_bytes,), "uint8"))
    work.c_function(symbol, sources, [*inputs, *work.write_all("output_"), *written, *numbers])
