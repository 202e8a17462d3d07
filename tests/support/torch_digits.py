"""PyTorch networks quantised by PT2E; the example network, trained."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.digits_network import EXAMPLE, LAYERS, Digits

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchao") is None,
    reason="needs PyTorch and torchao (pip install 'npu_memplan[torch]')",
)


def converted(net: Any, samples: Sequence[Any], per_channel: bool) -> Any:
    """A network after prepare_pt2e, calibration with `samples` and convert_pt2e."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=per_channel))
    prepared = prepare_pt2e(torch.export.export(net, (samples[0],)).module(), quantizer)
    for sample in samples:
        prepared(sample)
    return convert_pt2e(prepared)


def quantised_program(net: Any, samples: Sequence[Any], per_channel: bool) -> Any:
    """The exported program of `converted`."""
    import torch

    return torch.export.export(converted(net, samples, per_channel), (samples[0],))


def digits_net(network: Digits) -> tuple[Any, list[Any]]:
    """The example network with its trained weights, and images to calibrate it with."""
    import torch

    specification = importlib.util.spec_from_file_location("digits_model", EXAMPLE / "model.py")
    assert specification is not None
    assert specification.loader is not None
    source = importlib.util.module_from_spec(specification)
    sys.modules["digits_model"] = source
    specification.loader.exec_module(source)
    net = source.DigitsNet().eval()
    values = {f"{layer}.weight": network.weights(layer) for layer in LAYERS}
    values |= {f"{layer}.bias": network.bias(layer) for layer in LAYERS}
    net.load_state_dict({name: torch.from_numpy(v) for name, v in values.items()})
    return net, [torch.from_numpy(image[None]) for image in network.images[:16]]
