"""Train the example network, quantise it to int8 and write digits.tflite.

    pip install torch==2.13.0 scikit-learn flatbuffers tflite-micro==0.dev20261023182759
    python examples/digits/train.py

The data (8x8 images of hand-written digits) ships with scikit-learn. The result is
committed: the example can be used without running this. Beside the model it writes
samples.npz: 64 quantised test images and their labels.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from model import DigitsNet
from quantise import Quantised, quantise
from sklearn.datasets import load_digits
from torch.nn import functional
from write_tflite import write_tflite

HERE = Path(__file__).resolve().parent
SEED = 7


def images() -> tuple[torch.Tensor, torch.Tensor]:
    """All images, float32 [1797, 1, 16, 16] in 0..1, in a fixed shuffled order; and their labels."""
    digits = load_digits()
    order = np.random.default_rng(SEED).permutation(len(digits.target))
    x = torch.tensor(digits.images[order, None] / 16, dtype=torch.float32)
    return functional.interpolate(x, size=(16, 16), mode="bilinear"), torch.tensor(digits.target[order])


def train(net: DigitsNet, x: torch.Tensor, labels: torch.Tensor, epochs: int = 40) -> None:
    """Adam with a cosine schedule on the negative log likelihood, batches of 64."""
    optimiser = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            loss = functional.nll_loss(torch.log(net(x[batch]) + 1e-9), labels[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        schedule.step()


def main() -> None:
    torch.manual_seed(SEED)
    x, labels = images()
    split = 1400
    net = DigitsNet()
    train(net, x[:split], labels[:split])
    with torch.no_grad():
        accuracy = (net(x[split:]).argmax(1) == labels[split:]).float().mean().item()
        calibration = {name: t.numpy() for name, t in net.activations(x[:split]).items()}
    print(f"float accuracy on {len(x) - split} unseen images: {accuracy:.3f}")
    weights = {name: t.detach().numpy() for name, t in net.named_parameters()}
    model: Quantised = quantise(weights, calibration)
    (HERE / "digits.tflite").write_bytes(write_tflite(model))
    image = model.tensors["image"]
    samples = np.clip(np.rint(x[split : split + 64].numpy() / image.scale) + image.zero_point, -128, 127)
    np.savez_compressed(
        HERE / "samples.npz",
        images=samples.astype(np.int8).transpose(0, 2, 3, 1),
        labels=labels[split : split + 64].numpy().astype(np.int8),
    )


if __name__ == "__main__":
    main()
