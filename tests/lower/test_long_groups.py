"""Groups of any length in networks with many branches: channels of a joined map as maps of their own, maps that are
enlarged, several results; where groups begin and end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from npu_memplan.ethosu.program.primfunc import from_primfunc
from npu_memplan.ethosu.program.program import NpuProgram
from npu_memplan.ethosu.schedule.stripes.cascade_space import CascadeSpace
from npu_memplan.ethosu.schedule.stripes.group import Chains
from npu_memplan.ethosu.schedule.stripes.rows import Sliced
from npu_memplan.ethosu.stream.isa import Register, Upscale
from npu_memplan.frontend.load import read
from npu_memplan.options import CompileOptions
from npu_memplan.pipeline import build, extract_problem, lower, plan
from npu_memplan.request import Loaded, request
from npu_memplan.stages import Planned
from npu_memplan.tuning.cascades import best_choice
from npu_memplan.vocabulary import ORDER_PEAKS, is_npu
from tests.support.random_networks.branching import KINDS, Branches, branching
from tests.support.random_networks.branching import Map as Tensor

OPTIONS = CompileOptions(npu_compiler="tvm", objective="bytes")


def program_of(kind: str, most: int, folder: Path, size: int = 16) -> NpuProgram:
    """The largest NPU function of a network."""
    path = folder / "net.tflite"
    path.write_bytes(branching(kind, most, 1, size).finish())
    module = read(path, request(OPTIONS)).module
    programs = [from_primfunc(function) for function in module.functions.values() if is_npu(function)]
    return max(programs, key=lambda program: len(program.operations))


@pytest.mark.parametrize(
    ("kind", "share"), [("randwire", 0.5), ("darts", 0.8), ("densenet", 0.4), ("yolo", 0.55), ("bifpn", 0.65)]
)
def test_long_groups_need_few_bytes(kind: str, share: float, tmp_path: Path) -> None:
    groups = CascadeSpace(program_of(kind, 30, tmp_path, 32))
    chosen = best_choice(groups, 0)
    assert chosen.size_bytes <= share * max(groups.chains.whole_bytes)


@pytest.mark.parametrize("rows", [1024, 2500])
def test_an_operation_is_cut_into_so_many_stripes_at_most(rows: int, tmp_path: Path) -> None:
    d = Branches(1, 2)
    image = Tensor(d.b.tensor((1, rows, 2, 4), "int8", 0.05, -3), rows, 2, 4)
    d.b.inputs.append(image.index)
    d.conv(d.conv(image, 4, 3), 4, 3)
    (tmp_path / "net.tflite").write_bytes(d.finished().finish())
    module = read(tmp_path / "net.tflite", request(OPTIONS)).module
    (program,) = [from_primfunc(function) for function in module.functions.values() if is_npu(function)]
    groups = CascadeSpace(program)
    layers = groups.chains.chain(0, 1)
    assert layers is not None
    made = Counter(part.member for part in groups.group(layers, 1).parts)
    assert {*made.values()} == {1024 if rows == 1024 else 834}  # 834 stripes of three rows


@pytest.mark.parametrize("kind", ["randwire", "darts", "nasnet", "yolo"])
def test_buffers_of_a_turn_hold_rows_only_in_their_spans(kind: str, tmp_path: Path) -> None:
    """By the parts: from the write of each row to its last read."""
    groups = CascadeSpace(program_of(kind, 14, tmp_path))
    rows = 0
    for last, starts in enumerate(groups.chains.long_ranges):
        for layers in filter(None, (groups.chains.chain(first, last) for first in starts)):
            made = groups.group(layers, 1)
            written: dict[tuple[str, int], int] = {}
            for at, part in enumerate(made.parts):
                layer = layers[part.member]
                for source in layer.inputs:
                    start, stop = made.interleaved.turn_spans.get(source.buffer, (0, 0))
                    for row in range(*layer.needs(source, part.rows)) if stop else ():
                        born = written[source.buffer, row]
                        assert all(start <= p.member < stop for p in made.parts[born : at + 1])
                        rows += 1
                for row in range(*part.rows):
                    written.setdefault((layer.output.buffer, row), at)
    assert rows


@pytest.mark.parametrize(("kind", "upscale"), [("unet", Upscale.TRANSPOSE), ("bifpn", Upscale.NEAREST)])
def test_parts_of_an_enlarged_map_read_the_rows_that_they_need(kind: str, upscale: Upscale, tmp_path: Path) -> None:
    """By the registers of each part: which input row each output row comes from."""
    program = program_of(kind, 20, tmp_path)
    layers = [layer for layer in Chains(program, True, True).layers if layer is not None and layer.upscale is upscale]
    assert layers
    for layer in layers:
        height = layer.output.height
        whole = rows_seen(layer, (0, height))
        for start in range(0, height, layer.grain):
            for stop in {min(start + layer.grain, height), min(start + 2 * layer.grain, height), height}:
                assert rows_seen(layer, (start, stop)) == whole[start:stop]


def rows_seen(layer: Sliced, rows: tuple[int, int]) -> list[list[int]]:
    """Of each output row of a part: the rows of the whole input under its window; those of zeros are left out."""
    part = layer.part(rows, {})
    window, source = layer.window, layer.inputs[0]
    assert window is not None
    _, at = part.addresses[Register.IFM_BASE0]
    first = (at - source.offset) // source.stride
    seen = []
    for row in range(rows[1] - rows[0]):
        under = range(row * window.stride_y, row * window.stride_y + window.height)
        found = []
        for place in under:
            place -= part.registers[Register.IFM_PAD_TOP]
            if place < 0 or (layer.upscale is Upscale.TRANSPOSE and place % 2):
                continue
            if first + place // 2 < source.height:
                found.append(first + place // 2)
        seen.append(found)
    return seen


# -- Layers and calls of networks with many branches in another order: fewer bytes in the plan, and the same result


NATIVE = CompileOptions(npu_compiler="tvm", objective="bytes")
HOST = CompileOptions("none")


def peaks(loaded: Loaded) -> dict[str, list[int]]:
    """Bytes in the model's order and in the one taken, by function."""
    found = loaded.module["main"].attrs.get(ORDER_PEAKS) or {}
    return {str(name): [int(n) for n in both] for name, both in found.items()}


def planned(loaded: Loaded) -> Planned:
    return plan(extract_problem(loaded))


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A network of a kind."""
    (tmp_path / "net.tflite").write_bytes(branching(request.param, 30, 1, 16).finish())
    return tmp_path / "net.tflite"


@pytest.mark.parametrize("model", ["randwire", "darts", "nasnet", "inception"], indirect=True)
def test_layers_need_what_their_order_says(model: Path) -> None:
    loaded = read(model, request(NATIVE))
    found = peaks(loaded)
    made = planned(loaded)
    (usage,) = made.plan.usage
    for before, after in found.values():
        assert usage.used_bytes <= after < before


@pytest.mark.parametrize("model", ["randwire", "darts"], indirect=True)
def test_another_order_of_layers_is_found_and_said(model: Path) -> None:
    loaded = read(model, request(NATIVE))
    ((name, (before, after)),) = peaks(loaded).items()
    made = planned(loaded)
    (note,) = [note for note in build(made).artifact.notes if "another order" in note]
    assert f"of {name} " in note
    assert note.endswith(f"which saves {before - after:,} of {before:,} bytes")


@pytest.mark.parametrize("model", [*KINDS], indirect=True)
def test_calls_of_the_host_never_need_more_in_another_order(model: Path) -> None:
    loaded = read(model, request(HOST))
    (given,) = planned(lower(replace(loaded, request=replace(loaded.request, reorder=False)))).plan.usage
    ordered = lower(loaded)
    (usage,) = planned(ordered).plan.usage
    assert usage.used_bytes <= given.used_bytes
    assert (usage.used_bytes < given.used_bytes) == bool(peaks(ordered))


@pytest.mark.parametrize("model", ["randwire"], indirect=True)
def test_calls_of_the_host_need_fewer_bytes_in_another_order(model: Path) -> None:
    ((before, after),) = peaks(lower(read(model, request(HOST)))).values()
    assert after < before
