"""The example network: a small residual CNN for 16x16 images of hand-written digits.

Needs PyTorch; only `train.py` and the tests of the PyTorch import use it.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class DigitsNet(nn.Module):
    """Input: float32 [N, 1, 16, 16] in 0..1. Output: class probabilities [N, 10]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, padding=1)
        self.down = nn.Conv2d(16, 32, 3, stride=2)
        self.left = nn.Conv2d(32, 32, 3, padding=1)
        self.right = nn.Conv2d(32, 32, 3, padding=1)
        self.depthwise = nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.pointwise = nn.Conv2d(32, 32, 1)
        self.classes = nn.Linear(32, 10)

    def activations(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        """Every tensor that the quantised network stores, by name."""
        out = {"image": x}
        out["stem"] = functional.relu(self.stem(x))
        # TFLite's SAME padding of an even image at stride 2: one row below, one column right.
        out["down"] = functional.relu(self.down(functional.pad(out["stem"], (0, 1, 0, 1))))
        out["left"] = functional.relu(self.left(out["down"]))
        out["right"] = self.right(out["left"])
        out["residual"] = functional.relu(out["right"] + out["down"])
        out["depthwise"] = functional.relu(self.depthwise(out["residual"]))
        out["pointwise"] = functional.relu(self.pointwise(out["depthwise"]))
        out["pooled"] = functional.avg_pool2d(out["pointwise"], 8)
        out["logits"] = self.classes(out["pooled"].flatten(1))
        out["probabilities"] = functional.softmax(out["logits"], dim=1)
        return out

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.activations(x)["probabilities"]
