"""Where a tensor's elements are in a buffer: offset, strides, layout.

Invariant: a `TensorView` never copies; taking a box, a reshape or a place inside a larger tensor gives a
new view of the same bytes or `None` when no strides can express it. Strides and offsets are bytes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..stream.isa import BRICK_CHANNELS


@dataclass(frozen=True, slots=True)
class TensorView:
    """A tensor inside buffer `buffer`. `strides` match `shape`; with `brick` the layout is NHCWB16.

    A brick view has 4-D `shape` with N = 1; its last stride is the distance of two 16-channel bricks.
    """

    buffer: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    element_bytes: int
    brick: bool = False

    @staticmethod
    def dense(buffer: str, shape: tuple[int, ...], element_bytes: int) -> TensorView:
        """Row-major elements from the start of `buffer`."""
        strides, step = [], element_bytes
        for size in reversed(shape):
            strides.append(step)
            step *= size
        return TensorView(buffer, 0, shape, tuple(reversed(strides)), element_bytes)

    @staticmethod
    def bricks(buffer: str, shape: tuple[int, ...], element_bytes: int) -> TensorView:
        """NHCWB16 from the start of `buffer`; `shape` is [1, H, W, C]."""
        _, height, width, depth = shape
        brick = width * BRICK_CHANNELS * element_bytes
        row = brick * (-(-depth // BRICK_CHANNELS))
        return TensorView(
            buffer, 0, shape, (row * height, row, BRICK_CHANNELS * element_bytes, brick), element_bytes, True
        )

    @property
    def is_dense(self) -> bool:
        """True when the elements are row-major without gaps."""
        step = self.element_bytes
        for size, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if size > 1 and stride != step:
                return False
            step *= size
        return not self.brick

    @property
    def has_dense_rows(self) -> bool:
        """Of [H, W, C]: whether columns follow each other without gaps."""
        width = self.shape[2] * self.element_bytes
        return not self.brick and self.strides[1:] == (width, self.element_bytes)

    def reshaped(self, shape: tuple[int, ...]) -> TensorView | None:
        """The same bytes under another shape; None when they are not dense."""
        if not self.is_dense:
            return None
        return replace(TensorView.dense(self.buffer, shape, self.element_bytes), offset=self.offset)

    def box(
        self, begin: tuple[int, ...], shape: tuple[int, ...], step: tuple[int, ...] | None = None
    ) -> TensorView | None:
        """Elements `begin + i * step` for i below `shape`; None where bricks or channel steps forbid it."""
        step = step or (1,) * len(shape)
        if self.brick or step[-1] != 1:
            return None
        offset = self.offset + sum(b * s for b, s in zip(begin, self.strides, strict=True))
        strides = tuple(s * k for s, k in zip(self.strides, step, strict=True))
        return replace(self, offset=offset, shape=shape, strides=strides)

    def permuted(self, axes: tuple[int, ...]) -> TensorView:
        """Dimensions in another order; dimension i of the result is dimension `axes[i]`. Not for bricks."""
        return replace(self, shape=tuple(self.shape[a] for a in axes), strides=tuple(self.strides[a] for a in axes))

    def channel(self, index: int) -> TensorView:
        """One element of the last dimension, which becomes 1 long."""
        return replace(
            self,
            offset=self.offset + index * self.strides[-1],
            shape=(*self.shape[:-1], 1),
            strides=(*self.strides[:-1], self.element_bytes),
        )

    def hwc(self) -> TensorView | None:
        """The same elements as [H, W, C], all leading dimensions in H; None when their strides do not fold."""
        if self.brick:
            return replace(self, shape=self.shape[1:], strides=self.strides[1:])
        if self.shape and self.shape[-1] > 1 and self.strides[-1] != self.element_bytes:
            return None
        missing = max(0, 3 - len(self.shape))
        size = self.element_bytes * self.shape[-1] if self.shape else self.element_bytes
        shape = (1,) * missing + self.shape
        strides = (size,) * missing + self.strides
        height, stride = 1, strides[-3]
        for extent, distance in zip(reversed(shape[:-2]), reversed(strides[:-2]), strict=True):
            if extent == 1:
                continue
            if height == 1:
                height, stride = extent, distance
            elif distance == height * stride:
                height *= extent
            else:
                return None
        return replace(self, shape=(height, *shape[-2:]), strides=(stride, *strides[-2:]))


def images(source: TensorView, target: TensorView) -> list[tuple[TensorView, TensorView]] | None:
    """The same boxes of both as [H, W, C]: the whole, or one for each leading index; None where channels lie apart."""
    a, b = source.hwc(), target.hwc()
    if a is not None and b is not None:
        return [(a, b)] if a.shape == b.shape else None
    axis = next((i for i, extent in enumerate(source.shape[:-3]) if extent > 1), None)
    if axis is None or source.shape != target.shape:
        return None
    shape = tuple(1 if i == axis else extent for i, extent in enumerate(source.shape))
    found = []
    for index in range(source.shape[axis]):
        begin = tuple(index if i == axis else 0 for i in range(len(shape)))
        boxes = source.box(begin, shape), target.box(begin, shape)
        parts = None if boxes[0] is None or boxes[1] is None else images(boxes[0], boxes[1])
        if parts is None:
            return None
        found += parts
    return found


@dataclass(slots=True)
class Storage:
    """Views of all tensors that live in memory, and the data movements that stay."""

    views: dict[str, TensorView] = field(default_factory=dict)
    copies: set[str] = field(default_factory=set)  # outputs of layers that could be views but must move data
    embedded: dict[str, str] = field(default_factory=dict)  # tensor -> the concatenation or pad it is made inside
