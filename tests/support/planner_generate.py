"""Planning problems with the shape of real networks, of any size, from a seed.

Invariant: the same arguments give the same problem.
"""

from __future__ import annotations

from random import Random

from npu_memplan.problem import Buffer, Lifetime, Pool, Problem


def inference_like(count: int, seed: int = 0) -> Problem:
    """`count` buffers of a feed-forward network: short lives, residual and dense connections, some scratch."""
    random = Random(seed)
    buffers: list[Buffer] = []
    step = 0
    scale = 1 << 16
    while len(buffers) < count:
        # resolution falls and channels grow within a stage, then the next stage begins anew
        if random.random() < 0.02:
            scale = random.choice((1 << 14, 1 << 15, 1 << 16, 3 << 15, 1 << 17))
        size = max(16, int(scale * random.uniform(0.1, 1.0)) // 16 * 16)
        kind = random.random()
        if kind < 0.70:
            life = random.choice((2, 2, 2, 3))
        elif kind < 0.92:
            life = random.randint(3, 12)  # residual
        else:
            life = random.randint(10, 60)  # skip connection
        buffers.append(Buffer(f"t{len(buffers)}", size, (Lifetime(step, step + life),), 16))
        if random.random() < 0.3 and len(buffers) < count:
            scratch = random.choice((256, 1024, 4096, 9216, 16384))
            buffers.append(Buffer(f"s{len(buffers)}", scratch, (Lifetime(step, step + 1),), 16))
        if random.random() < 0.8:
            step += 1
    return Problem(tuple(buffers), (Pool("memory"),), name=f"inference_{count}_{seed}")


def training_like(count: int, seed: int = 0) -> Problem:
    """`count` buffers of a training step: activations live from the forward to the backward pass of their layer."""
    random = Random(seed)
    layers = max(1, count // 5)
    end = 2 * layers
    buffers: list[Buffer] = []
    scale = 1 << 18
    for layer in range(layers):
        if random.random() < 0.02:
            scale = random.choice((1 << 16, 1 << 17, 1 << 18, 1 << 19))
        size = max(64, int(scale * random.uniform(0.2, 1.0)) // 64 * 64)
        back = end - layer - 1
        rows = [
            (size, layer, back + 1),  # activation kept for the backward pass
            (random.choice((1, 1, 2)) * size // 2 // 64 * 64 + 64, layer, layer + 2),  # passed on, then dead
            (size, back, back + 2),  # gradient of the activation
            (random.choice((4096, 65536, 262144)), back, back + random.randint(1, 40)),  # gradient of weights
            (random.choice((1024, 8192, 131072)), layer if random.random() < 0.5 else back, 0),  # workspace
        ]
        for bytes_, first, last in rows:
            if len(buffers) < count:
                last = min(max(last, first + 1), end + 1)
                buffers.append(Buffer(f"b{len(buffers)}", bytes_, (Lifetime(first, last),), 64))
    return Problem(tuple(buffers), (Pool("memory"),), name=f"training_{count}_{seed}")
