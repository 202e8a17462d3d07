"""Contrast of a page's texts as a browser shows them: WCAG 2's formula over the colours that were computed."""

from __future__ import annotations

from typing import Any

AA, AA_LARGE = 4.5, 3.0

_SCRIPT = """(() => {
  const probe = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (text) => {
    probe.clearRect(0, 0, 1, 1); probe.fillStyle = text; probe.fillRect(0, 0, 1, 1);
    const d = probe.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255];
  };
  const over = (top, low) => top.slice(0, 3).map((c, i) => c * top[3] + low[i] * (1 - top[3]));
  const ground = (node) => {
    const layers = [];
    for (let e = node; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    return layers.reverse().reduce((low, top) => over(top, low), [255, 255, 255]);
  };
  const light = (c) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(c[0]) + 0.7152 * f(c[1]) + 0.0722 * f(c[2]); };
  const found = [];
  for (const node of document.querySelectorAll('body *')) {
    const own = [...node.childNodes].filter((c) => c.nodeType === 3).map((c) => c.textContent.trim()).join('');
    const box = node.getBoundingClientRect(), style = getComputedStyle(node);
    if (!own || !box.width || !box.height || /SCRIPT|STYLE|TITLE/i.test(node.tagName)) continue;
    if (style.display === 'none' || style.visibility === 'hidden' || node.closest('.sr, .skip, [hidden]')) continue;
    const svg = node instanceof SVGElement, low = ground(node), top = over(rgba(svg ? style.fill : style.color), low);
    const [a, b] = [light(top), light(low)].sort((x, y) => y - x), size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && +style.fontWeight >= 700);
    found.push([(a + 0.05) / (b + 0.05), large, own.slice(0, 40), style.color, low.map(Math.round).join()]);
  }
  return found;
})()"""


def faint_texts(browser: Any) -> list[str]:
    """The visible texts of the open page that are harder to read than AA asks; empty when there are none.

    Texts of canvases are not seen. At least one text has to be there.
    """
    found = browser.run(_SCRIPT)
    assert found, "the page has no text"
    return sorted(
        f"{ratio:.2f} to 1: {text!r}, {colour} on {ground}"
        for ratio, large, text, colour, ground in found
        if ratio < (AA_LARGE if large else AA)
    )
