"""How the pages look, measured in a browser: contrast, hatching, ticks, colour by layer, the first card, a phone."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.artifact import Artifact
from npu_memplan.problem import Pool
from npu_memplan.report.colours import AGENT_COLOURS, KIND_COLOURS, contrast_ratio, ink_on, layer_colour
from npu_memplan.report.page.compare import compare_page
from npu_memplan.report.page.html import html_report
from npu_memplan.report.text.compile_result import shares_text
from npu_memplan.report.text.diff import compare_plans
from tests.support.contrast import AA, faint_texts

PHONE, DESK = (390, 844), (1280, 900)


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


def test_neighbours_in_program_order_look_different() -> None:
    def away(a: str, b: str) -> int:
        return sum(abs(int(a[i : i + 2], 16) - int(b[i : i + 2], 16)) for i in (1, 3, 5))

    assert min(away(layer_colour(i), layer_colour(i + 1)) for i in range(200)) > 90


@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESK, PHONE])
def test_every_text_of_the_report_can_be_read(
    browser: Any, small: Artifact, tmp_path: Path, theme: str, size: tuple[int, int]
) -> None:
    browser.size(*size)
    page = shown(browser, tmp_path, html_report(with_layers(small)))
    page.run(f"theme() !== {theme!r} && switchTheme()")
    for colour in ("kind", "agent", "layer"):
        page.run(f"document.querySelector('[data-colour={colour}]').click()")
        page.frame()
        assert faint_texts(page) == []
        written = page.run("npuMemplan.written()")
        assert {text for text, _, _ in written} >= {"net"}
        assert min(contrast_ratio(ink, ground) for _, ink, ground in written) >= AA
    page.run("npuMemplan.pick('conv')")
    page.frame()
    assert faint_texts(page) == []
    browser.size(*DESK)


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_of_the_comparison_can_be_read(browser: Any, small: Artifact, tmp_path: Path, dark: bool) -> None:
    larger = dataclasses.replace(small, constants_bytes=5000, stream_bytes=100, name="larger")
    page = shown(browser, tmp_path, compare_page(small, larger, compare_plans(small, larger)))
    if dark != (page.run("document.documentElement.dataset.theme") == "dark"):
        page.run("document.getElementById('theme').click()")
    assert faint_texts(page) == []


def test_a_faint_text_would_be_found(browser: Any, tmp_path: Path) -> None:
    text = '<body style="background:#fff"><p style="color:#888">grey</p><p style="color:#000">black</p></body>'
    (found,) = faint_texts(shown(browser, tmp_path, text))
    assert found.startswith("3.54 to 1: 'grey'")


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


@pytest.mark.browser
def test_a_phone_shows_all_of_it(browser: Any, small: Artifact, tmp_path: Path) -> None:
    """Nothing is wider than the screen, the map keeps most of it, and what is tapped is large enough."""
    browser.size(*PHONE)
    try:
        page = shown(browser, tmp_path, html_report(small))
        assert page.run("document.documentElement.scrollWidth") == PHONE[0]
        (axis, _) = page.run("npuMemplan.axes()")
        assert axis["width"] > 0.65 * PHONE[0]
        assert page.run("document.querySelector('.plot canvas').getBoundingClientRect().right") <= PHONE[0]
        cards = page.run("[...document.querySelectorAll('.card')].map((c) => c.getBoundingClientRect().x)")
        assert len(set(cards)) == 1, "one below the other"
        low = page.run("Math.min(...[...document.querySelectorAll('.bar button')].map((b) => b.offsetHeight))")
        assert low >= 32
        page = shown(browser, tmp_path, compare_page(small, small, compare_plans(small, small)))
        assert page.run("document.documentElement.scrollWidth") == PHONE[0]
    finally:
        browser.size(*DESK)
