"""Networks of torchvision and transformers through torch.export: bytes, planning time and compile time, ours and TVM's.

    pip install '.[networks]'
    python -m benchmarks.relax_torch                      # all, as one Markdown table
    python -m benchmarks.relax_torch resnet18 --run       # also run planned on poisoned pools and compare bit for bit
    python -m benchmarks.relax_torch resnet18 --compile   # also compile both, and compare CPU seconds

Batch 1, random weights (bytes do not depend on them), constants folded and operators fused by TVM's `zero` pipeline on
both sides. The caller's inputs and outputs are not counted. TVM: what StaticPlanBlockMemory allocates and what the
hungriest PrimFunc allocates inside. `FOUND` is what this package needed when it was first measured: each row's limit.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from benchmarks.relax import ASKED, fused, hungriest, number, storages
from npu_memplan.analysis import pressure_of
from npu_memplan.extract.build import build
from npu_memplan.extract.relax.walk import walk
from npu_memplan.transform import PlanMemory, pipeline
from npu_memplan.transform.legalize import legalize

FOUND = {
    "resnet18": 3_846_064,
    "resnet50": 8_015_632,
    "mobilenet_v3_large": 4_014_080,
    "densenet121": 7_212_816,
    "inception_v3": 8_287_200,
    "vit_b_16": 5_446_656,
    "swin_t": 10_838_016,
    "convnext_tiny": 10_838_016,
    "bert_base": 3_538_944,
    "unet": 16_588_944,
    "ssdlite320_mobilenet_v3_large": 8_192_000,
    "fcos_resnet50_fpn": 16_358_416,
}
SIDES = {"inception_v3": 299, "ssdlite320_mobilenet_v3_large": 320, "unet": 256, "fcos_resnet50_fpn": 320}
"""Pixels of a picture's side, where it is not 224."""

TOKENS = 128


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A PyTorch module in evaluation mode, with random weights, and its inputs."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    if name == "bert_base":
        transformers = importlib.import_module("transformers")
        config = transformers.BertConfig(attn_implementation="eager")
        return _bert(torch, transformers.BertModel(config)).eval(), (torch.randint(0, config.vocab_size, (1, TOKENS)),)
    side = SIDES.get(name, 224)
    picture = torch.randn(1, 3, side, side)
    if name == "unet":
        return _unet(torch).eval(), (picture,)
    models = importlib.import_module("torchvision.models")
    if hasattr(models.detection, name):
        whole = getattr(models.detection, name)(weights=None, weights_backbone=None)
        return _heads(torch, whole).eval(), (picture,)
    return getattr(models, name)(weights=None).eval(), (picture,)


def _bert(torch: Any, inner: Any) -> Any:
    class Bert(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, tokens: Any) -> Any:
            return self.inner(input_ids=tokens).last_hidden_state

    return Bert()


def _heads(torch: Any, whole: Any) -> Any:
    """A detector without what depends on its results' number: backbone and heads."""

    class Detector(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.backbone, self.head = whole.backbone, whole.head

        def forward(self, picture: Any) -> Any:
            return tuple(self.head(list(self.backbone(picture).values())).values())

    return Detector()


def _unet(torch: Any) -> Any:
    """The usual U-Net: four levels, two 3x3 convolutions each, skips by concatenation."""
    nn = torch.nn

    def twice(given: int, made: int) -> Any:
        layers: list[Any] = []
        for channels in (given, made):
            layers += [nn.Conv2d(channels, made, 3, padding=1), nn.BatchNorm2d(made), nn.ReLU()]
        return nn.Sequential(*layers)

    class Unet(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, first: int = 16, levels: int = 4) -> None:
            super().__init__()
            widths = [first << k for k in range(levels + 1)]
            self.down = nn.ModuleList(twice(a, b) for a, b in zip([3, *widths], widths, strict=False))
            pairs = list(zip(widths[1:], widths, strict=False))[::-1]
            self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, stride=2) for a, b in pairs)
            self.join = nn.ModuleList(twice(2 * b, b) for _, b in pairs)
            self.last = nn.Conv2d(first, 1, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for level in self.down[:-1]:
                x = level(x)
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.down[-1](x)
            for up, join in zip(self.up, self.join, strict=True):
                x = join(torch.cat([kept.pop(), up(x)], dim=1))
            return self.last(x)

    return Unet()


def imported(name: str) -> tuple[Any, list[Any]]:
    """The fused Relax module of a network, and its inputs as arrays."""
    torch = importlib.import_module("torch")
    frontend = importlib.import_module("tvm.relax.frontend.torch")
    module, inputs = network(name)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, inputs)
        found = frontend.from_exported_program(program)
    return fused(found), [x.numpy() for x in inputs]


def measured(name: str, run: bool, compiling: bool) -> dict[str, Any]:
    """One row."""
    module, inputs = imported(name)
    seconds, planned = cpu(lambda: PlanMemory()(module))
    row: dict[str, Any] = {"network": name, **bytes_of(module), "planning, CPU s": f"{seconds:.2f}"}
    row["ours"] = int(planned["main"].attrs["npu.pools"][0][1]) if "main" in planned else 0
    row["first"] = FOUND[name]
    if compiling or run:
        plain_s, plain = cpu(lambda: build_for_host(module))
        planned_s, own = cpu(lambda: build_for_host(planned))
        row["compile, planned / unplanned"] = f"{planned_s / plain_s:.2f}"
        if run:
            row["equal on poisoned pools"] = equal(plain, build_for_host(PlanMemory(poison=0xA5)(module)), inputs)
        del own
    return row


def bytes_of(module: Any) -> dict[str, Any]:
    """TVM's bytes, the most bytes live, and how many functions a plan has to make."""
    legal = legalize(module)
    problem, _ = build(walk(legal, "main"), ASKED)
    theirs = sum(number(s, {}) for s in storages(module)) + hungriest(legal)
    return {"buffers": len(problem.buffers), "TVM": theirs, "live": pressure_of(problem).peak_bytes}


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds (children included) of some work, and what it gives."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def build_for_host(module: Any) -> Any:
    """An executable through the pipeline that never plans memory itself."""
    return tvm.compile(module, target="llvm", relax_pipeline=pipeline(plan=False))


def equal(plain: Any, planned: Any, inputs: list[Any]) -> bool:
    """Whether two executables compute the same, bit for bit."""
    found = []
    for executable in (plain, planned):
        vm = tvm.relax.VirtualMachine(executable, tvm.cpu())
        stack, arrays = [vm["main"](*[tvm.runtime.tensor(np.ascontiguousarray(x)) for x in inputs])], []
        while stack:
            value = stack.pop()
            if hasattr(value, "numpy"):
                arrays.append(value.numpy().tobytes())
            else:
                stack.extend(value)
        found.append(arrays)
    return found[0] == found[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="names of networks; all by default")
    parser.add_argument("--run", action="store_true", help="run planned and unplanned, and compare")
    parser.add_argument("--compile", action="store_true", help="compile planned and unplanned, and compare CPU seconds")
    arguments = parser.parse_args()
    rows = []
    for name in arguments.networks or FOUND:
        rows.append(measured(name, arguments.run, arguments.compile))
        print(rows[-1], file=sys.stderr, flush=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else str(v) for v in map(row.get, columns)]
        print("| " + " | ".join(cells) + " |")
    assert all(row["ours"] <= min(row["first"], row["TVM"]) for row in rows)


if __name__ == "__main__":
    main()
