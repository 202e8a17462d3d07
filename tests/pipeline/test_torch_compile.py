"""PyTorch programs on the command line; small networks, quantised by PT2E, wholly on the NPU."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fvp_runner import runner
from npu_memplan.artifact import Artifact
from npu_memplan.compiler import compile_model
from npu_memplan.frontend.attributes import HostOpsError
from npu_memplan.frontend.load import FormatError
from npu_memplan.models.frameworks import TorchFileError, read_program
from npu_memplan.options import CompileOptions
from npu_memplan.problem import Agent
from tests.support.digits_network import digits
from tests.support.inputs import load_inputs
from tests.support.torch_digits import digits_net, needs_torch, quantised_program

TVM = CompileOptions(npu_compiler="tvm", objective="bytes")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained example network, quantised per channel, in a file."""
    import torch

    path = tmp_path_factory.mktemp("torch") / "digits.pt2"
    torch.export.save(quantised_program(*digits_net(digits()), per_channel=True), path)
    return path


def test_without_pytorch_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.pt2"
    path.write_bytes(b"")
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(TorchFileError, match=r"^reading m.pt2 needs PyTorch: pip install 'npu_memplan\[torch\]'$"):
        compile_model(path, TVM, tmp_path / "out")
    with pytest.raises(FormatError, match=r"m.pt2 is a PyTorch program, and Vela reads TFLite only; add --npu-comp"):
        compile_model(path, CompileOptions(npu_compiler="vela", objective="bytes"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@needs_torch
def test_a_program_runs_on_npu_and_host(program: Path, tmp_path: Path, cli: Callable[..., Any]) -> None:
    cli.ok("compile", "--objective", "bytes", program, "--npu-compiler", "tvm", "-o", tmp_path / "out", "--json")
    artifact = Artifact.load(tmp_path / "out")
    host = [(o.name, o.kind) for o in artifact.operators if o.agent is Agent.HOST]
    assert [kind for _, kind in host] == ["quantize_per_tensor", "dequantize_per_tensor", "_softmax"]
    assert {"convolution", "relu", "add", "avg_pool2d", "addmm"} <= {o.kind for o in artifact.operators}
    ran = cli("run", tmp_path / "out", "--on", "local", "--reference", program, "--json")
    assert ran.json["reference"] == "PyTorch, running the exported program"
    assert ran.json["outputs"][0]["max_abs_diff"] < 0.05  # a step of one logit, behind a softmax


@needs_torch
def test_the_host_alone_computes_what_pytorch_computes(program: Path, tmp_path: Path) -> None:
    from fvp_runner import runner
    from fvp_runner.references.base import ReferenceRunError
    from fvp_runner.references.other_formats import TorchReference

    compile_model(program, CompileOptions(accelerator="none"), tmp_path / "out")
    created, reference = runner.create("local", tmp_path / "out"), TorchReference(program)
    inputs = load_inputs(created.artifact, ["random:1"])
    np.testing.assert_allclose(created.run(inputs).outputs[0], reference.run(inputs)[0], atol=1e-5)
    with pytest.raises(
        ReferenceRunError, match=r"input x of digits.pt2 must be float32\[1, 1, 16, 16\], but is float64"
    ):
        reference.run([np.zeros((1, 1, 16, 16))])


@needs_torch
def test_host_ops_are_operators_of_the_program(program: Path, tmp_path: Path) -> None:
    artifact = compile_model(
        program, CompileOptions(npu_compiler="tvm", host_ops=("ADD",), objective="bytes"), tmp_path / "out"
    )
    (add,) = (o for o in artifact.operators if o.kind == "add")
    assert (add.agent, add.reason) == (Agent.HOST, "kept on the CPU by --host-ops")
    with pytest.raises(HostOpsError, match=r"'CONV'.*it has: _softmax, add, addmm, avg_pool2d, constant_pad_nd, conv"):
        compile_model(
            program, CompileOptions(npu_compiler="tvm", host_ops=("CONV",), objective="bytes"), tmp_path / "other"
        )


@needs_torch
def test_damaged_files_get_one_line(tmp_path: Path) -> None:
    (tmp_path / "m.pt2").write_bytes(b"nothing of the kind")
    with pytest.raises(TorchFileError, match=r"^m.pt2 is no file of torch.export.save: [^\n]*$"):
        read_program(tmp_path / "m.pt2")


class _Pickled:
    """What runs code where it is unpickled."""

    def __init__(self, made: Path) -> None:
        self._made = made

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self._made,)


@needs_torch
def test_no_code_of_a_file_is_run(program: Path, tmp_path: Path) -> None:
    """PyTorch's reader would unpickle any class for the inputs that a program was exported with."""
    import torch

    pickled, odd = io.BytesIO(), tmp_path / "odd.pt2"
    torch.save((_Pickled(tmp_path / "made"),), pickled)
    with zipfile.ZipFile(program) as sound, zipfile.ZipFile(odd, "w") as changed:
        for entry in sound.infolist():
            is_inputs = "sample_inputs" in entry.filename
            changed.writestr(entry.filename, pickled.getvalue() if is_inputs else sound.read(entry))
    with pytest.raises(TorchFileError, match=r"odd\.pt2 is no file of torch\.export\.save"):
        read_program(odd)
    assert not (tmp_path / "made").exists()
    assert read_program(program)


def network(middle: Callable[[Any, Any], Any], channels: int) -> Any:
    """Two convolutions around `middle`, a function of torch and of 8 channels."""
    import torch

    class Network(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
            self.last = torch.nn.Conv2d(channels, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            return self.last(middle(torch, self.first(x)))

    torch.manual_seed(0)
    return Network().eval()


@needs_torch
@pytest.mark.parametrize(
    "middle, channels",
    [
        (lambda torch, x: torch.nn.functional.max_pool2d(torch.relu(x), 2), 8),
        (lambda torch, x: torch.nn.functional.hardswish(x), 8),
        (lambda torch, x: torch.nn.functional.relu6(x), 8),
        (lambda torch, x: torch.cat([torch.relu(x), torch.relu(x + x)], 1), 16),
        (lambda torch, x: torch.nn.functional.interpolate(torch.relu(x), scale_factor=2, mode="nearest"), 8),
        (lambda torch, x: torch.relu(x) * torch.relu(x).mean((2, 3), keepdim=True), 8),
    ],
    ids=["max_pool", "hardswish", "relu6", "cat", "interpolate", "mul"],
)
def test_on_the_npu_within_one_step(middle: Callable[[Any, Any], Any], channels: int, tmp_path: Path) -> None:
    import torch

    from fvp_runner.references.other_formats import TorchReference

    samples = [torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(i)) for i in range(8)]
    program = quantised_program(network(middle, channels), samples, per_channel=True)
    torch.export.save(program, tmp_path / "m.pt2")
    artifact = compile_model(
        tmp_path / "m.pt2", CompileOptions(npu_compiler="tvm", objective="bytes"), tmp_path / "out"
    )
    assert [call.agent for call in artifact.calls] == [Agent.HOST, Agent.NPU, Agent.HOST]
    npu = runner.create("local", tmp_path / "out")
    inputs = load_inputs(npu.artifact, ["random:1"])
    (wanted,) = TorchReference(tmp_path / "m.pt2").run(inputs)
    (step,) = [n.args[1] for n in program.graph.nodes if "quantize_per_tensor" in str(n.target)][-1:]
    assert np.abs(npu.run(inputs).outputs[0] - wanted).max() <= 1.001 * step
