"""Bytes of float models as ExecuTorch plans them, and as `memory_planning` does; both programs run.

    python -m benchmarks.executorch_planning [MODEL ...]

A row a model: bytes of greedy's plan, without and with elementwise operators in place, the least possible of each,
CPU seconds of the planner, and whether outputs are those of greedy's program bit for bit, in ExecuTorch's own runtime.
Exit code 1: a plan is above its bound or greedy's, takes two seconds or more, or gives other outputs.

Needs the extra `executorch` in an environment of its own, pillow, and torchvision (`pip install --no-deps
torchvision==0.28.*` with PyTorch's CPU build).
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from npu_memplan.executorch import ExecutorchPlanner, memory_planning
from tests.support.executorch_networks import DsCnn, Transformer, UNet, torchvision_models

_SECONDS = 2.0


class Lstm(nn.Module):
    """Two layers over 20 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.dense = nn.LSTM(16, 32, 2, batch_first=True), nn.Linear(32, 5)

    def forward(self, x: Any) -> Any:
        return self.dense(self.inner(x)[0][:, -1])


class Segments(nn.Module):
    """The map of a segmentation network."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return self.inner(x)["out"]


def _image(name: str, size: int = 224, **options: Any) -> Callable[[], tuple[nn.Module, Any]]:
    return lambda: (getattr(torchvision_models(), name)(weights=None, **options), torch.randn(1, 3, size, size))


def _segments(name: str) -> Callable[[], tuple[nn.Module, Any]]:
    def make() -> tuple[nn.Module, Any]:
        network = getattr(torchvision_models().segmentation, name)(weights=None, weights_backbone=None)
        return Segments(network), torch.randn(1, 3, 224, 224)

    return make


_GOOGLE = {"aux_logits": False, "init_weights": False}
MODELS: dict[str, Callable[[], tuple[nn.Module, Any]]] = {
    "dscnn": lambda: (DsCnn(), torch.randn(1, 1, 49, 10)),
    "unet": lambda: (UNet(), torch.randn(1, 3, 128, 128)),
    "transformer": lambda: (Transformer(), torch.randint(0, 200, (1, 32))),
    "lstm": lambda: (Lstm(), torch.randn(1, 20, 16)),
    **{name: _image(name) for name in (
        "mobilenet_v2", "mobilenet_v3_small", "resnet18", "squeezenet1_1", "shufflenet_v2_x1_0", "mnasnet1_0",
        "efficientnet_b0", "densenet121", "regnet_y_400mf", "vit_b_16", "swin_t", "convnext_tiny",
    )},
    "googlenet": _image("googlenet", **_GOOGLE),
    "inception_v3": _image("inception_v3", 299, **_GOOGLE),
    "lraspp_mv3": _segments("lraspp_mobilenet_v3_large"),
    "deeplab_mv3": _segments("deeplabv3_mobilenet_v3_large"),
}  # fmt: skip


def main() -> None:
    wrong = 0
    print(
        f"{'model':20} {'greedy':>11} {'apart':>11} {'bound':>11} {'in place':>11} {'bound':>11} {'CPU s':>6}  outputs"
    )
    for name in sys.argv[1:] or MODELS:
        torch.manual_seed(0)
        module, example = MODELS[name]()
        wrong += not _row(name, module.eval(), example)
    sys.exit(wrong > 0)


def _row(name: str, module: nn.Module, example: Any) -> bool:
    """Print a row; whether all is as it has to be."""
    from executorch.exir import EdgeCompileConfig, to_edge

    with torch.no_grad():
        exported = torch.export.export(module, (example,))
    edge = to_edge(exported, compile_config=EdgeCompileConfig(_check_ir_validity=False))
    greedy = _emitted(edge, None)
    figures: list[str] = []
    good, most, equal = True, 0.0, True
    for in_place in (False, True):
        planner, spent = memory_planning(in_place=in_place), [0.0]
        data = _emitted(edge, _timed(planner, spent))
        report = planner.reports[-1]
        if not figures:
            figures.append(f"{report.greedy_bytes:>11,}")
        figures += [f"{report.planned_bytes:>11,}", f"{report.bound_bytes:>11,}"]
        good &= report.planned_bytes <= min(report.greedy_bytes, report.bound_bytes)
        most = max(most, spent[0])
        equal &= all(torch.equal(a, b) for a, b in zip(_run(greedy, example), _run(data, example), strict=True))
    print(f"{name:20} {' '.join(figures)} {most:>6.2f}  {'equal' if equal else 'OTHERS'}", flush=True)
    return good and equal and most < _SECONDS


def _timed(planner: ExecutorchPlanner, spent: list[float]) -> Callable[..., list[int]]:
    """`planner`, whose CPU seconds are added to `spent`."""

    def plan(*given: Any, **named: Any) -> list[int]:
        start = time.process_time()
        sizes = planner(*given, **named)
        spent[0] += time.process_time() - start
        return sizes

    return plan


def _emitted(edge: Any, algorithm: Any) -> bytes:
    from executorch.exir import ExecutorchBackendConfig
    from executorch.exir.passes import MemoryPlanningPass

    planning = MemoryPlanningPass() if algorithm is None else MemoryPlanningPass(memory_planning_algo=algorithm)
    return bytes(copy.deepcopy(edge).to_executorch(ExecutorchBackendConfig(memory_planning_pass=planning)).buffer)


def _run(data: bytes, example: Any) -> list[Any]:
    from executorch.runtime import Runtime

    return [output.clone() for output in Runtime.get().load_program(data).load_method("forward").execute([example])]


if __name__ == "__main__":
    main()
