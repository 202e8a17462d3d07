"""Networks of torchvision and transformers through torch.export: bytes, planning time and compile time, ours and TVM's.

    pip install '.[networks]'
    python -m benchmarks.relax_torch                      # all, as one Markdown table
    python -m benchmarks.relax_torch resnet18 --run       # also run planned on poisoned pools and compare bit for bit
    python -m benchmarks.relax_torch resnet18 --compile   # also compile both, verify, and compare CPU seconds
    python -m benchmarks.relax_torch --dynamic            # networks of any size, at five, beside plans for each

Batch 1, random weights (bytes do not depend on them), constants folded and operators fused by TVM's `zero` pipeline on
both sides. The caller's inputs and outputs are not counted. TVM: what StaticPlanBlockMemory allocates and what the
hungriest PrimFunc allocates inside. `FOUND` is what this package needed when it was first measured: a row's limit.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import relax

from benchmarks.relax import REQUEST, fused, hungriest, number, storages
from benchmarks.relax_networks import DYNAMIC, STATIC, Dynamic
from npu_memplan import planners
from npu_memplan.analysis import pressure_of
from npu_memplan.extract.build import build
from npu_memplan.extract.walk import walk
from npu_memplan.transform import PlanMemory, VerifyMemoryPlan, pool_sizes
from npu_memplan.transform.legalize import legalize
from tests.support.relax_results import build_for_host, results, used_bytes

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
    "yolo_like": 819_200,
    "diffusion_unet": 786_688,
    "mamba_like": 1_650_688,
    "t5_small": 790_528,
    "whisper_tiny_encoder": 60_912_256,
    "mobilevit_s": 4_194_304,
    "convnext_nano": 1_658_880,
    "efficientformer_l1": 5_419_008,
}
SIDES = {"inception_v3": 299, "ssdlite320_mobilenet_v3_large": 320, "unet": 256, "fcos_resnet50_fpn": 320}
"""Pixels of a picture's side, where it is not 224."""

TOKENS = 128


def network(name: str) -> tuple[Any, tuple[Any, ...]]:
    """A PyTorch module in evaluation mode, with random weights, and its inputs."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    if name in STATIC:
        module, inputs = STATIC[name]()
        return module.eval(), inputs
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
    return exported(*network(name))


def exported(module: Any, inputs: tuple[Any, ...], axes: Any = None) -> tuple[Any, list[Any]]:
    """The same of a PyTorch module; `axes` are dimensions of the inputs that are free, as `torch.export` takes them."""
    torch = importlib.import_module("torch")
    frontend = importlib.import_module("tvm.relax.frontend.torch")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module, inputs, dynamic_shapes=axes)
        found = frontend.from_exported_program(program)
    return fused(found), [x.numpy() for x in inputs]


def measured(name: str, run: bool, compiling: bool) -> dict[str, Any]:
    """One row."""
    return row_of(name, *imported(name), run, compiling)


def row_of(name: str, module: Any, inputs: list[Any], run: bool, compiling: bool) -> dict[str, Any]:
    """The row of an imported module."""
    seconds, planned = cpu(lambda: PlanMemory()(module))
    row: dict[str, Any] = {"network": name, **bytes_of(module), "planning, CPU s": f"{seconds:.2f}"}
    row["ours"] = used_bytes(planned)
    row["first"] = FOUND.get(name, row["ours"])
    if compiling or run:
        plain_s, plain = cpu(lambda: build_for_host(module))
        planned_s, _ = cpu(lambda: build_for_host(planned))
        verified_s, _ = cpu(lambda: VerifyMemoryPlan()(planned))
        row["compile, planned / unplanned"] = f"{planned_s / plain_s:.2f}"
        row["compile, verify, CPU s"] = f"{planned_s:.1f}, {verified_s:.1f}"
        if run:
            poisoned = build_for_host(PlanMemory(poison=0xA5)(module))
            row["equal on poisoned pools"] = results(plain, inputs) == results(poisoned, inputs)
    return row


def dynamic(name: str, run: bool) -> Iterator[dict[str, Any]]:
    """A row for each size of a network of any size: TVM's storages, a plan made for that size, and this one."""
    export = importlib.import_module("torch.export")
    network = DYNAMIC[name]
    source, inputs = network.make()
    dims = {name: export.Dim(name, min=least, max=most) for name, (least, most) in network.dimensions.items()}
    axes = tuple({axis: dims[symbol] for axis, symbol in given.items()} for given in network.axes)
    module, given = exported(source.eval(), inputs, axes)
    yield from rows_of_sizes(name, module, given, run)


def rows_of_sizes(name: str, module: Any, given: list[Any], run: bool) -> Iterator[dict[str, Any]]:
    """The rows of the imported module; `given` are inputs of any size, of which the types count."""
    network = DYNAMIC[name]
    legal = legalize(module)
    planned = PlanMemory()(legal)
    stock = storages(module)
    poisoned = build_for_host(PlanMemory(poison=0xA5)(module)) if run else None
    plain = build_for_host(module) if run else None
    for size in network.sizes:
        symbols = symbols_of(module, network, size)
        bound = legalize(relax.transform.BindSymbolicVars(symbols, "main")(module))
        problem, _ = build(walk(bound, "main"), REQUEST)
        best = planners.plan(problem).usage[0].used_bytes
        ours = pool_sizes(planned, symbols)["workspace"]
        row = {"network": name, "size": ", ".join(f"{k}={v}" for k, v in size.items())}
        row |= {"TVM's storages": sum(number(s, symbols) for s in stock), "live": pressure_of(problem).peak_bytes}
        row |= {"planned for this size": best, "ours": ours, "ours / planned": f"{ours / best:.3f}"}
        if run:
            arrays = [sized(x, axes, size) for x, axes in zip(given, network.axes, strict=True)]
            row["equal on poisoned pools"] = results(plain, arrays) == results(poisoned, arrays)
        yield row


def symbols_of(module: Any, network: Dynamic, size: dict[str, int]) -> dict[str, int]:
    """The values of the module's own shape symbols for a size."""
    found = {}
    for parameter, axes in zip(module["main"].params, network.axes, strict=False):
        found |= {parameter.ty.shape.values[axis].name: size[name] for axis, name in axes.items()}
    return found


def sized(array: Any, axes: dict[int, str], size: dict[str, int]) -> Any:
    """Random numbers of an input's type, with extents of a size."""
    extents = [size[axes[axis]] if axis in axes else extent for axis, extent in enumerate(array.shape)]
    return np.random.default_rng(0).standard_normal(extents).astype(array.dtype)


def bytes_of(module: Any) -> dict[str, Any]:
    """TVM's bytes, the most bytes live, and how many functions a plan has to make."""
    legal = legalize(module)
    problem, _ = build(walk(legal, "main"), REQUEST)
    theirs = sum(number(s, {}) for s in storages(module)) + hungriest(legal)
    return {"buffers": len(problem.buffers), "TVM": theirs, "live": pressure_of(problem).peak_bytes}


def cpu(work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds (children included) of some work, and what it gives."""
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", help="names of networks; all by default")
    parser.add_argument("--run", action="store_true", help="run planned and unplanned, and compare")
    parser.add_argument("--compile", action="store_true", help="compile planned and unplanned, and compare CPU seconds")
    parser.add_argument("--dynamic", action="store_true", help="networks of any size, at five sizes each")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in arguments.networks or (DYNAMIC if arguments.dynamic else {**FOUND, **STATIC}):
        one = measured(name, arguments.run, arguments.compile) if not arguments.dynamic else None
        for row in dynamic(name, arguments.run) if one is None else [one]:
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    print("| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for row in rows:
        cells = [f"{v:,}" if isinstance(v, int) and not isinstance(v, bool) else str(v) for v in map(row.get, columns)]
        print("| " + " | ".join(cells) + " |")
    if arguments.dynamic:
        assert all(float(row["ours / planned"]) <= 1.02 for row in rows)
    else:
        assert all(row["ours"] <= min(row["first"], row["TVM"]) for row in rows)


if __name__ == "__main__":
    main()
