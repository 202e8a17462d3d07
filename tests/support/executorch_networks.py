"""PyTorch networks, quantised by PT2E, as `benchmarks.executorch_programs` exports them.

Invariant: random weights and calibration of a fixed seed, so a network is the same in every process.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn


class ThreeConvolutions(nn.Module):
    """Three convolutions, a sum, a mean and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1, stride=2)
        self.second = nn.Conv2d(16, 32, 3, padding=1, stride=2)
        self.third = nn.Conv2d(32, 32, 3, padding=1)
        self.dense = nn.Linear(32, 10)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.second(torch.relu(self.first(x))))
        return self.dense((x + torch.relu(self.third(x))).mean(dim=(2, 3)))


class DsCnn(nn.Module):
    """The keyword spotting network of depthwise separable convolutions."""

    def __init__(self, channels: int = 64) -> None:
        super().__init__()
        convolutions: list[nn.Module] = [nn.Conv2d(1, channels, (10, 4), (2, 2), (4, 1))]
        for _ in range(4):
            convolutions.append(nn.Conv2d(channels, channels, 3, padding=1, groups=channels))
            convolutions.append(nn.Conv2d(channels, channels, 1))
        layers = [layer for one in convolutions for layer in (one, nn.BatchNorm2d(channels), nn.ReLU())]
        self.layers, self.dense = nn.Sequential(*layers), nn.Linear(channels, 12)

    def forward(self, x: Any) -> Any:
        return self.dense(self.layers(x).mean((2, 3)))


def _twice(channels: int, made: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, made, 3, padding=1), nn.ReLU(), nn.Conv2d(made, made, 3, padding=1), nn.ReLU()
    )


class UNet(nn.Module):
    """Four steps down and up; `channels` at full size. ReLUs go into concatenations."""

    def __init__(self, channels: int = 16, steps: int = 4) -> None:
        super().__init__()
        wide = [channels << step for step in range(steps + 1)]
        self.down = nn.ModuleList(_twice(i, o) for i, o in zip([3, *wide], wide[:-1], strict=False))
        self.lowest = _twice(wide[-2], wide[-1])
        pairs = list(zip(wide[:0:-1], wide[-2::-1], strict=True))
        self.larger = nn.ModuleList(nn.ConvTranspose2d(i, o, 2, 2) for i, o in pairs)
        self.up = nn.ModuleList(_twice(i, o) for i, o in pairs)
        self.last = nn.Conv2d(channels, 1, 1)

    def forward(self, x: Any) -> Any:
        kept = []
        for step in self.down:
            x = step(x)
            kept.append(x)
            x = torch.nn.functional.max_pool2d(x, 2)
        x = self.lowest(x)
        for larger, step, map_ in zip(self.larger, self.up, kept[::-1], strict=True):
            x = step(torch.cat([larger(x), map_], 1))
        return self.last(x)


class Block(nn.Module):
    """Attention of a few heads over earlier tokens, then two dense layers."""

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (width // heads) ** -0.5
        self.before, self.behind = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.wide, self.thin = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.register_buffer("mask", torch.full((tokens, tokens), -8.0).triu(1))

    def forward(self, x: Any) -> Any:
        batch, tokens, width = x.shape
        normed = self.before(x)

        def split(y: Any) -> Any:
            return y.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)

        query, key, value = split(self.query(normed)), split(self.key(normed)), split(self.value(normed))
        weights = torch.softmax(torch.matmul(query, key.transpose(-2, -1)) * self.scale + self.mask, -1)
        mixed = torch.matmul(weights, value).transpose(1, 2).reshape(batch, tokens, width)
        x = x + self.out(mixed)
        return x + self.thin(torch.relu(self.wide(self.behind(x))))


class Transformer(nn.Module):
    """Blocks over 32 embedded tokens; between them an operator that Arm's partitioner leaves to the host."""

    def __init__(self, width: int = 64, heads: int = 4, tokens: int = 32, words: int = 200) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Parameter(torch.randn(tokens, width))
        self.first, self.second = Block(width, heads, tokens), Block(width, heads, tokens)
        self.norm, self.dense = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, tokens: Any) -> Any:
        x = self.first(self.words(tokens) + self.places)
        x = torch.trunc(x * 64) * (1 / 64)
        return self.dense(self.norm(self.second(x)))


def torchvision_models() -> Any:
    """torchvision.models, also of PyPI's build with CUDA beside a PyTorch without: its operators are not needed."""
    sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("_meta_registrations"))
    import torchvision.models

    return torchvision.models


def _mobilenet_v2() -> nn.Module:
    network: nn.Module = torchvision_models().mobilenet_v2(weights=None)
    with torch.no_grad():  # else the batch norms are those of no data at all
        for _ in range(2):
            network.train()(torch.randn(2, 3, 224, 224))
    return network


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "three convolutions": (ThreeConvolutions, (1, 3, 64, 64)),
    "DS-CNN": (DsCnn, (1, 1, 49, 10)),
    "mobilenet_v2": (_mobilenet_v2, (1, 3, 224, 224)),
    "U-Net": (UNet, (1, 3, 128, 128)),
    "transformer": (Transformer, (1, 32)),
}


def network(name: str) -> tuple[nn.Module, list[tuple[Any, ...]]]:
    """A network of `NETWORKS`, ready for export, and inputs: the first is the example, all are for calibration."""
    torch.manual_seed(3)
    make, shape = NETWORKS[name]
    made = make().eval()
    if len(shape) == 2:
        return made, [(torch.randint(0, 200, shape),) for _ in range(4)]
    given = [(torch.randn(*shape),) for _ in range(2)]
    if shape[1] > 1:  # as NHWC, without transposes at both ends
        made = made.to(memory_format=torch.channels_last)
        given = [(x.to(memory_format=torch.channels_last),) for (x,) in given]
    return made, given


def quantise(module: nn.Module, given: Sequence[tuple[Any, ...]], spec: Any) -> Any:
    """PT2E's model: what every form of a program is compared with."""
    from executorch.backends.arm.quantizer import EthosUQuantizer, get_symmetric_quantization_config
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    quantizer = EthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(module, given[0]).module(check_guards=False), quantizer)
    with torch.no_grad():
        for one in given:
            prepared(*one)
    return convert_pt2e(prepared)
