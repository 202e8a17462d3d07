"""An input that comes row by row: in which chunks a run feeds it, and which rows are there at which launch.

Invariant: a row counts as written from the launch on that the artifact says it is there for, and not before.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from npu_memplan.artifact import Artifact
from npu_memplan.artifact.parts import TensorSlot

from ..result import Array

_SEED = 1


class StreamedRows:
    """Of one artifact; of one without such an input, nothing."""

    def __init__(self, artifact: Artifact) -> None:
        self.slot: TensorSlot | None = None
        self._due = [0]  # rows that are there before each launch of the first call
        if artifact.stream is not None:
            index, self._stream = artifact.stream
            self.slot = artifact.inputs[index]
            self._due += [fed.rows for fed in self._stream.feeds]
        self._random = random.Random(_SEED)
        self._held: tuple[Array, Any] | None = None  # what C reads

    def begin(self, values: Array) -> tuple[int, Any]:
        """The address of a run's rows, and how many come at a time: at random, another way in each run."""
        counts = self.chunks(self._stream.rows)
        chunks = (ctypes.c_int32 * len(counts))(*counts)
        data = np.ascontiguousarray(values)
        self._held = data, chunks
        return int(data.ctypes.data), chunks

    def chunks(self, rows: int) -> list[int]:
        """How many of `rows` rows come at a time."""
        found: list[int] = []
        most = self._random.choice((1, 2, 3, rows // 3 + 1, rows))
        while rows:
            found.append(self._random.randint(1, min(most, rows)))
            rows -= found[-1]
        return found

    def goes_on(self, launch: int) -> bool:
        """Whether launch number `launch` of a run goes on with the call of the launch before."""
        return 0 < launch < len(self._due) - 1

    def come(self, launch: int) -> Iterator[TensorSlot]:
        """The places of the rows that were written since the launch before."""
        if self.slot is None or launch >= len(self._due) - 1:
            return
        size = self._stream.row_bytes
        kept = self.slot.size_bytes // size
        for row in range(self._due[launch], self._due[launch + 1]):
            yield replace(self.slot, offset_bytes=self.slot.offset_bytes + row % kept * size, size_bytes=size)
