"""What can be wrong with a page at any size and in any theme: too wide, texts cut off, over each other, or faint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.contrast import faint_texts

PHONE, DESK = (390, 844), (1280, 900)

_SCRIPT = """(() => {
  const found = [], wide = document.documentElement.scrollWidth;
  if (wide > innerWidth) found.push(`the page is ${wide} wide, the screen ${innerWidth}`);
  const box = (e) => e.getBoundingClientRect(), style = (e) => getComputedStyle(e);
  const visible = (e) => box(e).width && style(e).visibility !== 'hidden' && style(e).display !== 'none';
  for (const e of document.querySelectorAll('body *')) {
    if (e instanceof SVGElement || e.closest('.sr, .skip, [hidden]') || !visible(e)) continue;
    const cut = style(e).overflowX === 'hidden' && e.scrollWidth > e.clientWidth + 1;
    if (cut && e.innerText && !e.closest('[title]')) found.push('cut off: ' + e.innerText.slice(0, 50));
  }
  const apart = (t, u) => {
    const a = box(t), b = box(u), x = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    if (x > 3 && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 5)
      found.push('over each other: ' + t.textContent + ' and ' + u.textContent);
  };
  for (const svg of document.querySelectorAll('svg')) {
    const o = box(svg), texts = [...svg.querySelectorAll('text')].filter(visible);
    for (const t of texts) {
      const b = box(t), high = b.top < o.top - 1 || b.bottom > o.bottom + 1;
      if (b.left < o.left - 1 || b.right > o.right + 1 || high) found.push('outside: ' + t.textContent);
    }
    if (svg.matches('.chart, .graph')) texts.forEach((t, i) => texts.slice(i + 1).forEach((u) => apart(t, u)));
    if (svg.matches('.chart')) for (const t of texts) if (box(t).height < 9) found.push('small: ' + t.textContent);
  }
  return found;
})()"""


def open_page(browser: Any, page: Path, text: str, size: tuple[int, int], dark: bool) -> None:
    """Write and open a page for a reader whose system prefers dark, or light."""
    page.write_text(text, encoding="utf-8")
    browser.size(*size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.call("Emulation.setEmulatedMedia", features=[scheme])
    browser.open(page)
    browser.run("localStorage.clear()")  # what an earlier test chose
    browser.open(page)
    assert browser.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
    assert browser.errors() == []
    assert browser.requests() == [page.resolve().as_uri()], "the page requested something"


def faults(browser: Any) -> list[str]:
    """What is wrong with the open page; empty when nothing is."""
    return [*browser.run(_SCRIPT), *faint_texts(browser)]
