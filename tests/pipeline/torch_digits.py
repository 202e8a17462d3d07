"""The example network, trained, as a PT2E-quantised PyTorch program."""

from __future__ import annotations

import importlib.util
import sys
from typing import Any

import pytest
from digits_network import EXAMPLE, LAYERS, Digits

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None or importlib.util.find_spec("torchao") is None,
    reason="needs PyTorch and torchao (pip install 'npu_memplan[torch]')",
)


def converted(network: Digits, per_channel: bool) -> Any:
    """After prepare_pt2e, calibration and convert_pt2e."""
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
    from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config

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
    quantizer = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=per_channel))
    prepared = prepare_pt2e(torch.export.export(net, (torch.from_numpy(network.images[:1]),)).module(), quantizer)
    for image in network.images[:16]:
        prepared(torch.from_numpy(image[None]))
    return convert_pt2e(prepared)


def exported(module: Any, network: Digits) -> Any:
    """The program of a converted module."""
    import torch

    return torch.export.export(module, (torch.from_numpy(network.images[:1]),))
