"""PyTorch networks of other kinds than torchvision's: detection, diffusion, state space, speech, text, hybrids.

Invariant: weights are random from one seed, and each network is in evaluation mode, so a row of a benchmark is the
same on every machine. `STATIC` have one size; `DYNAMIC` have named dimensions with bounds, and five sizes to try.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Dynamic:
    """A network of any size: how to make it with inputs, which dimension each axis of an input is, sizes to try.

    `dimensions` are the least and the greatest extent of each.
    """

    make: Callable[[], tuple[Any, tuple[Any, ...]]]
    axes: tuple[dict[int, str], ...]
    dimensions: dict[str, tuple[int, int]]
    sizes: tuple[dict[str, int], ...]


def _torch() -> Any:
    return importlib.import_module("torch")


def yolo() -> tuple[Any, tuple[Any, ...]]:
    """The shape of YOLOv8n: CSP stages, pooling pyramid, upsampling and downsampling neck, three heads; 160 pixels."""
    torch = _torch()
    nn = torch.nn

    def conv(given: int, made: int, kernel: int = 1, stride: int = 1) -> Any:
        layer = nn.Conv2d(given, made, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(made), nn.SiLU())

    class Stage(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, given: int, made: int, depth: int = 1, add: bool = True) -> None:
            super().__init__()
            half, self.add = made // 2, add
            self.first, self.last = conv(given, made), conv((2 + depth) * half, made)
            self.inner = nn.ModuleList(nn.Sequential(conv(half, half, 3), conv(half, half, 3)) for _ in range(depth))

        def forward(self, x: Any) -> Any:
            parts = list(self.first(x).chunk(2, 1))
            for inner in self.inner:
                parts.append(inner(parts[-1]) + parts[-1] if self.add else inner(parts[-1]))
            return self.last(torch.cat(parts, 1))

    class Yolo(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Sequential(conv(3, 16, 3, 2), conv(16, 32, 3, 2), Stage(32, 32), conv(32, 64, 3, 2))
            self.third, self.fourth = Stage(64, 64, 2), nn.Sequential(conv(64, 128, 3, 2), Stage(128, 128, 2))
            self.fifth = nn.Sequential(conv(128, 256, 3, 2), Stage(256, 256))
            self.before, self.behind = conv(256, 128), conv(512, 256)
            self.up4, self.up3 = Stage(384, 128, add=False), Stage(192, 64, add=False)
            self.down3, self.down4 = conv(64, 64, 3, 2), conv(128, 128, 3, 2)
            self.out4, self.out5 = Stage(192, 128, add=False), Stage(384, 256, add=False)
            self.heads = nn.ModuleList(
                nn.Sequential(conv(width, 64, 3), conv(64, 64, 3), nn.Conv2d(64, 144, 1)) for width in (64, 128, 256)
            )

        def forward(self, x: Any) -> Any:
            third = self.third(self.stem(x))
            fourth = self.fourth(third)
            parts = [self.before(self.fifth(fourth))]
            for _ in range(3):
                parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
            fifth = self.behind(torch.cat(parts, 1))
            up4 = self.up4(torch.cat([nn.functional.interpolate(fifth, scale_factor=2.0), fourth], 1))
            out3 = self.up3(torch.cat([nn.functional.interpolate(up4, scale_factor=2.0), third], 1))
            out4 = self.out4(torch.cat([self.down3(out3), up4], 1))
            out5 = self.out5(torch.cat([self.down4(out4), fifth], 1))
            found = [head(out).flatten(2) for head, out in zip(self.heads, (out3, out4, out5), strict=True)]
            return torch.cat(found, 2)

    return Yolo(), (torch.randn(1, 3, 160, 160),)


def diffusion(side: int = 32, patch: int = 1) -> tuple[Any, tuple[Any, ...]]:
    """A diffusion U-Net: residual blocks with group norms and a time embedding, attention at the lowest level.

    Each pixel of the input stands for `patch` x `patch` of the U-Net's.
    """
    torch = _torch()
    nn = torch.nn

    class Residual(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, given: int, made: int) -> None:
            super().__init__()
            self.first, self.norm1 = nn.Conv2d(given, made, 3, padding=1), nn.GroupNorm(8, given)
            self.second, self.norm2 = nn.Conv2d(made, made, 3, padding=1), nn.GroupNorm(8, made)
            self.time = nn.Linear(64, made)
            self.skip = nn.Conv2d(given, made, 1) if given != made else nn.Identity()

        def forward(self, x: Any, t: Any) -> Any:
            h = self.first(nn.functional.silu(self.norm1(x))) + self.time(t)[:, :, None, None]
            return self.second(nn.functional.silu(self.norm2(h))) + self.skip(x)

    class Attention(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.norm, self.project, self.out = (
                nn.GroupNorm(8, width),
                nn.Linear(width, 3 * width),
                nn.Linear(width, width),
            )

        def forward(self, x: Any) -> Any:
            _, c, h, w = x.shape
            q, k, v = self.project(self.norm(x).reshape(1, c, h * w).transpose(1, 2)).chunk(3, -1)
            weights = torch.softmax(q @ k.transpose(1, 2) * c**-0.5, -1)
            return x + self.out(weights @ v).transpose(1, 2).reshape(1, c, h, w)

    class Unet(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Sequential(nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 64))
            self.stem = nn.ConvTranspose2d(3, 32, patch, patch) if patch > 1 else nn.Conv2d(3, 32, 3, padding=1)
            self.last = nn.Conv2d(32, 3, 3, padding=1)
            self.down = nn.ModuleList([Residual(32, 32), Residual(32, 64), Residual(64, 128)])
            self.shrink = nn.ModuleList([nn.Conv2d(w, w, 3, 2, 1) for w in (32, 64)])
            self.middle, self.attention = Residual(128, 128), Attention(128)
            self.up = nn.ModuleList([Residual(256, 64), Residual(128, 32), Residual(64, 32)])
            self.grow = nn.ModuleList([nn.ConvTranspose2d(w, w, 2, 2) for w in (64, 32)])

        def forward(self, x: Any, t: Any) -> Any:
            t = self.embed(t)
            x, kept = self.stem(x), []
            for level, block in enumerate(self.down):
                x = block(x, t)
                kept.append(x)
                x = self.shrink[level](x) if level < 2 else x
            x = self.attention(self.middle(x, t))
            for level, block in enumerate(self.up):
                x = block(torch.cat([x, kept.pop()], 1), t)
                x = self.grow[level](x) if level < 2 else x
            return self.last(x)

    return Unet(), (torch.randn(1, 3, side, side), torch.randn(1, 64))


def mamba(length: int = 64) -> tuple[Any, tuple[Any, ...]]:
    """Two blocks of a selective state space model; the scan in its closed form by cumulative sums."""
    torch = _torch()
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, width: int, inner: int, states: int = 16) -> None:
            super().__init__()
            self.norm, self.states = nn.LayerNorm(width), states
            self.given, self.out = nn.Linear(width, 2 * inner), nn.Linear(inner, width)
            self.conv = nn.Conv1d(inner, inner, 3, padding=1, groups=inner)
            self.select, self.step = nn.Linear(inner, 2 * states), nn.Linear(inner, inner)
            self.decay = nn.Parameter(torch.rand(inner, states))

        def forward(self, x: Any) -> Any:
            u, gate = self.given(self.norm(x)).chunk(2, -1)
            u = nn.functional.silu(self.conv(u.transpose(1, 2)).transpose(1, 2))
            b, c = self.select(u).chunk(2, -1)
            step = nn.functional.softplus(self.step(u))
            decay = torch.cumsum(step.unsqueeze(-1) * self.decay * 0.01, 1)
            state = torch.cumsum((step * u).unsqueeze(-1) * b.unsqueeze(2) * torch.exp(decay), 1) * torch.exp(-decay)
            return x + self.out((state * c.unsqueeze(2)).sum(-1) * nn.functional.silu(gate))

    return nn.Sequential(Block(96, 192), Block(96, 192)), (torch.randn(1, length, 96),)


def timm(name: str, side: int) -> tuple[Any, tuple[Any, ...]]:
    """A network of timm."""
    made = importlib.import_module("timm").create_model(name, pretrained=False)
    return made, (_torch().randn(1, 3, side, side),)


def t5() -> tuple[Any, tuple[Any, ...]]:
    """T5-small, encoder and decoder; 64 and 16 tokens."""
    torch, transformers = _torch(), importlib.import_module("transformers")
    sizes = {"d_model": 512, "num_layers": 6, "num_heads": 8, "d_ff": 2048}
    inner = transformers.T5Model(transformers.T5Config(**sizes, use_cache=False, attn_implementation="eager"))

    class T5(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, source: Any, target: Any) -> Any:
            return self.inner(input_ids=source, decoder_input_ids=target, use_cache=False).last_hidden_state

    return T5(), (torch.randint(0, 32000, (1, 64)), torch.randint(0, 32000, (1, 16)))


def whisper(part: str) -> tuple[Any, tuple[Any, ...]]:
    """Encoder or decoder of Whisper's smallest size; 3,000 frames, 16 tokens."""
    torch, transformers = _torch(), importlib.import_module("transformers")
    sizes = {"d_model": 384, "encoder_layers": 4, "decoder_layers": 4, "encoder_attention_heads": 6}
    sizes |= {"decoder_attention_heads": 6, "encoder_ffn_dim": 1536, "decoder_ffn_dim": 1536}
    config = transformers.WhisperConfig(**sizes, use_cache=False, attn_implementation="eager")
    inner = getattr(transformers.WhisperModel(config), part)

    class Encoder(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, frames: Any) -> Any:
            return self.inner(frames).last_hidden_state

    class Decoder(Encoder):
        def forward(self, tokens: Any, features: Any) -> Any:
            return self.inner(input_ids=tokens, encoder_hidden_states=features, use_cache=False).last_hidden_state

    if part == "encoder":
        return Encoder(), (torch.randn(1, 80, 3000),)
    return Decoder(), (torch.randint(0, 50000, (1, 16)), torch.randn(1, 1500, 384))


def text(length: int = 32) -> tuple[Any, tuple[Any, ...]]:
    """Two encoder layers of a text transformer with learned positions, of any length."""
    torch = _torch()
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads, self.project, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
            self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            _, s, width = x.shape
            parts = self.project(self.first(x)).reshape(1, s, 3, self.heads, width // self.heads)
            q, k, v = (parts[:, :, i].transpose(1, 2) for i in range(3))
            weights = torch.softmax(q @ k.transpose(2, 3) * (width // self.heads) ** -0.5, -1)
            x = x + self.out((weights @ v).transpose(1, 2).reshape(1, s, width))
            return x + self.inner(self.second(x))

    return nn.Sequential(Layer(128, 4), Layer(128, 4)), (torch.randn(1, length, 128),)


STATIC: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "yolo_like": yolo,
    "diffusion_unet": diffusion,
    "mamba_like": mamba,
    "whisper_tiny_encoder": lambda: whisper("encoder"),
    "whisper_tiny_decoder": lambda: whisper("decoder"),
    "t5_small": t5,
    "mobilevit_s": lambda: timm("mobilevit_s", 128),
    "convnext_nano": lambda: timm("convnext_nano", 96),
    "efficientformer_l1": lambda: timm("efficientformer_l1", 224),
}

DYNAMIC: dict[str, Dynamic] = {
    "mamba_like": Dynamic(mamba, ({1: "s"},), {"s": (2, 4096)}, tuple({"s": s} for s in (2, 16, 100, 333, 1000))),
    "diffusion_unet": Dynamic(
        lambda: diffusion(8, patch=4),
        ({2: "h", 3: "w"}, {}),
        {"h": (2, 32), "w": (2, 32)},
        tuple({"h": h, "w": w} for h, w in ((2, 2), (4, 12), (8, 8), (16, 10), (32, 32))),
    ),
    "text_encoder": Dynamic(text, ({1: "s"},), {"s": (2, 1024)}, tuple({"s": s} for s in (2, 16, 77, 256, 1000))),
}
