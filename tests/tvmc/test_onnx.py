"""`tvmc compile` of an ONNX model: the same tree and interface, and the result that ONNX's reference has."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs the package onnx (pip install npu_memplan[onnx])")
from onnx.reference import ReferenceEvaluator  # noqa: E402

from npu_memplan.tvmc.compile import compile_to_mlf  # noqa: E402
from npu_memplan.tvmc.options import parse_compile  # noqa: E402
from tests.support.digits_network import digits  # noqa: E402
from tests.support.digits_onnx import exported  # noqa: E402
from tests.support.mlf_host import Application, address, aligned, metadata_main  # noqa: E402


@pytest.mark.parametrize("target", ["ethos-u,c", "c"])
def test_an_onnx_model_computes_what_onnx_computes(target: str, tmp_path: Path) -> None:
    network = digits()
    model = exported(network, tmp_path / "digits.onnx")
    made = compile_to_mlf(parse_compile([f"--target={target}", "--model-format=onnx", str(model)]))
    main = metadata_main(made)
    assert main["inputs"] == {"image": {"dtype": "float32", "size": 1024}}
    assert main["outputs"] == {"out": {"dtype": "float32", "size": 40}}
    application = Application([made], tmp_path)
    image, logits, device = aligned(1024), aligned(40), aligned(16)
    image[:] = np.frombuffer(network.images[0].tobytes(), np.uint8)
    structs = [[address(image)], [address(logits)], *([[address(device)]] if "ethos-u" in target else [])]
    assert application.run("default", *structs) == 0
    assert len(application.launches) == ("ethos-u" in target)
    (wanted,) = ReferenceEvaluator(onnx.load(model)).run(None, {"image": network.images[:1]})
    step = network.tensors["logits"].scale
    assert np.abs(logits.view(np.float32) - wanted.reshape(-1)).max() <= 1.001 * step
