"""front.html: every point is drawn where it is, with its number or name, on a narrow screen too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from npu_memplan.report.page.front import front_page
from npu_memplan.tuning.pareto import ParetoFront, ParetoPoint


def point(size: int, cycles: int, backend: str = "native lowering") -> ParetoPoint:
    return ParetoPoint(size, size, cycles, cycles / 5e5, cycles / 4e5, backend, cycles // 2, f"--pool sram={size}")


pytestmark = pytest.mark.browser
NEAR = ParetoFront(
    "near",
    "sram",
    (point(14000, 60000), point(18000, 50000), point(24000, 44000)),
    (point(22192, 63000, "Vela, Performance"), point(16000, 92000, "Vela, Size")),
    point(22096, 47000),
)
FAR = ParetoFront("far", "sram", (point(1000, 900_000), point(40_000, 50_000)), ())


def shown(browser: Any, folder: Path, front: ParetoFront) -> list[tuple[str, float, float]]:
    """Opens the page; (class, x, y) of its marks."""
    page = folder / "front.html"
    page.write_text(front_page(front))
    browser.open(page)
    assert browser.errors() == []
    found = browser.run(
        "[...document.querySelectorAll('.chart circle')].map(c => [c.getAttribute('class').split(' ')[1],"
        " +c.getAttribute('cx'), +c.getAttribute('cy')])"
    )
    return [(kind, x, y) for kind, x, y in found]


def texts(browser: Any, kind: str) -> list[str]:
    return list(browser.run(f"[...document.querySelectorAll('.chart .{kind}')].map(t => t.textContent)"))


def test_points_have_numbers_and_the_others_names(browser: Any, tmp_path: Path) -> None:
    assert [kind for kind, _, _ in shown(browser, tmp_path, NEAR)] == ["point"] * 3 + ["default"] + ["vela"] * 2
    assert texts(browser, "name") == ["1", "2", "3", "default", "Vela, Performance", "Vela, Size"]
    assert texts(browser, "title") == ["bytes of sram", "estimated NPU cycles"]
    message = browser.run("document.getElementById('subtitle').innerText")
    assert "from 14,000 bytes in 0.120 to 0.150 ms to 24,000 bytes in 0.088 to 0.110 ms" in message


def test_the_ends_and_the_default_stand_first_beside_vela(browser: Any, tmp_path: Path) -> None:
    shown(browser, tmp_path, NEAR)
    cards = browser.run("[...document.querySelectorAll('.card')].map(c => c.innerText.replace(/\\s+/g, ' '))")
    assert cards == [
        "least memory 13.67 KiB 0.120 to 0.150 ms -36.9 % bytes, -4.8 % time beside Vela, Performance",
        "fastest 23.44 KiB 0.088 to 0.110 ms +8.1 % bytes, -30.2 % time beside Vela, Performance",
        "default compile 21.58 KiB 0.094 to 0.117 ms -0.4 % bytes, -25.4 % time beside Vela, Performance",
    ]
    shown(browser, tmp_path, FAR)
    assert "beside Vela" not in browser.run("document.body.innerText")
    assert "default" not in browser.run("document.getElementById('subtitle').innerText")


def test_no_name_lies_on_the_line(browser: Any, tmp_path: Path) -> None:
    for size in ((1280, 900), (390, 844)):
        browser.size(*size)
        shown(browser, tmp_path, NEAR)
        hit = """(() => {
          const line = document.querySelector('.chart polyline'), found = [];
          const names = document.querySelectorAll('.chart .name');
          for (let k = 0; k <= 400; k++) for (const t of names) {
            const p = line.getPointAtLength((line.getTotalLength() * k) / 400), b = t.getBBox();
            const over = p.x > b.x && p.x < b.x + b.width && p.y > b.y + 2 && p.y < b.y + b.height - 2;
            if (over) found.push(t.textContent);
          }
          return found; })()"""
        assert browser.run(hit) == []
    browser.size(1280, 900)


def test_places_are_in_proportion(browser: Any, tmp_path: Path) -> None:
    marks = [(x, y) for _, x, y in shown(browser, tmp_path, NEAR)[:3]]
    across = [(marks[k + 1][0] - marks[k][0]) for k in range(2)]
    up = [(marks[k + 1][1] - marks[k][1]) for k in range(2)]
    assert across[1] / across[0] == pytest.approx(6000 / 4000, abs=0.02)
    assert up[1] / up[0] == pytest.approx(6000 / 10000, abs=0.02)


def test_axes_are_logarithmic_where_values_are_far_apart(browser: Any, tmp_path: Path) -> None:
    assert "default" not in {kind for kind, _, _ in shown(browser, tmp_path, FAR)}
    assert texts(browser, "title") == ["bytes of sram, logarithmic", "estimated NPU cycles, logarithmic"]
    ticks = texts(browser, "tick")
    assert ticks == ["1 k", "2 k", "5 k", "10 k", "20 k", "50 k", "50 k", "100 k", "200 k", "500 k", "1 M"]
