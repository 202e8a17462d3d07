"""Models of users, imported by TVM's frontends: TFLite, ONNX, PyTorch."""

from __future__ import annotations

from typing import Any

from tests.support.real_data import real_model
from tests.support.zoo.entries import ZOO, Entry, entry, for_parameters, random


def _tflite(name: str) -> Entry | None:
    path = real_model(name)
    if not path.is_file():
        return None
    import tflite
    from tvm.relax.frontend.tflite import from_tflite

    module = from_tflite(tflite.Model.GetRootAsModel(path.read_bytes(), 0))
    return Entry(module, for_parameters(module, 1), slow=name not in ("hello_world_int8", "ad01_int8"))


for _name in (
    "hello_world_int8",
    "ad01_int8",
    "kws_ref_model",
    "str_ww_ref_model",
    "pretrainedResnet_quant",
    "vww_96_int8",
):
    ZOO[_name] = lambda name=_name: _tflite(name)  # type: ignore[misc]


@entry
def onnx_cnn() -> Entry | None:
    try:
        import onnx
    except ImportError:
        return None
    from onnx import TensorProto, helper, numpy_helper
    from tvm.relax.frontend.onnx import from_onnx

    weights = {"w0": random((8, 3, 3, 3), seed=3), "w1": random((8, 8, 3, 3), seed=4), "w2": random((8, 10), seed=5)}
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Conv", ["b", "w1"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"]),
        helper.make_node("GlobalAveragePool", ["d"], ["e"]),
        helper.make_node("Flatten", ["e"], ["f"]),
        helper.make_node("MatMul", ["f", "w2"], ["g"]),
        helper.make_node("Softmax", ["g"], ["y"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "cnn",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    onnx.checker.check_model(model)
    module = from_onnx(model)
    return Entry(module, for_parameters(module))


@entry
def torch_exported() -> Entry | None:
    try:
        import torch
    except ImportError:
        return None
    from tvm.relax.frontend.torch import from_exported_program

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.second = torch.nn.Conv2d(8, 8, 3, padding=1)
            self.last = torch.nn.Linear(8, 10)

        def forward(self, x: Any) -> Any:
            a = torch.relu(self.first(x))
            b = a + torch.relu(self.second(a))
            return torch.softmax(self.last(b.mean(dim=(2, 3))), dim=1)

    torch.manual_seed(0)
    x = random((1, 3, 16, 16))
    module = from_exported_program(torch.export.export(Model().eval(), (torch.from_numpy(x),)))
    return Entry(module, [[x]])
