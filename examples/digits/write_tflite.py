"""Write the quantised example network as a TFLite flatbuffer."""

from __future__ import annotations

import flatbuffers
import numpy as np
from numpy.typing import NDArray
from quantise import Activation, Quantised
from tflite_micro.tensorflow.lite.micro.python import schema_py_generated as schema


class Writer:
    """Collects tensors, buffers and operators of one subgraph."""

    def __init__(self) -> None:
        self.model = schema.ModelT()
        self.graph = schema.SubGraphT()
        self.graph.tensors, self.graph.operators = [], []
        self.model.version, self.model.description = 3, "npu_memplan example: digits"
        self.model.subgraphs = [self.graph]
        self.model.buffers = [schema.BufferT()]
        self.model.operatorCodes = []
        self.codes: list[int] = []

    def constant(
        self, name: str, data: NDArray[np.generic], kind: int, scales: NDArray[np.float32] | None, axis: int = 0
    ) -> int:
        """Add a constant tensor; its scales are per channel along `axis`."""
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(data.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        index = self._tensor(name, data.shape, kind, len(self.model.buffers) - 1)
        if scales is not None:
            q = self._quantisation(index, list(map(float, scales)), [0] * len(scales))
            q.quantizedDimension = axis
        return index

    def activation(self, name: str, tensor: Activation, shape: tuple[int, ...] | None = None) -> int:
        """Add an int8 activation."""
        index = self._tensor(name, shape or tensor.shape, schema.TensorType.INT8, 0)
        self._quantisation(index, [tensor.scale], [tensor.zero_point])
        return index

    def operator(self, builtin: int, inputs: list[int], output: int, option_type: int, options: object) -> int:
        """Add an operator; returns its output tensor."""
        if builtin not in self.codes:
            self.codes.append(builtin)
            code = schema.OperatorCodeT()
            code.deprecatedBuiltinCode = code.builtinCode = builtin
            code.version = 3 if builtin == schema.BuiltinOperator.CONV_2D else 1
            self.model.operatorCodes.append(code)
        op = schema.OperatorT()
        op.opcodeIndex = self.codes.index(builtin)
        op.inputs, op.outputs = inputs, [output]
        op.builtinOptionsType, op.builtinOptions = option_type, options
        self.graph.operators.append(op)
        return output

    def finish(self, inputs: list[int], outputs: list[int]) -> bytes:
        """The flatbuffer."""
        self.graph.inputs, self.graph.outputs = inputs, outputs
        builder = flatbuffers.Builder(1 << 16)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, buffer: int) -> int:
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), kind, buffer
        self.graph.tensors.append(tensor)
        return len(self.graph.tensors) - 1

    def _quantisation(self, index: int, scales: list[float], zero_points: list[int]) -> schema.QuantizationParametersT:
        q = schema.QuantizationParametersT()
        q.scale, q.zeroPoint = scales, zero_points
        self.graph.tensors[index].quantization = q
        return q


def write_tflite(network: Quantised) -> bytes:
    """The example network as bytes of a .tflite file."""
    w = Writer()
    s = schema
    int8, int32 = s.TensorType.INT8, s.TensorType.INT32
    relu, none = s.ActivationFunctionType.RELU, s.ActivationFunctionType.NONE
    image = w.activation("image", network.tensors["image"])

    def layer(
        name: str, source: int, source_scale: float, stride: int = 1, activation: int = relu, output: str = ""
    ) -> int:
        weights = network.weights[name]
        depthwise, dense = name == "depthwise", name == "classes"
        scales = weights.scales[:1] if dense else weights.scales
        kernel = w.constant(f"{name}/weights", weights.data, int8, scales, 3 if depthwise else 0)
        bias = w.constant(
            f"{name}/bias", weights.bias, int32, (scales.astype(np.float64) * source_scale).astype(np.float32)
        )
        out = w.activation(output or name, network.tensors[output or name])
        if dense:
            options: object = s.FullyConnectedOptionsT()
            return w.operator(
                s.BuiltinOperator.FULLY_CONNECTED,
                [source, kernel, bias],
                out,
                s.BuiltinOptions.FullyConnectedOptions,
                options,
            )
        convolution = s.DepthwiseConv2DOptionsT() if depthwise else s.Conv2DOptionsT()
        convolution.padding = s.Padding.SAME
        convolution.strideW = convolution.strideH = stride
        convolution.dilationWFactor = convolution.dilationHFactor = 1
        convolution.fusedActivationFunction = activation
        if depthwise:
            convolution.depthMultiplier = 1
            return w.operator(
                s.BuiltinOperator.DEPTHWISE_CONV_2D,
                [source, kernel, bias],
                out,
                s.BuiltinOptions.DepthwiseConv2DOptions,
                convolution,
            )
        return w.operator(
            s.BuiltinOperator.CONV_2D, [source, kernel, bias], out, s.BuiltinOptions.Conv2DOptions, convolution
        )

    scale = {name: t.scale for name, t in network.tensors.items()}
    stem = layer("stem", image, scale["image"])
    down = layer("down", stem, scale["stem"], stride=2)
    left = layer("left", down, scale["down"])
    right = layer("right", left, scale["left"], activation=none)
    add = s.AddOptionsT()
    add.fusedActivationFunction = relu
    residual = w.operator(
        s.BuiltinOperator.ADD,
        [right, down],
        w.activation("residual", network.tensors["residual"]),
        s.BuiltinOptions.AddOptions,
        add,
    )
    depthwise = layer("depthwise", residual, scale["residual"])
    pointwise = layer("pointwise", depthwise, scale["depthwise"])
    pool = s.Pool2DOptionsT()
    pool.padding, pool.filterWidth, pool.filterHeight, pool.strideW, pool.strideH = s.Padding.VALID, 8, 8, 1, 1
    # TFLite's average pool keeps the scale of its input.
    pooled_quantisation = Activation(
        (1, 1, 1, 32), network.tensors["pointwise"].scale, network.tensors["pointwise"].zero_point
    )
    pooled = w.operator(
        s.BuiltinOperator.AVERAGE_POOL_2D,
        [pointwise],
        w.activation("pooled", pooled_quantisation),
        s.BuiltinOptions.Pool2DOptions,
        pool,
    )
    shape = w.constant("flat/shape", np.array([1, 32], np.int32), int32, None)
    reshape = s.ReshapeOptionsT()
    reshape.newShape = [1, 32]
    flat = w.operator(
        s.BuiltinOperator.RESHAPE,
        [pooled, shape],
        w.activation("flat", pooled_quantisation, (1, 32)),
        s.BuiltinOptions.ReshapeOptions,
        reshape,
    )
    logits = layer("classes", flat, pooled_quantisation.scale, output="logits")
    softmax = s.SoftmaxOptionsT()
    softmax.beta = 1.0
    out = w.operator(
        s.BuiltinOperator.SOFTMAX,
        [logits],
        w.activation("probabilities", network.tensors["probabilities"]),
        s.BuiltinOptions.SoftmaxOptions,
        softmax,
    )
    return w.finish([image], [out])
