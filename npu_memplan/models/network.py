"""A network as data: its tensors, its operators, its inputs and outputs.

Invariant: tensors and operators keep the file's indices and order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from ..fixed_point import BILINEAR_BITS, bilinear_place
from ..process.ending import raise_lack_of_memory
from ..sizes import count_text
from .flatbuffer import NetworkError
from .tensor import Tensor
from .vela import NpuCall


@dataclass(frozen=True, slots=True, eq=False)
class CpuOperator:
    """An operator left to the host. -1 in `inputs` is an omitted optional input."""

    index: int
    name: str  # schema name ("SOFTMAX"), or the custom code
    builtin_code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    intermediates: tuple[int, ...] = ()
    version: int = 1
    states: tuple[int, ...] = ()  # tensors that it keeps for itself, which the file does not list
    external_scratch_bytes: int | None = None  # None: it is not one that an external C function runs
    table: Any = field(default=None, repr=False)  # the tflite.Operator

    @property
    def is_custom(self) -> bool:
        """Whether its name is a custom code, not one of the schema's."""
        import tflite

        return self.builtin_code == int(tflite.BuiltinOperator.CUSTOM)

    def custom_options(self) -> dict[str, Any]:
        """The options of a custom operator, by name; `NetworkError` when they are damaged."""
        from flatbuffers import flexbuffers

        known = self.table is not None and self.table.CustomOptionsLength()
        data: bytes = self.table.CustomOptionsAsNumpy().tobytes() if known else b""
        if not data:
            return {}
        try:
            options = flexbuffers.Loads(data)
        except Exception as error:  # the reader raises whatever comes first
            raise_lack_of_memory(error)
            raise NetworkError(
                f"operator {self.index} {self.name}: its options are no flexbuffer ({error}); the file is damaged"
            ) from None
        return options if isinstance(options, dict) else {}

    def options(self, kind: str) -> Any | None:
        """The built-in options as a `kind` of the schema ("SoftmaxOptions"), None when the file has none."""
        import tflite

        table = None if self.table is None else self.table.BuiltinOptions()
        if table is None or self.table.BuiltinOptionsType() != getattr(tflite.BuiltinOptions, kind):
            return None
        view = getattr(tflite, kind)()
        view.Init(table.Bytes, table.Pos)
        return view


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A subgraph of a file: the first one, which runs, or one that it calls."""

    name: str
    tensors: tuple[Tensor, ...]
    operators: tuple[NpuCall | CpuOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    by_vela: bool = False  # whether Vela wrote the file, whatever it gave the NPU
    host_kernels: str = ""  # whose functions host operators are to call where these do the same; "": ours alone
    in_rows: bool = False  # host operators run in turn, by rows, where that saves bytes
    subgraphs: tuple[Network, ...] = ()  # of the first one: all of the file's by index, itself as it is read
    lowered: dict[CpuOperator, Any] = field(init=False, repr=False, default_factory=dict)  # for the host

    @property
    def npu_calls(self) -> tuple[NpuCall, ...]:
        """The NPU calls in order."""
        return tuple(o for o in self.operators if isinstance(o, NpuCall))

    @property
    def cpu_operators(self) -> tuple[CpuOperator, ...]:
        """The host operators in order."""
        return tuple(o for o in self.operators if isinstance(o, CpuOperator))

    def tensors_of(self, operator: CpuOperator) -> list[Tensor]:
        """The tensors that an operator reads, then those that it writes."""
        return [self.tensors[i] for i in (*operator.inputs, *operator.outputs) if i >= 0]

    def keeps_bytes(self, operator: CpuOperator) -> bool:
        """Whether the first output of an operator that only changes a shape may be the first input itself."""
        source, target = (self.tensors[i] for i in (operator.inputs[0], operator.outputs[0]))
        return source.dtype == target.dtype and source.size_bytes == target.size_bytes

    @property
    def states(self) -> tuple[int, ...]:
        """Variable tensors that operators read: they outlive an inference; `Tensor.start` is what they start with."""
        own = (i for o in self.cpu_operators for i in o.states)
        read = {*own, *(i for o in self.operators for i in o.inputs if i >= 0)}
        return tuple(i for i in sorted(read) if self.tensors[i].is_variable)

    def why_nothing_runs_on_the_npu(self, path: str, options: str = "") -> str:
        """A text for messages about a network without NPU calls, the file `path`; `options` are more of the
        compile's.
        """
        if not self.by_vela:
            target = f"{self.name.removesuffix('.tflite')}_vela.tflite"
            return (
                f"{self.name} has no ethos-u operator: it was not compiled by Vela; compile it for an NPU: "
                f"npu-memplan compile {path} {options}--emit vela-tflite -o {target}"
            )
        names = ", ".join(sorted({o.name for o in self.cpu_operators}))
        return (
            f"{self.name} has no ethos-u operator: Vela compiled it, but left "
            f"{count_text(len(self.operators), 'operator')} to the CPU ({names}); nothing of it runs on an NPU"
        )


_READ_AS_64_BITS = {"DEPTHWISE_CONV_2D": 2, "TRANSPOSE_CONV": 3}  # by tflite-micro, and int16; the bias's place


def without_reference(network: Network, operator: CpuOperator) -> str:
    """Why the kernels that accept an operator are no reference for it, as they read other data than it means; "" where
    they are one.
    """
    made = network.tensors[operator.outputs[0]].dtype if operator.outputs else ""
    if made == "int16" and _type_of(network, operator, _READ_AS_64_BITS.get(operator.name, -1)) == "int32":
        return "its bias has 32 bits, and TFLite's kernels for int16 read 64"
    if operator.name == "PRELU" and _type_of(network, operator, 1) == "int16":
        return "its slopes have 16 bits, and TFLite's kernels read 8"
    if (
        operator.name == "BATCH_MATMUL"
        and is_hybrid(network, operator)
        and any(n > 1 for n in network.tensors[operator.outputs[0]].shape[:-3])
    ):
        return "LiteRT's kernel takes the scales of other rows in a stack of several axes"
    return ""


def is_hybrid(network: Network, operator: CpuOperator) -> bool:
    """Whether weights of int8 make floats."""
    made = network.tensors[operator.outputs[0]].dtype if operator.outputs else ""
    return made == "float32" and _type_of(network, operator, 1) == "int8"


def resizes_beyond(network: Network, operator: CpuOperator) -> bool:
    """Whether a RESIZE_BILINEAR in fixed point has places beyond its input."""
    options = operator.options("ResizeBilinearOptions")
    data, made = network.tensors[operator.inputs[0]], network.tensors[operator.outputs[0]]
    if options is None or data.dtype not in ("int8", "int16"):
        return False
    how = {"align": options.AlignCorners(), "centers": options.HalfPixelCenters()}
    sizes = zip(data.shape[1:3], made.shape[1:3], strict=False)
    return any(bilinear_place(wanted - 1, size, wanted, **how) >= size << BILINEAR_BITS for size, wanted in sizes)


def holds_intermediates(network: Network, operator: CpuOperator) -> bool:
    """Whether intermediate tensors of an LSTM have elements: tflite-micro refuses it then, LiteRT runs it."""
    return any(math.prod(network.tensors[i].shape) > 0 for i in operator.intermediates if i >= 0)


def _type_of(network: Network, operator: CpuOperator, place: int) -> str:
    """The type of an operator's input; "" where it has none there."""
    index = operator.inputs[place] if 0 <= place < len(operator.inputs) else -1
    return network.tensors[index].dtype if index >= 0 else ""
