"""DEPTH_TO_SPACE, SPACE_TO_DEPTH, SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND.

Invariant: every element is copied as it is, from one place of the input.
"""

from __future__ import annotations

from .common import flat_values, shape4
from .movement import pair
from .operator import Lowering, lowering, require
from .tir import both, floor_div, floor_mod, raw_load


@lowering("DEPTH_TO_SPACE", "SPACE_TO_DEPTH")
def depth_and_space(work: Lowering) -> None:
    """Blocks of `block` x `block` places become channels, or channels become places."""
    to_space = work.operator.name == "DEPTH_TO_SPACE"
    options = work.options("DepthToSpaceOptions" if to_space else "SpaceToDepthOptions")
    block = options.BlockSize()
    data, output = pair(work)
    require(block > 0, f"a block of {block}")
    packed_shape, spread_shape = (shape4(data), shape4(output)) if to_space else (shape4(output), shape4(data))
    images, height, width, depth = spread_shape
    fits = height % block == width % block == 0
    fits = fits and packed_shape == (images, height // block, width // block, depth * block * block)
    require(fits, f"blocks of {block} do not turn {list(data.shape)} into {list(output.shape)}")
    work.describe("depth_and_space", block=block, to_space=int(to_space))
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid(output.shape if to_space else data.shape, "nyxc") as (n, y, x, c):
        channel = (floor_mod(y, block) * block + floor_mod(x, block)) * depth + c
        packed, spread = (n, floor_div(y, block), floor_div(x, block), channel), (n, y, x, c)
        here, there = (packed, spread) if to_space else (spread, packed)
        function.store(target, raw_load(source, here), *there)


@lowering("SPACE_TO_BATCH_ND", "BATCH_TO_SPACE_ND")
def batch_and_space(work: Lowering) -> None:
    """Places of a block become images of a batch; or the reverse, before cropping."""
    to_batch = work.operator.name == "SPACE_TO_BATCH_ND"
    data, output = pair(work)
    block, borders = flat_values(work, 1), flat_values(work, 2)
    image, batch = (data, output) if to_batch else (output, data)
    images, height, width, channels = shape4(image)
    batches, rows, columns, depth = shape4(batch)
    fits = len(block) == 2 and len(borders) == 4 and images > 0 and batches == images * block[0] * block[1]
    require(fits, f"blocks {block} do not turn {images} images into {batches}")
    extents = tuple(extent + sum(borders[2 * i : 2 * i + 2]) for i, extent in enumerate((height, width)))
    fits = channels == depth and min(*block, *borders, 1) >= 0 and extents == (rows * block[0], columns * block[1])
    require(fits, f"blocks {block} and borders {borders} do not turn {list(data.shape)} into {list(output.shape)}")
    # The padding value is not initialised: TFLite Micro gives other numbers from run to run.
    require(not to_batch or not any(borders), "it pads, and the reference kernel does not say with what")
    work.describe("batch_and_space", block=block, borders=borders, to_batch=int(to_batch))
    function = work.function
    source, target = work.read(0, "input"), work.write()
    with function.grid((batches, rows, columns, depth), "byxc") as (b, y, x, c):
        place = floor_div(b, images)
        row = function.bind(y * block[0] + floor_div(place, block[1]) - borders[0], "row")
        column = function.bind(x * block[1] + floor_mod(place, block[1]) - borders[2], "column")
        of_image, of_batch = (floor_mod(b, images), row, column, c), (b, y, x, c)
        here, there = (of_image, of_batch) if to_batch else (of_batch, of_image)
        cropped = None if to_batch else both(row >= 0, row < height, column >= 0, column < width)
        with function.when(cropped):
            function.store(target, raw_load(source, here), *there)
