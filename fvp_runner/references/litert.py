"""The reference of what tflite-micro has no kernel for: LiteRT with its built-in reference kernels.

Invariant: never LiteRT's optimised kernels, which round otherwise, and no delegates; one thread. States start anew
in every `run`, as in tflite-micro's.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import tflite
from numpy.typing import NDArray

from .base import Interpreted, ReferenceRunError

WHAT = "LiteRT's reference kernels"

_UNKNOWN_VERSION = re.compile(r"builtin opcode '(\w+)' version '(\d+)'")
_OPTION_FIELDS = 32  # more than any table of options has
_VERSION_SLOT = 8  # of `version` in the table OperatorCode of TFLite's schema


def lower_version(model: bytes, name: str, version: int, is_known: bool = False) -> bytes | None:
    """The model with the version before `version` stated for the operator `name`; None where its meaning may change.

    A version of an operator adds types, or options whose defaults keep the meaning of the version before (TFLite's rule
    of compatibility). So a model that sets no option means the same in any version whose kernel takes its types, and
    any model does where the kernel `is_known` to be that of the new version. tflite-micro ignores versions.
    """
    data = bytearray(model)
    root = tflite.Model.GetRootAsModel(data, 0)
    number = getattr(tflite.BuiltinOperator, name, None)
    changed: set[int] = set()
    for index in range(root.OperatorCodesLength()):
        code = root.OperatorCodes(index)
        if max(code.DeprecatedBuiltinCode(), code.BuiltinCode()) == number and code.Version() == version > 1:
            struct.pack_into("<i", data, code._tab.Pos + code._tab.Offset(_VERSION_SLOT), version - 1)
            changed.add(index)
    graphs = [root.Subgraphs(index) for index in range(root.SubgraphsLength())]
    operators = [graph.Operators(index) for graph in graphs for index in range(graph.OperatorsLength())]
    of_kind = [operator for operator in operators if operator.OpcodeIndex() in changed]
    if not changed or (not is_known and any(_sets_options(operator) for operator in of_kind)):
        return None
    return bytes(data)


def _sets_options(operator: tflite.Operator) -> bool:
    """Whether an operator's table of options has a field."""
    for table in (operator.BuiltinOptions(), operator.BuiltinOptions2()):
        if table is not None and any(table.Offset(slot) for slot in range(4, 4 + 2 * _OPTION_FIELDS, 2)):
            return True
    return False


class LiteRTReference(Interpreted):
    """A network in LiteRT."""

    what = WHAT
    package = "ai-edge-litert"

    def _opened(self, preserve: bool = False) -> Any:
        try:
            from ai_edge_litert.interpreter import Interpreter, OpResolverType
        except ImportError as error:
            raise ReferenceRunError(
                f"tflite-micro cannot run {self.name}, and LiteRT, the reference for such models, is not installed: "
                "pip install npu_memplan[litert]"
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
                    raise ReferenceRunError(f"neither tflite-micro nor {WHAT} can run {self.name}: {error}") from error
                model = older

    def _check_states(self) -> None:
        """`ReferenceRunError` for an int8 state of SVDF: LiteRT writes it as int16, behind the end of its memory."""
        for operator in self.network.cpu_operators:
            if operator.name == "SVDF" and self.network.tensors[operator.inputs[4]].dtype == "int8":
                raise ReferenceRunError(
                    f"{WHAT} cannot run {self.name}: operator {operator.index} SVDF has an int8 state, not int16"
                )

    def _registers_all(self, interpreter: Any, resolver: Any) -> bool:
        """Whether `resolver`, that of the optimised kernels, has the versions of all operators.

        Reference kernels are the same code but for the inner loops; LiteRT registers some of them in older versions.
        """
        try:
            interpreter(model_content=self.model, num_threads=1, experimental_op_resolver_type=resolver)
        except (RuntimeError, ValueError) as error:
            return _UNKNOWN_VERSION.search(str(error)) is None
        return True

    def _reset_variables(self) -> None:
        self._interpreter.reset_all_variables()

    def _invoke(self, interpreter: Any, inputs: list[NDArray[Any]]) -> list[Any]:
        for index, value in zip(self.network.inputs, inputs, strict=True):
            interpreter.set_tensor(index, value)
        try:
            interpreter.invoke()
        except (RuntimeError, ValueError) as error:
            raise ReferenceRunError(f"{WHAT} cannot run {self.name}: {error}") from error
        return [interpreter.get_tensor(index) for index in self.network.outputs]

    def _tensor(self, interpreter: Any, index: int) -> Any:
        return interpreter.get_tensor(index)
