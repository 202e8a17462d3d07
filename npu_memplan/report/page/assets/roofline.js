// Multiply-accumulates a cycle over those a byte of one memory; a layer's time is that in which its kernels run or its bytes move.
let LAYERS = [];

function layerTimes() {
  const spans = new Map();
  if (timeline) for (const s of timeline.slices) {
    const o = data.operator_of[s.point];
    if (o >= 0) spans.set(o, [...(spans.get(o) || []), [s.start, s.stop]]);
  }
  const found = [];
  for (const [o, list] of spans) {
    let busy = 0, end = -1;
    for (const [start, stop] of list.sort((a, b) => a[0] - b[0])) { busy += Math.max(0, stop - Math.max(start, end)); end = Math.max(end, stop); }
    if (busy && data.operators[o].macs) found.push({ ...data.operators[o], busy_cycles: busy });
  }
  return found;
}

function drawRoofline(memory) {
  const { peak, rates } = data.roofs, rate = rates[memory];
  const layers = LAYERS.filter((l) => l.bytes[memory]).sort((a, b) => b.busy_cycles - a.busy_cycles); // the longest are named first
  const marks = layers.map((l) => ({
    x: l.macs / l.bytes[memory], y: l.macs / l.busy_cycles, class: "point", name: String(l.index),
    title: `${l.index}: ${shortened(l.name, 44)} (${l.kind}): ${number.format(l.macs)} MACs, ${bytes(l.bytes[memory])} of ${memory}, ${number.format(l.busy_cycles)} cycles; ${percent(l.macs / l.busy_cycles, peak)} of the peak`,
    act: () => { const b = buffers.find((other) => other.made >= 0 && data.operator_of[other.made] === l.index); if (b) pick(b, false); },
  }));
  const most = Math.max(...marks.map((m) => m.x), (2 * peak) / rate), least = Math.min(...marks.map((m) => m.x), peak / rate / 2);
  const lines = [{ points: [[least, least * rate], [peak / rate, peak]], class: "roof", name: `${memory}: ${trim(rate)} bytes a cycle` },
    { points: [[peak / rate, peak], [most, peak]], class: "roof", name: `${number.format(peak)} MACs a cycle` }];
  $("roofline-plot").replaceChildren(marks.length ? scatterPlot({ x: `MACs a byte of ${memory}`, y: "MACs a cycle", marks, lines, omitNames: true })
    : element("p", { class: "quiet" }, `no layer with multiply-accumulates moves bytes of ${memory}`));
  for (const other of $("memories").children) other.setAttribute("aria-pressed", String(other.textContent === memory));
}

function makeRoofline() {
  LAYERS = layerTimes();
  const names = data.roofs ? Object.keys(data.roofs.rates).filter((m) => LAYERS.some((l) => l.bytes[m])) : [];
  $("roofline").hidden = $("to-roofline").hidden = !names.length;
  if (!names.length) return;
  for (const m of names) $("memories").append(element("button", { type: "button", onclick: () => drawRoofline(m) }, m));
  const total = (m) => LAYERS.reduce((sum, l) => sum + (l.bytes[m] || 0) / data.roofs.rates[m], 0);
  drawRoofline([...names].sort((a, b) => total(b) - total(a))[0]); // where bytes take the most time
}
