"""References of .tflite files: tflite-micro, LiteRT and the user's own operators, also of some operators alone.

Invariant: states start anew in every `run`, so runs do not depend on each other; `step` goes on from the last one.
LiteRT, which runs what tflite-micro has no kernel for, is taken with its built-in reference kernels, one thread and no
delegates, never its optimised kernels, which round otherwise. What a reference of the user's own operators returns has
the types and sizes of the operator's outputs. Some operators as a network of their own are those of the file with their
tensors and constants, byte for byte: it is kept, and only its lists of operators, inputs and outputs (and its metadata)
are replaced.
"""

from __future__ import annotations

import functools
import math
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from npu_memplan.exactness import MICRO
from npu_memplan.models.network import CpuOperator, Network
from npu_memplan.models.subgraphs import OF_VARIABLES
from npu_memplan.process.ending import raise_lack_of_memory
from npu_memplan.sizes import count_text

from .base import Interpreted, KeptStates, ReferenceRunError, fitting_inputs, tflite_source

_ARENA_STEPS = (1 << 24, 1 << 28)  # bytes; the smallest that works is used


class KernelError(ReferenceRunError):
    """tflite-micro has no kernel for an operator of the network."""


def open_interpreter(model: bytes, name: str, preserve: bool = False) -> Any:
    """A tflite-micro interpreter for `model`; with `preserve` every tensor can be read after `invoke`."""
    try:
        from tflite_micro import runtime
    except ImportError as error:
        raise ReferenceRunError(
            "the reference needs tflite-micro, which is not installed: pip install 'npu_memplan[reference]'"
        ) from error
    config = runtime.InterpreterConfig
    _shorten_count(runtime)
    kind = config.kPreserveAllTensors if preserve else config.kAllocationRecording
    with _captured_messages() as messages:
        failure: Exception | None = None
        for arena in _ARENA_STEPS:
            try:
                return runtime.Interpreter.from_bytes(model, arena_size=arena, intrepreter_config=kind)
            except (RuntimeError, ValueError) as error:
                failure = error
        raise KernelError(f"tflite-micro cannot run {name}: {messages() or failure}") from failure


def _shorten_count(runtime: Any) -> None:
    """Let tflite-micro's package count variables only where a model makes some: it unpacks the whole model."""
    count = runtime.count_resource_variables
    if not hasattr(count, "__wrapped__"):

        @functools.wraps(count)
        def count_if_any(model: Any) -> int:
            return int(count(model)) if not isinstance(model, bytes) or _makes_variables(model) else 0

        runtime.count_resource_variables = count_if_any


def _makes_variables(model: bytes) -> bool:
    import tflite

    root = tflite.Model.GetRootAsModel(model, 0)
    codes = [_number_of(root.OperatorCodes(index)) for index in range(root.OperatorCodesLength())]
    return tflite.BuiltinOperator.VAR_HANDLE in codes


def _number_of(code: Any) -> int:
    """The operator that an OperatorCode of TFLite's schema says."""
    return int(max(code.DeprecatedBuiltinCode(), code.BuiltinCode()))


def invoke_once(interpreter: Any, name: str) -> None:
    """Run once; `KernelError` when a kernel refuses."""
    with _captured_messages() as messages:
        try:
            interpreter.invoke()
        except RuntimeError as error:
            raise KernelError(f"tflite-micro cannot run {name}: {messages() or error}") from error


@contextmanager
def _captured_messages() -> Iterator[Callable[[], str]]:
    """The first line that tflite-micro prints meanwhile, kept off stderr: why it refuses a part."""
    try:
        kept = os.dup(_STDERR)
    except OSError:  # it is closed
        yield str
        return
    with tempfile.TemporaryFile() as file:

        def first_line() -> str:
            file.seek(0)
            lines = file.read().decode(errors="replace").splitlines()
            return next((line.strip() for line in lines if line.strip()), "")

        os.dup2(file.fileno(), _STDERR)
        try:
            yield first_line
        finally:
            os.dup2(kept, _STDERR)
            os.close(kept)


_STDERR = 2  # C++ knows it by this number


_ENDS_THE_PROCESS = {"DEPTHWISE_CONV_2D": 2, "SVDF": 3}  # kernels that follow a bias which is left out


class Reference(Interpreted):
    """A network in tflite-micro."""

    what = MICRO
    package = "tflite-micro"

    def __init__(self, model: bytes, name: str = "reference", network: Network | None = None) -> None:
        super().__init__(model, network or tflite_source(model, name))

    def _open_interpreter(self, preserve: bool = False) -> Any:
        for operator in self.network.cpu_operators:
            position = _ENDS_THE_PROCESS.get(operator.name, len(operator.inputs))
            if position < len(operator.inputs) and operator.inputs[position] < 0:
                raise KernelError(f"tflite-micro cannot run {self.name}: its {operator.name} needs a bias")
        return open_interpreter(self.model, self.name, preserve)

    def _reset_variables(self) -> None:
        self._interpreter.reset()

    def _invoke_interpreter(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        for position, value in enumerate(inputs):
            interpreter.set_input(value, position)
        invoke_once(interpreter, self.name)
        return [interpreter.get_output(i) for i in range(len(self.network.outputs))]

    def _read_tensor(self, interpreter: Any, index: int) -> Any:
        return interpreter.GetTensor(index, 0)["tensor_data"]


LITERT_NAME = "LiteRT's reference kernels"

_UNKNOWN_VERSION = re.compile(r"builtin opcode '(\w+)' version '(\d+)'")
_OPTION_FIELDS = 32  # more than any table of options has
_VERSION_SLOT = 8  # of `version` in the table OperatorCode of TFLite's schema


def lower_version(model: bytes, name: str, version: int, is_known: bool = False) -> bytes | None:
    """The model with the version before `version` stated for the operator `name`; None where its meaning may change.

    A version of an operator adds types, or options whose defaults keep the meaning of the version before (TFLite's rule
    of compatibility). So a model that sets no option means the same in any version whose kernel takes its types, and
    any model does where the kernel `is_known` to be that of the new version. tflite-micro ignores versions.
    """
    import tflite

    data = bytearray(model)
    root = tflite.Model.GetRootAsModel(data, 0)
    number = getattr(tflite.BuiltinOperator, name, None)
    changed: set[int] = set()
    for index in range(root.OperatorCodesLength()):
        code = root.OperatorCodes(index)
        if _number_of(code) == number and code.Version() == version > 1:
            struct.pack_into("<i", data, code._tab.Pos + code._tab.Offset(_VERSION_SLOT), version - 1)
            changed.add(index)
    graphs = [root.Subgraphs(index) for index in range(root.SubgraphsLength())]
    operators = [graph.Operators(index) for graph in graphs for index in range(graph.OperatorsLength())]
    of_kind = [operator for operator in operators if operator.OpcodeIndex() in changed]
    if not changed or (not is_known and any(_sets_options(operator) for operator in of_kind)):
        return None
    return bytes(data)


def _sets_options(operator: Any) -> bool:
    """Whether an operator's table of options has a field."""
    for table in (operator.BuiltinOptions(), operator.BuiltinOptions2()):
        if table is not None and any(table.Offset(slot) for slot in range(4, 4 + 2 * _OPTION_FIELDS, 2)):
            return True
    return False


class LiteRTReference(Interpreted):
    """A network in LiteRT."""

    what = LITERT_NAME
    package = "ai-edge-litert"

    def _open_interpreter(self, preserve: bool = False) -> Any:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise ReferenceRunError(
                f"tflite-micro cannot run {self.name}, and LiteRT, the reference for such models, is not installed: "
                "pip install 'npu_memplan[litert]'"
            ) from error
        self._check_states()
        model, is_known = self.model, None
        while True:
            try:
                interpreter = Interpreter(
                    model_content=model,
                    num_threads=1,
                    experimental_op_resolver_type=OpResolverType.BUILTIN_REF,
                    experimental_preserve_all_tensors=preserve,
                )
                interpreter.allocate_tensors()
                return interpreter
            except (RuntimeError, ValueError) as error:
                unknown = _UNKNOWN_VERSION.search(str(error))
                if unknown and is_known is None:
                    is_known = self._registers_all(Interpreter, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
                older = lower_version(model, unknown[1], int(unknown[2]), bool(is_known)) if unknown else None
                if older is None:
                    raise ReferenceRunError(
                        f"neither tflite-micro nor {LITERT_NAME} can run {self.name}: {error}"
                    ) from error
                model = older

    def _check_states(self) -> None:
        """`ReferenceRunError` for an int8 state of SVDF: LiteRT writes it as int16, behind the end of its memory."""
        for operator in self.network.cpu_operators:
            if operator.name == "SVDF" and self.network.tensors[operator.inputs[4]].dtype == "int8":
                raise ReferenceRunError(
                    f"{LITERT_NAME} cannot run {self.name}: operator {operator.index} SVDF has an int8 state, not int16"
                )

    def _registers_all(self, interpreter: Any, resolver: Any) -> bool:
        """Whether `resolver`, that of the optimised kernels, has the versions of all operators."""
        try:
            interpreter(model_content=self.model, num_threads=1, experimental_op_resolver_type=resolver)
        except (RuntimeError, ValueError) as error:
            return _UNKNOWN_VERSION.search(str(error)) is None
        return True

    def _reset_variables(self) -> None:
        self._interpreter.reset_all_variables()

    def _invoke_interpreter(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        for index, value in zip(self.network.inputs, inputs, strict=True):
            interpreter.set_tensor(index, value)
        try:
            interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ReferenceRunError(f"{LITERT_NAME} cannot run {self.name}: {error}") from error
        return [interpreter.get_tensor(index) for index in self.network.outputs]

    def _read_tensor(self, interpreter: Any, index: int) -> Any:
        return interpreter.get_tensor(index)


OWN_NAME = "own NumPy references"


def own_reference(operator: CpuOperator) -> Callable[..., Any] | None:
    """The NumPy reference of an operator of the user's own; None: it is no such operator, or has none."""
    if not operator.is_custom:
        return None
    from npu_memplan.frontend.host_ops.own import numpy_reference

    return numpy_reference(operator.name)


class OwnReference(KeptStates):
    """Operators of the user's own, one after another. Their states are their references' matter."""

    what = OWN_NAME
    package = "numpy"

    def reset(self) -> None:
        return

    def step(self, inputs: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        values = self.layer_values(inputs)
        return tuple(values[index] for index in self.network.outputs)

    def layer_values(self, inputs: Sequence[NDArray[Any]]) -> dict[int, NDArray[Any]]:
        tensors = self.network.tensors
        values = {i: tensor.array() for i, tensor in enumerate(tensors) if tensor.data is not None}
        values |= dict(zip(self.network.inputs, fitting_inputs(self.network, inputs), strict=True))
        for operator in self.network.cpu_operators:
            made = self._run_operator(operator, [values[i] for i in operator.inputs if i >= 0])
            values |= dict(zip(operator.outputs, made, strict=True))
        return {i: values[i] for o in self.network.operators for i in o.outputs}

    def _run_operator(self, operator: CpuOperator, inputs: list[NDArray[Any]]) -> list[NDArray[Any]]:
        reference = own_reference(operator)
        assert reference is not None
        try:
            found = reference(*inputs, **operator.custom_options())
        except Exception as error:  # it is the user's own code
            raise_lack_of_memory(error)
            raise ReferenceRunError(
                f"the NumPy reference of {operator.name} failed: {type(error).__name__}: {error}; it gets the inputs "
                "as arrays and the options by name"
            ) from error
        made = [found] if isinstance(found, np.ndarray) else list(found)
        wanted = [self.network.tensors[i] for i in operator.outputs]
        if [(m.dtype.name, m.size) for m in made] != [(t.dtype, math.prod(t.shape)) for t in wanted]:
            raise ReferenceRunError(
                f"the NumPy reference of {operator.name} gave {[f'{m.dtype}{list(m.shape)}' for m in made]}, but "
                f"operator {operator.index} has the outputs {[f'{t.dtype}{list(t.shape)}' for t in wanted]}"
            )
        return [m.reshape(t.shape) for m, t in zip(made, wanted, strict=True)]


# Field positions in the vtables of TFLite's SubGraph and Model.
_INPUTS, _OUTPUTS, _OPERATORS, _METADATA, _SIGNATURES = 6, 8, 10, 16, 18


class CutError(ReferenceRunError):
    """Operators cannot be taken out of their file."""


def cut_part(data: bytes, network: Network, operators: Sequence[CpuOperator]) -> tuple[bytes, Network]:
    """The TFLite file `data` of `network` with these operators alone, in the file's order.

    Inputs are what they read and do not make; outputs what others read of what they make, and of one operator all that
    it makes. `CutError` where they cannot be cut out.
    """
    import tflite

    inputs, outputs = _boundary_tensors(network, operators)
    patched = bytearray(data)
    patched += bytes(-len(patched) % 4)
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    named = _operator_names(network, operators)
    for field, values in ((_INPUTS, inputs), (_OUTPUTS, outputs)):
        offset = graph._tab.Offset(field)
        if not offset:
            raise CutError(f"{named} cannot be taken out of its network: the subgraph lists no tensors")
        slot = graph._tab.Pos + offset
        struct.pack_into("<I", patched, slot, len(patched) - slot)
        patched += struct.pack(f"<I{len(values)}i", len(values), *values)
    vector = graph._tab.Vector(graph._tab.Offset(_OPERATORS))
    distances = [graph.Operators(o.index)._tab.Pos - vector - 4 * place for place, o in enumerate(operators)]
    if min(distances) <= 0:
        raise CutError(f"{named} cannot be taken out of its network: the file has an unusual order")
    struct.pack_into(f"<{1 + len(distances)}I", patched, vector - 4, len(distances), *distances)
    for field in (_METADATA, _SIGNATURES):
        offset = model._tab.Offset(field)
        if offset:
            struct.pack_into("<I", patched, model._tab.Vector(offset) - 4, 0)
    name = f"{named} of {network.name}"
    return bytes(patched), replace(network, name=name, operators=tuple(operators), inputs=inputs, outputs=outputs)


def shares_states(network: Network) -> bool:
    """Whether an operator's state is another one's too, so that no part can run alone."""
    if any(o.name in OF_VARIABLES for o in network.cpu_operators):
        return True
    read = [i for o in network.cpu_operators for i in {*o.inputs} if i >= 0 and network.tensors[i].is_variable]
    return len(read) != len(set(read))


def _operator_names(network: Network, operators: Sequence[CpuOperator]) -> str:
    if len(operators) == 1:
        return f"operator {operators[0].index} ({operators[0].name})"
    return f"a part of {count_text(len(operators), 'operator')} from {operators[0].index} ({operators[0].name}) on"


def _boundary_tensors(network: Network, operators: Sequence[CpuOperator]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    tensors, indices = network.tensors, {o.index for o in operators}
    made = dict.fromkeys(i for o in operators for i in o.outputs if i >= 0)
    read = dict.fromkeys(i for o in operators for i in o.inputs if i >= 0)
    inputs = tuple(i for i in read if i not in made and tensors[i].data is None and not tensors[i].is_variable)
    others = {*network.outputs, *(i for o in network.operators if o.index not in indices for i in o.inputs)}
    read_later = tuple(i for i in made if i in others)
    return inputs, tuple(made) if len(operators) == 1 or not read_later else read_later
