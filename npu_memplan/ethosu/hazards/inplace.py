"""When an operation may write its output over one of its inputs.

Invariant: permission is given only when output element e depends on input element e alone and both
are at the same place of the same address map, so that no element is overwritten before it is read.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from ..arch.architecture import Language
from ..program.featuremap import FeatureMap
from ..program.kernel import Kernel
from ..program.ranges import share_byte
from ..stream.commands import Operation
from ..stream.fields_u85 import OutputWord
from ..stream.isa import Op, PoolMode, Register


def in_place_distances(op: Operation, holder: Mapping[str, Hashable]) -> dict[Hashable, int]:
    """Input holders over which `op` may write its output: holder -> address(input) - address(output).

    `holder` says which buffer "IFM", "IFM2" and "OFM" are in (views in no buffer are left out);
    addresses in `op` count from the start of their buffer, or are absolute throughout.
    """
    if not is_pointwise(op):
        return {}
    output = FeatureMap.ofm(op)
    views = [v for v in (FeatureMap.ifm(op), FeatureMap.ifm2(op)) if v is not None and v.name in holder]
    found: dict[Hashable, int] = {}
    for view in views:
        source = holder[view.name]
        distance = same_map(view, output)
        if distance is None or source == holder["OFM"]:
            continue
        # Whatever else is read from the same buffer must be the same map, or be elsewhere.
        moved = output.ranges() + distance
        others = [v for v in views if holder[v.name] == source and v is not view]
        if all(same_map(o, output) == distance or not share_byte(o.ranges(), moved) for o in others):
            found[source] = distance
    return found


_SINGLE = {
    Language.U55_U65: (PoolMode.AVERAGE,),
    Language.U85: (PoolMode.AVERAGE, PoolMode.SUM, PoolMode.MAX),
}


def is_pointwise(op: Operation) -> bool:
    """Output element (y, x, c) depends on input elements (y, x, c) alone (broadcast inputs aside)."""
    if op.op is Op.ELEMENTWISE:
        return not is_turned(op)
    if op.op is not Op.POOL or op.parameter not in _SINGLE[op.language] or is_turned(op):
        return False
    kernel = Kernel.of(op)
    padded = kernel.pad_top or kernel.pad_left or kernel.pad_bottom or kernel.pad_right
    window = (kernel.height, kernel.width, kernel.stride_y, kernel.stride_x)
    return window == (1, 1, 1, 1) and not padded and not op.get(Register.IFM_UPSCALE)


def is_turned(op: Operation) -> bool:
    """Whether results are stored in another order than they are made."""
    word = op.get(Register.OFM_PRECISION)
    return op.language is Language.U85 and bool(OutputWord.TRANSPOSE.of(word) or OutputWord.REVERSE.of(word))


def same_map(view: FeatureMap, output: FeatureMap) -> int | None:
    """Constant address(view) - address(output) over all elements; None when it is not constant."""
    if (view.height, view.width, view.depth) != (output.height, output.width, output.depth):
        return None
    if view.element_bytes != output.element_bytes or view.brick != output.brick:
        return None
    tiles = view.tiles(view.height, view.width)
    if tiles != output.tiles(output.height, output.width):
        return None
    equal = view.height == 1 or view.stride_y == output.stride_y
    if view.brick:
        equal &= view.depth <= 16 or view.stride_c == output.stride_c
    else:
        equal &= view.width == 1 or view.stride_x == output.stride_x
    distances = {view.bases[t] - output.bases[t] for t, _, _ in tiles}
    return distances.pop() if equal and len(distances) == 1 else None
