// Wiring: pointer, keyboard, zoom, search, theme. All state lives in `state`; drawing follows it.
const timeline = data.time ? new Timeline($("plots")) : null;
const plots = data.pools.map((_, i) => new Plot(i, $("plots"))), tracks = timeline ? [timeline, ...plots] : plots;
const seen = () => tracks.filter((p) => !p.node.hidden);
let pending = false;
function redraw() {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; for (const p of seen()) p.draw(); });
}
function setView(t0, t1) {
  const span = Math.min(Math.max(t1 - t0, Math.min(2, extent())), extent());
  const start = Math.min(Math.max(t0, 0), extent() - span);
  state.view = [start, start + span];
  redraw();
}
function zoom(factor, at) {
  const [t0, t1] = state.view, middle = at === undefined ? (t0 + t1) / 2 : at;
  setView(middle - (middle - t0) * factor, middle + (t1 - middle) * factor);
}
function zoomAddress(plot, factor, at) {
  const [a0, a1] = plot.address, full = plot.top * 1.03;
  const span = Math.min(Math.max((a1 - a0) * factor, 64), full);
  const start = Math.min(Math.max(at - (at - a0) * (span / (a1 - a0)), 0), full - span);
  plot.address = [start, start + span];
  redraw();
}
function fit() { for (const p of plots) p.address = [0, p.top * 1.03]; setView(0, extent()); }
function setCycles(on) { state.cycles = on && data.time !== null; if (timeline) timeline.node.hidden = !state.cycles; fit(); }
function goTo(first, last) {
  const room = Math.max(at(last) - at(first), state.cycles ? extent() / 200 : 4);
  setView(at(first) - room * 0.5, at(last) + room * 0.5);
  $("map").scrollIntoView({ block: "start" });
}
function pick(b, move) {
  state.picked = b;
  const kin = b ? family(b) : { up: [], down: [] };
  state.related = new Set([...kin.up, ...kin.down]);
  describe(b, pick);
  if (b) {
    const half = (state.view[1] - state.view[0]) / 2;
    if (at(b.last) <= state.view[0] || at(b.first) >= state.view[1]) setView(at(b.first) - half, at(b.first) + half);
    if (move) $("map").scrollIntoView({ block: "start" });
    tables.buffers.show(b);
  } else tables.buffers.paint(true);
  redraw();
}
function hover(plot, event) {
  const tip = $("tip"), box = plot.canvas.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  const inside = plot.inside(x, y), r = inside ? plot.hit(x, y) : null;
  state.cursor = inside ? plot.time(x) : null;
  state.hover = r ? r.buffer : null;
  plot.canvas.style.cursor = r ? "pointer" : y > plot.mapBottom ? "crosshair" : "grab";
  const lines = inside ? plot.tell(x, y) : [];
  tip.replaceChildren(...lines);
  if (!lines.length) tip.hidden = true;
  else {
    tip.hidden = false;
    const w = tip.offsetWidth, h = tip.offsetHeight;
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - w - 8)) + "px";
    tip.style.top = (event.clientY + 18 + h > innerHeight ? event.clientY - h - 12 : event.clientY + 18) + "px";
  }
  redraw();
}
function attach(plot) {
  const canvas = plot.canvas;
  let drag = null;
  canvas.addEventListener("pointerdown", (e) => {
    const box = canvas.getBoundingClientRect();
    drag = { x: e.clientX, y: e.clientY, view: [...state.view], address: [...plot.address], moved: false, curve: e.clientY - box.top > plot.mapBottom };
    canvas.setPointerCapture(e.pointerId);
  });
  canvas.addEventListener("pointermove", (e) => {
    if (!drag) return hover(plot, e);
    const dx = e.clientX - drag.x, dy = e.clientY - drag.y, box = canvas.getBoundingClientRect();
    if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
    if (!drag.moved) return undefined;
    $("tip").hidden = true;
    if (drag.curve) { plot.brush = [drag.x - box.left, e.clientX - box.left]; redraw(); return undefined; }
    const perPixel = (drag.view[1] - drag.view[0]) / plot.plotWidth;
    const span = drag.address[1] - drag.address[0], shift = (dy / plot.mapHeight) * span, full = plot.top * 1.03;
    const start = Math.min(Math.max(drag.address[0] + shift, 0), full - span);
    plot.address = [start, start + span];
    setView(drag.view[0] - dx * perPixel, drag.view[1] - dx * perPixel);
    return undefined;
  });
  canvas.addEventListener("pointerup", (e) => {
    const box = canvas.getBoundingClientRect();
    if (drag && drag.moved && plot.brush) { const [a, b] = plot.brush.map((x) => plot.time(x)); plot.brush = null; setView(Math.min(a, b), Math.max(a, b)); }
    else if (drag && !drag.moved) { const r = plot.hit(e.clientX - box.left, e.clientY - box.top); pick(r ? r.buffer : null, false); }
    drag = null; plot.brush = null;
  });
  canvas.addEventListener("pointerleave", () => { if (!drag) { state.hover = null; state.cursor = null; $("tip").hidden = true; redraw(); } });
  canvas.addEventListener("dblclick", (e) => zoom(0.5, plot.time(e.clientX - canvas.getBoundingClientRect().left)));
  canvas.addEventListener("wheel", (e) => {
    const box = canvas.getBoundingClientRect(), factor = Math.exp(Math.max(-60, Math.min(60, e.deltaY)) * 0.008);
    if (e.ctrlKey || e.metaKey) {
      e.preventDefault();
      if (e.shiftKey) zoomAddress(plot, factor, plot.bytesAt(e.clientY - box.top)); else zoom(factor, plot.time(e.clientX - box.left));
    } else if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) {
      e.preventDefault();
      const step = ((e.deltaX || e.deltaY) / plot.plotWidth) * (state.view[1] - state.view[0]);
      setView(state.view[0] + step, state.view[1] + step);
    }
  }, { passive: false });
  canvas.addEventListener("keydown", (e) => {
    const span = state.view[1] - state.view[0], keys = {
      ArrowLeft: () => setView(state.view[0] - span * 0.15, state.view[1] - span * 0.15),
      ArrowRight: () => setView(state.view[0] + span * 0.15, state.view[1] + span * 0.15),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: fit,
      ...(plot.pool ? {
        n: () => step(plot, 1), p: () => step(plot, -1),
        k: () => goTo(Math.max(0, plot.pool.peak.point - 4), plot.pool.peak.point + 5),
      } : {}),
    };
    if (!e.ctrlKey && !e.metaKey && keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
}
function search(text) {
  $("find").value = text;
  state.query = text.trim().toLowerCase();
  if (state.picked) pick(null);
  redraw();
}
function step(plot, way) {
  const list = buffers.filter((b) => b.pool === plot.index && (!state.query || b.haystack.includes(state.query))).sort((a, b) => a.first - b.first || a.offset - b.offset);
  if (!list.length) return;
  const at = list.indexOf(state.picked);
  pick(list[at < 0 ? (way > 0 ? 0 : list.length - 1) : (at + way + list.length) % list.length], false);
}

makeCards(); makeLegend(); makePools(plots, redraw);
const tables = makeTables(pick, goTo);
makePeaks(pick, goTo); describe(null, pick);
tracks.forEach(attach);
for (const p of plots) if (!p.rectangles.length && plots.length > 1) { document.querySelector(`#pools [data-pool="${CSS.escape(p.pool.name)}"]`).click(); }
$("zoom-in").addEventListener("click", () => zoom(0.6));
$("zoom-out").addEventListener("click", () => zoom(1 / 0.6));
$("zoom-fit").addEventListener("click", fit);
themed.push(() => { for (const p of seen()) p.draw(); }); // at once: paper does not wait for a frame
$("find").addEventListener("input", (e) => search(e.target.value));
$("find").addEventListener("keydown", (e) => {
  if (e.key !== "Enter") return;
  const found = buffers.find((b) => b.name.toLowerCase() === state.query) || buffers.find((b) => b.haystack.includes(state.query));
  if (found && state.query) pick(found, false);
});
for (const button of document.querySelectorAll("[data-colour]")) button.addEventListener("click", () => {
  state.colour = button.dataset.colour;
  for (const other of document.querySelectorAll("[data-colour]")) other.setAttribute("aria-pressed", String(other === button));
  makeLegend(); tables.buffers.paint(true); describe(state.picked, pick); redraw();
});
addEventListener("keydown", (e) => {
  const typing = /^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName);
  if (e.key === "Escape") { $("find").value = ""; state.query = ""; pick(null); if (typing) document.activeElement.blur(); }
  else if (!typing && !e.ctrlKey && !e.metaKey && !e.altKey && e.key === "/") { e.preventDefault(); $("find").focus(); }
});
for (const button of document.querySelectorAll("[data-axis]")) button.addEventListener("click", () => {
  setCycles(button.dataset.axis === "cycles");
  for (const other of document.querySelectorAll("[data-axis]")) other.setAttribute("aria-pressed", String((other.dataset.axis === "cycles") === state.cycles));
});
if (!data.time) $("axis").hidden = true;
addEventListener("resize", () => { for (const p of tracks) p.resize(); redraw(); });

// For scripts and tests: what is drawn, in CSS pixels of each pool's canvas.
window.npuMemplan = {
  data, state, timeline, draw: () => seen().forEach((p) => p.draw()), setCycles, pointAt, pick: (name) => pick(byName.get(name) || null, false), setView, fit,
  rectangles: () => plots.flatMap((p) => p.rectangles.map((r) => ({ buffer: r.buffer.name, pool: p.pool.name, first: r.first, last: r.last, ...p.box(r) }))),
  written: () => seen().flatMap((p) => p.written),
  axes: () => plots.map((p) => ({ pool: p.pool.name, left: LEFT, width: p.plotWidth, top: p.mapTop, height: p.mapHeight, view: [...state.view], address: [...p.address] })),
};
for (const p of tracks) p.resize();
for (const p of seen()) p.draw();
window.npuMemplan.painted = performance.now();
// report.html#NAME opens with that buffer in hand
if (byName.has(decodeURIComponent(location.hash.slice(1)))) pick(byName.get(decodeURIComponent(location.hash.slice(1))), false);
