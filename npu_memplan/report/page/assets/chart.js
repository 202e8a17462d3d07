// One scatter plot for all pages: round ticks, units in the titles, logarithmic where values are far apart.
const CHART = { width: 460, height: 340, left: 62, right: 16, top: 26, bottom: 48 }, FAR_APART = 8;

function svgElement(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
// a mark that works as a button does, by mouse and keyboard
function pressable(node, label, act) {
  for (const [key, value] of Object.entries({ tabindex: "0", role: "button", "aria-label": label })) node.setAttribute(key, value);
  node.addEventListener("click", act);
  node.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); act(); } });
  return node;
}

function axisOf(values, start, end) {
  const least = Math.min(...values), most = Math.max(...values), log = least > 0 && most > FAR_APART * least;
  const low = log ? least / 1.3 : 0, high = log ? most * 1.3 : most * 1.08 || 1;
  const part = log ? (v) => Math.log(v / low) / Math.log(high / low) : (v) => (v - low) / (high - low);
  return { log, low, high, at: (v) => start + (end - start) * part(v), ticks: log ? powersBetween(low, high) : steps(high) };
}
function powersBetween(low, high) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high)), found = [];
  for (let p = from; p <= to; p++) for (const k of to - from > 4 ? [1] : [1, 2, 5]) {
    const v = k * 10 ** p;
    if (low <= v && v <= high) found.push(v);
  }
  return found;
}
function steps(high) {
  const step = niceStep(high / 5);
  return Array.from({ length: Math.floor(high / step) + 1 }, (_, k) => k * step);
}
function niceStep(v) { // 1, 2, 5 or 10 times a power of ten, at least v
  const power = 10 ** Math.floor(Math.log10(Math.max(v, 1e-9))), f = v / power;
  return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10) * power;
}
function short(v) {
  for (const [unit, size] of [["M", 1e6], ["k", 1e3]]) if (v >= size) return `${Number((v / size).toPrecision(3))} ${unit}`;
  return String(Number(v.toPrecision(3)));
}

// chart: { width (of the drawing), x, y: titles, marks: [{x, y, class, name, title, act}], lines: [{points, class, name}] }, in the units of the titles
function scatterPlot(chart) {
  const { width, height, left, right, top, bottom } = { ...CHART, ...(chart.width && { width: chart.width }) }, floor = height - bottom, edge = width - right;
  const points = [...chart.marks.map((m) => [m.x, m.y]), ...(chart.lines || []).flatMap((l) => l.points)];
  const across = axisOf(points.map((p) => p[0]), left, edge), up = axisOf(points.map((p) => p[1]), floor, top), nodes = [];
  const scale = (axis) => (axis.log ? ", logarithmic" : "");
  for (const v of across.ticks) nodes.push(svgElement("line", { class: "axis", x1: across.at(v), x2: across.at(v), y1: top, y2: floor }),
    svgElement("text", { class: "tick", x: across.at(v), y: floor + 15, "text-anchor": "middle" }, short(v)));
  for (const v of up.ticks) nodes.push(svgElement("line", { class: "axis", x1: left, x2: edge, y1: up.at(v), y2: up.at(v) }),
    svgElement("text", { class: "tick", x: left - 6, y: up.at(v) + 4, "text-anchor": "end" }, short(v)));
  nodes.push(svgElement("text", { class: "title", x: (left + edge) / 2, y: height - 10, "text-anchor": "middle" }, chart.x + scale(across)),
    svgElement("text", { class: "title", x: 4, y: 13 }, chart.y + scale(up)));
  const taken = chart.marks.map((m) => [across.at(m.x) - 5, up.at(m.y) - 5, 10, 10]);
  for (const l of chart.lines || []) {
    const drawn = l.points.map((p) => [across.at(p[0]), up.at(p[1])]), [x, y] = drawn[0];
    nodes.push(svgElement("polyline", { class: "line " + (l.class || ""), points: drawn.map((p) => p.join()).join(" ") }));
    if (!l.name) taken.push(...along(drawn));
    else nodes.push(writeBeside(l.name, x, y, taken, left, edge, [y + 6]));
  }
  for (const m of chart.marks) {
    const mark = svgElement("circle", { class: "mark " + m.class, cx: across.at(m.x), cy: up.at(m.y), r: 4.5 }, svgElement("title", {}, m.title));
    nodes.push(m.act ? pressable(mark, m.title, m.act) : mark);
  }
  for (const m of chart.marks) if (m.name) nodes.push(writeBeside(m.name, across.at(m.x), up.at(m.y), taken, left, edge, [], chart.omitNames));
  return svgElement("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": `${chart.y} over ${chart.x}` }, ...nodes.filter((n) => n !== null));
}

// boxes along a line that no name is to cover
function along(points) {
  const found = [];
  for (let i = 1; i < points.length; i++) {
    const [a, b] = [points[i - 1], points[i]], n = Math.ceil(Math.hypot(b[0] - a[0], b[1] - a[1]) / 6);
    for (let k = 0; k <= n; k++) found.push([a[0] + ((b[0] - a[0]) * k) / n - 1, a[1] + ((b[1] - a[1]) * k) / n - 1, 2, 2]);
  }
  return found;
}

// `text` next to x, y: over no mark and no other name where there is such a place
function writeBeside(text, x, y, taken, left, edge, first = [], onlyFree = false) {
  const w = (innerWidth <= 560 ? 7.6 : 6.3) * text.length, places = [];
  for (const t of [...first, y - 17, y + 5, y - 6, y - 29, y + 17]) for (const l of [x + 7, x - 7 - w]) if (l >= left && l + w <= edge && t >= 0) places.push([l, t]);
  if (!places.length) places.push([Math.max(left, Math.min(x + 7, edge - w)), Math.max(0, y - 17)]);
  const free = ([l, t]) => !taken.some(([a, b, c, d]) => l < a + c && a < l + w && t < b + d && b < t + 12);
  const place = places.find(free);
  if (!place && onlyFree) return null; // a pointer on the mark, or Tab, tells
  const [l, t] = place || places[0];
  taken.push([l, t, w, 12]);
  return svgElement("text", { class: "name", x: l, y: t + 10 }, text);
}
