"""How the pages look, measured in a browser: contrast, colour by layer, the first card."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.problem import Pool
from npu_memplan.report.colours import AGENT_COLOURS, KIND_COLOURS, contrast_ratio, ink_on, layer_colour
from npu_memplan.report.page.html import html_report
from npu_memplan.report.text.compile_result import shares_text
from tests.support.contrast import AA


def shown(browser: Any, folder: Path, text: str) -> Any:
    page = folder / "page.html"
    page.write_text(text, encoding="utf-8")
    browser.open(page)
    assert browser.errors() == []
    return browser


def with_layers(small: Artifact) -> Artifact:
    """`small` with operators known for the NPU's points."""
    npu, host = small.calls
    return dataclasses.replace(small, calls=(dataclasses.replace(npu, operators=(-1, 0, 0, 2, 2)), host))


def test_ink_can_be_read_on_every_colour() -> None:
    colours = [*KIND_COLOURS.values(), *AGENT_COLOURS.values(), *map(layer_colour, range(200))]
    assert min(contrast_ratio(colour, ink_on(colour)) for colour in colours) >= AA
    assert (ink_on("#ffffff"), ink_on("#000000")) == ("#000000", "#ffffff")
    assert contrast_ratio("#ffffff", "#000000") == pytest.approx(21)
    assert contrast_ratio("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01), "WCAG's own example of just too faint"


@pytest.mark.browser
def test_colour_by_layer(browser: Any, small: Artifact, tmp_path: Path) -> None:
    """A buffer has the colour of the operator that makes it; what nobody known makes is grey."""
    page = shown(browser, tmp_path, html_report(with_layers(small)))
    page.run("document.querySelector('[data-colour=layer]').click()")
    page.frame()
    legend = page.run("document.getElementById('legend').innerText")
    assert "0: conv_out (CONV_2D)" in legend
    assert "2: topk (TOPK_V2)" in legend
    assert "probabilities" not in legend, "no buffer is made there"
    pixel = """((name) => { const r = npuMemplan.rectangles().find((r) => r.buffer === name);
      const c = document.querySelector(`.plot[data-pool=${r.pool}] canvas`), k = devicePixelRatio;
      return Array.from(c.getContext('2d').getImageData((r.x + 4) * k, (r.y + 4) * k, 1, 1).data.slice(0, 3)); })"""
    for buffer, colour in (("conv", layer_colour(0)), ("image", "#b9c0c9")):
        expected = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
        assert page.run(f"{pixel}('{buffer}')") == expected, buffer
    page.run("npuMemplan.pick('conv')")
    assert "0: conv_out (CONV_2D)" in page.run("document.getElementById('detail').innerText")
    page.run("npuMemplan.pick(null)")
    page.run("[...document.querySelectorAll('#legend button')].find((b) => /topk/.test(b.innerText)).click()")
    assert page.run("npuMemplan.state.query") == "2: topk (topk_v2)"


@pytest.mark.browser
@pytest.mark.parametrize("capacity, badge", [(16384, "fits"), (None, "no size given"), (8192, "does not fit")])
def test_the_first_card_says_fit_and_time(
    browser: Any, small: Artifact, tmp_path: Path, capacity: int | None, badge: str
) -> None:
    pools = tuple(Pool(p.name, capacity if p.name == "sram" else p.size_bytes, p.alignment, p.agents)
                  for p in small.problem.pools)  # fmt: skip
    made = dataclasses.replace(small, problem=dataclasses.replace(small.problem, pools=pools))
    page = shown(browser, tmp_path, html_report(made))
    first = page.run("document.querySelector('#cards .card').innerText")
    assert badge in first
    assert (f"sram: 13,312 of {capacity:,} bytes" if capacity else "give --board") in first


@pytest.mark.browser
def test_the_first_card_of_a_board(browser: Any, compiled: Any, tmp_path: Path) -> None:
    artifact, _ = compiled("hello_world_int8", accelerator="ethos-u55-128", board="alif-e7-he")
    first = shown(browser, tmp_path, html_report(artifact)).run("document.querySelector('#cards .card').innerText")
    milliseconds = artifact.timing.milliseconds(artifact.estimated_cycles)
    assert "fit on alif-e7-he" in first
    assert f"{milliseconds:.3f} ms estimated\nthe NPU at 160 MHz" in first
    assert re.search(r"MRAM: [\d,]+ of 5,767,168 bytes", first)


@pytest.mark.browser
def test_the_first_card_has_the_slowest_time_and_the_host(
    browser: Any, small: Artifact, compiled: Any, tmp_path: Path
) -> None:
    artifact, _ = compiled("hello_world_int8", accelerator="ethos-u55-128", board="alif-e7-he")
    slow = dataclasses.replace(artifact, timing=dataclasses.replace(artifact.timing, by_model={"a": 160_000}))
    card = "document.querySelector('#cards .card').innerText"
    first = shown(browser, tmp_path, html_report(slow)).run(card)
    assert "the NPU at 160 MHz; up to 1.000 ms by how memories are shared" in first
    assert "CPU" not in first
    assert shares_text(small) == "CPU: 1 call, not estimated"
    assert shares_text(small) in shown(browser, tmp_path, html_report(small)).run(card)
