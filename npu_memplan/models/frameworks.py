"""Files of other frameworks, read by their own packages: an ONNX `ModelProto`, an `ExportedProgram` of torch.export.

Invariant: a model that is returned has static input shapes and no control flow. PyTorch is imported here, and only when
such a file is read; each fault of a file is one typed error.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import warnings
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

from ..errors import NpuMemplanError, describe_error
from ..names import Names, printable_text
from ..process.ending import raise_lack_of_memory
from .flatbuffer import UnsupportedModelError, read_file

ONNX_SUFFIX = ".onnx"


class OnnxError(NpuMemplanError):
    """An ONNX file is damaged, cannot be imported, or the package onnx is not installed."""


class DynamicShapeError(OnnxError):
    """A graph input of an ONNX model has a dimension that is not a number."""


def is_onnx(path: Path) -> bool:
    """Whether a model file is taken as ONNX: by its name, because the format has no signature."""
    return path.suffix.lower() == ONNX_SUFFIX


def require_onnx() -> None:
    """Raise `OnnxError` where the package onnx is not installed, without which no such file is read."""
    try:
        importlib.import_module("onnx")
    except ImportError as error:
        raise OnnxError("reading ONNX needs the package onnx: pip install 'npu_memplan[onnx]'") from error


def read_onnx(model: bytes | Path, name: str = "") -> Any:
    """The checked `ModelProto` of a file with static input shapes, its external data loaded, all names printable.

    Raises `OnnxError` (no package, damaged, or not valid ONNX), `DynamicShapeError`, `UnsupportedModelError`
    (control flow).
    """
    require_onnx()
    import onnx
    from onnx.external_data_helper import load_external_data_for_model

    data = model if isinstance(model, bytes) else read_file(model)
    name = name or ("model" if isinstance(model, bytes) else model.name)
    try:
        proto = onnx.load_model_from_string(data)
        if not isinstance(model, bytes):
            load_external_data_for_model(proto, str(model.parent))
        onnx.checker.check_model(proto)
    except Exception as error:  # protobuf's and the checker's errors share no class
        raise_lack_of_memory(error)
        raise OnnxError(f"{name} is no readable ONNX model: {describe_error(error)}; export it again") from error
    branching = sorted({node.op_type for node in proto.graph.node} & {"If", "Loop", "Scan"})
    if branching:
        raise UnsupportedModelError(
            f"{name} has {', '.join(branching)}: a compiled model is one straight line of calls; export it without "
            "control flow, or plan its Relax module with npu_memplan.transform.PlanMemory"
        )
    _check_static(proto, name)
    _name_printably(proto.graph)
    _state_padding(proto)
    return proto


def _state_padding(proto: Any) -> None:
    """Give windows that pad by themselves (`auto_pad`) their padding as numbers, where their shapes are known. TVM
    would make code for the host of a convolution's, and takes other sizes for pools.
    """
    from onnx import helper, shape_inference

    windows = [node for node in proto.graph.node if node.op_type in ("Conv", "MaxPool", "AveragePool")]
    if not any(attribute.name == "auto_pad" for node in windows for attribute in node.attribute):
        return
    inferred = shape_inference.infer_shapes(proto, data_prop=True).graph
    shapes = {
        v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*inferred.input, *inferred.value_info)
    }
    shapes |= {tensor.name: list(tensor.dims) for tensor in inferred.initializer}
    for node in windows:
        given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        mode, sizes = given.pop("auto_pad", b""), shapes.get(node.input[0], [])[2:]
        weights = node.input[1] if node.op_type == "Conv" else ""
        window = given.get("kernel_shape") or shapes.get(weights, [])[2:]
        strides, dilations = (given.get(name, [1] * len(window)) for name in ("strides", "dilations"))
        numbers = list(zip_longest(sizes, window, strides, dilations, fillvalue=0))
        if mode not in (b"SAME_UPPER", b"SAME_LOWER") or min(map(min, numbers), default=0) < 1:
            continue  # of a wrong number, TVM says it
        before, after = [], []
        for size, kernel, stride, dilation in numbers:
            total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
            before.append(total // 2 if mode == b"SAME_UPPER" else total - total // 2)
            after.append(total - before[-1])
        del node.attribute[:]
        node.attribute.extend(helper.make_attribute(k, v) for k, v in (given | {"pads": [*before, *after]}).items())


def _name_printably(graph: Any) -> None:
    """Give nodes and values whose names have characters without a shape others, as `printable_text` writes them."""
    names, shown = Names(), dict[str, str]()

    def printable_name(name: str) -> str:
        return shown.get(name) or shown.setdefault(name, names.unique_name(printable_text(name)) if name else "")

    for node in graph.node:
        node.name = printable_text(node.name)
        node.input[:] = map(printable_name, node.input)
        node.output[:] = map(printable_name, node.output)
    for value in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
        value.name = printable_name(value.name)


def _check_static(proto: Any, name: str) -> None:
    stored = {tensor.name for tensor in proto.graph.initializer}
    for value in proto.graph.input:
        if value.name in stored:
            continue
        kind = value.type.tensor_type
        if not value.type.HasField("tensor_type") or not kind.HasField("shape"):
            raise DynamicShapeError(f"input {value.name!r} of {name} is no tensor of known rank")
        dims = [d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in kind.shape.dim]
        open_dims = [f"{i} ({d})" for i, d in enumerate(dims) if not isinstance(d, int) or d < 1]
        if open_dims:
            raise DynamicShapeError(
                f"input {value.name!r} of {name} has the shape [{', '.join(map(str, dims))}]: dimension "
                f"{', '.join(open_dims)} is not a positive number, and a static plan needs all; set them with "
                "onnx.tools.update_model_dims or export the model with fixed shapes"
            )


TORCH_SUFFIX = ".pt2"


class TorchFileError(NpuMemplanError):
    """A file of torch.export is damaged, or PyTorch is not installed."""


def is_torch(path: Path) -> bool:
    """Whether a model file is taken as one of torch.export: by its name."""
    return path.suffix.lower() == TORCH_SUFFIX


@contextlib.contextmanager
def _only_weights() -> Iterator[None]:
    """A scope in which PyTorch unpickles tensors and plain containers only: other classes may run code."""
    forced, other = "TORCH_FORCE_WEIGHTS_ONLY_LOAD", "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD"
    before = {name: os.environ.pop(name, None) for name in (forced, other)}
    os.environ[forced] = "1"
    try:
        yield
    finally:
        del os.environ[forced]
        os.environ.update({name: value for name, value in before.items() if value is not None})


def read_program(path: Path) -> Any:
    """The `ExportedProgram` in a file. Raises `TorchFileError`."""
    try:
        torch = importlib.import_module("torch")
        importlib.import_module("torch.ao.quantization.fx._decomposed")  # registers the quantised operators
    except ImportError as error:
        raise TorchFileError(f"reading {path.name} needs PyTorch: pip install 'npu_memplan[torch]'") from error
    read_file(path)  # complaints about the file itself
    logger = logging.getLogger("torch.export")
    before = logger.level
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logger.setLevel(logging.CRITICAL)  # it prints every way that it tried
            with _only_weights():
                return torch.export.load(path)
    except Exception as error:  # zip, pickle, JSON and PyTorch's own
        raise_lack_of_memory(error)
        raise TorchFileError(f"{path.name} is no file of torch.export.save: {describe_error(error, 0)}") from error
    finally:
        logger.setLevel(before)
