"""front.html: every point is drawn where it is, with its number or name, on a narrow screen too."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from npu_memplan.report.page.front import front_page
from npu_memplan.tuning.pareto import ParetoFront, ParetoPoint


def point(size: int, cycles: int, backend: str = "native lowering") -> ParetoPoint:
    return ParetoPoint(size, size, cycles, cycles / 5e5, cycles / 4e5, backend, cycles // 2, f"--pool sram={size}")


NEAR = ParetoFront(
    "near",
    "sram",
    (point(14000, 60000), point(18000, 50000), point(24000, 44000)),
    (point(22192, 63000, "Vela, Performance"), point(16000, 92000, "Vela, Size")),
    point(22096, 47000),
)
FAR = ParetoFront("far", "sram", (point(1000, 900_000), point(40_000, 50_000)), ())


def circles(page: str) -> list[tuple[str, float, float]]:
    found = re.findall(r'<circle class="(\w+)" cx="([\d.]+)" cy="([\d.]+)"', page)
    return [(kind, float(x), float(y)) for kind, x, y in found]


def test_points_have_numbers_and_the_others_names() -> None:
    page = front_page(NEAR)
    assert [kind for kind, _, _ in circles(page)] == ["point"] * 3 + ["default"] + ["vela"] * 2
    names = re.findall(r'text-anchor="(?:start|end)">([^<]+)</text>', page)
    assert [name for name in names if " k" not in name and name != "0"] == [
        "1", "2", "3", "default", "Vela, Performance", "Vela, Size",
    ]  # fmt: skip
    assert "bytes of sram</text>" in page
    assert "estimated NPU cycles</text>" in page


def test_places_are_in_proportion() -> None:
    marks = [(x, y) for _, x, y in circles(front_page(NEAR))[:3]]
    across = [(marks[k + 1][0] - marks[k][0]) for k in range(2)]
    up = [(marks[k + 1][1] - marks[k][1]) for k in range(2)]
    assert across[1] / across[0] == pytest.approx(6000 / 4000, abs=0.02)
    assert up[1] / up[0] == pytest.approx(6000 / 10000, abs=0.02)


def test_axes_are_logarithmic_where_values_are_far_apart() -> None:
    page = front_page(FAR)
    assert "bytes of sram, logarithmic" in page
    assert "estimated NPU cycles, logarithmic" in page
    for tick in ("1 k", "2 k", "5 k", "10 k", "20 k", "50 k", "100 k", "500 k"):
        assert f">{tick}</text>" in page
    assert "default" not in {kind for kind, _, _ in circles(page)}


@pytest.mark.browser
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_the_screen(browser: Any, tmp_path: Path, width: int) -> None:
    page = tmp_path / "front.html"
    page.write_text(front_page(NEAR))
    browser.size(width, 800)
    browser.open(page)
    assert browser.errors() == []
    assert browser.run("document.documentElement.scrollWidth") <= width
    left, right = browser.run("(r => [r.left, r.right])(document.querySelector('svg.front').getBoundingClientRect())")
    assert 0 <= left < right <= width
    sizes = "Array.from(document.querySelectorAll('.front text'), t => t.getBoundingClientRect().height)"
    assert min(browser.run(sizes)) >= 9, "too small to read"
