"""Completion orders of kernels and DMA transfers.

Invariant: an order is legal: kernels finish in the order they were started, so do transfers where only
one is in flight (U55), a wait is honoured, and no more are unfinished at once than the NPU can hold.
Everything else is free, and a correct stream gives the same bytes under every order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum

from npu_memplan.ethosu.stream.commands import Wait
from npu_memplan.ethosu.stream.isa import Op

from ..spec.stream import DecodedStep, DecodedStream

MAX_KERNELS = 2  # started and unfinished at once, on U55 and U65


class Policy(Enum):
    EAGER = "eager"
    LAZY = "lazy"
    RANDOM = "random"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How kernels and transfers are delayed."""

    kernels: Policy
    dma: Policy
    seed: int = 0

    def order(self, program: DecodedStream, flag: Callable[[], bool]) -> Iterator[DecodedStep]:
        """All steps in the order in which they take effect; `flag` as of `DecodedStream.path`."""
        chance = random.Random(self.seed)
        kernels: deque[DecodedStep] = deque()
        transfers: deque[DecodedStep] = deque()
        queues = (
            (kernels, self.kernels, MAX_KERNELS),
            (transfers, self.dma, program.accelerator.max_outstanding_dma),
        )

        def idle() -> Iterator[DecodedStep]:
            for queue, policy, _ in queues:
                while queue and (policy is Policy.EAGER or (policy is Policy.RANDOM and chance.random() < 0.4)):
                    if queue is transfers and policy is Policy.RANDOM:
                        queue.rotate(-chance.randrange(len(queue)))  # at most two: swaps them or not
                    yield queue.popleft()

        for command in program.path(flag):
            yield from idle()
            if isinstance(command, DecodedStep):
                queue, _, limit = queues[command.is_dma]
                while len(queue) >= limit:
                    yield queue.popleft()
                queue.append(command)
            elif isinstance(command, Wait):
                queue = queues[command.op is Op.DMA_WAIT][0]
                while len(queue) > command.outstanding:
                    yield queue.popleft()
        while kernels or transfers:
            pick = [queue for queue, _, _ in queues if queue]
            yield chance.choice(pick).popleft()

    @staticmethod
    def adversarial(count: int) -> Iterator[Schedule]:
        """`count` schedules: the extremes first, then random ones."""
        extremes = (
            Schedule(Policy.LAZY, Policy.EAGER),
            Schedule(Policy.EAGER, Policy.LAZY),
            Schedule(Policy.LAZY, Policy.LAZY, 1),
        )
        yield from extremes[:count]
        for seed in range(count - len(extremes)):
            yield Schedule(Policy.RANDOM, Policy.RANDOM, seed)
