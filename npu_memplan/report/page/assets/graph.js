// The network as layers and tensors, top down; a layer is what runs for one operator of the model, or one call of the host.
const BOX = { width: 252, height: 46, gap: 40, side: 26 }, MOST_LAYERS = 1500;

function layersAndTensors() {
  const nodes = [], ofPoint = new Array(data.end).fill(-1), known = new Map();
  for (const call of data.calls) for (let t = call.first; t < call.last; t++) {
    const o = data.operators[data.operator_of[t]], key = o ? "operator " + o.index : "call " + call.index;
    if (!known.has(key)) {
      known.set(key, nodes.length);
      nodes.push({ title: o ? o.kind : call.function, name: o ? o.name : call.agent === "npu" ? "other operations" : "host call", agent: call.agent, cycles: o ? o.cycles : undefined, first: Infinity, makes: [], takes: [] });
    }
    ofPoint[t] = known.get(key);
  }
  const ports = []; // graph inputs and outputs are boxes as well
  for (const b of buffers) {
    const kind = data.kinds[b.kind].name, producer = b.made < 0 ? -1 : ofPoint[b.made];
    const takers = [...new Set(b.used.map((t) => ofPoint[t]))].filter((n) => n >= 0 && n !== producer);
    if (kind === "weights" || kind === "resident") continue; // they come from no layer
    if (producer >= 0) { nodes[producer].makes.push(b); nodes[producer].first = Math.min(nodes[producer].first, b.made); }
    for (const n of takers) nodes[n].takes.push(b);
    if (kind === "input" || kind === "output") ports.push({ title: data.kinds[b.kind].label, name: b.name, agent: "", makes: kind === "input" ? [b] : [], takes: kind === "output" ? [b] : [] });
  }
  nodes.sort((a, b) => a.first - b.first); // by results: transfers of weights run ahead of their layer
  return [...ports.filter((p) => p.makes.length), ...nodes, ...ports.filter((p) => p.takes.length)];
}

function edgesOf(nodes) {
  const madeBy = new Map(), edges = new Map();
  nodes.forEach((n, i) => n.makes.forEach((b) => madeBy.has(b) || madeBy.set(b, i)));
  nodes.forEach((n, i) => n.takes.forEach((b) => {
    const from = madeBy.get(b);
    if (from === undefined || from >= i) return; // program order: no edge goes back
    const key = from + " " + i;
    if (!edges.has(key)) edges.set(key, { from, to: i, tensors: [] });
    edges.get(key).tensors.push(b);
  }));
  return [...edges.values()];
}

function makeGraph() {
  const nodes = layersAndTensors(), edges = edgesOf(nodes), host = $("graph-plot");
  $("graph").hidden = $("to-graph").hidden = !edges.length || nodes.length > MOST_LAYERS;
  if ($("graph").hidden) return;
  for (const n of nodes) n.row = 0;
  for (const e of [...edges].sort((a, b) => a.to - b.to)) nodes[e.to].row = Math.max(nodes[e.to].row, nodes[e.from].row + 1);
  const rows = [];
  for (const n of nodes) { n.column = (rows[n.row] = rows[n.row] || []).push(n) - 1; }
  const wide = Math.max(...rows.map((r) => (r ? r.length : 0))), step = BOX.width + BOX.side;
  for (const n of nodes) { n.x = 12 + (n.column + (wide - rows[n.row].length) / 2) * step; n.y = 10 + n.row * (BOX.height + BOX.gap); }
  const lanes = []; // edges past other rows run to the right of the boxes, one lane each as long as they overlap
  for (const e of edges) {
    const a = nodes[e.from], b = nodes[e.to];
    e.lane = -1;
    if (b.row - a.row < 2) continue;
    e.lane = lanes.findIndex((end) => end <= a.row);
    if (e.lane < 0) e.lane = lanes.push(0) - 1;
    lanes[e.lane] = b.row;
  }
  const right = 12 + wide * step, width = right + lanes.length * 96 + 12, height = rows.length * (BOX.height + BOX.gap) + 10;
  const most = Math.max(1, ...nodes.map((n) => n.cycles || 0));
  host.append(svgElement("svg", { class: "graph", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Layers and tensors; Enter picks" },
    ...edges.map((e) => drawEdge(e, nodes, right)), ...nodes.map((n) => drawLayer(n, most))));
}

function drawEdge(e, nodes, right) {
  const a = nodes[e.from], b = nodes[e.to], x0 = a.x + BOX.width / 2, y0 = a.y + BOX.height, x1 = b.x + BOX.width / 2, y1 = b.y;
  const lane = right + e.lane * 96 + 44, middle = e.lane < 0 ? [(x0 + x1) / 2, (y0 + y1) / 2] : [lane, (y0 + y1) / 2];
  const path = e.lane < 0 ? `M${x0} ${y0} C${x0} ${(y0 + y1) / 2} ${x1} ${(y0 + y1) / 2} ${x1} ${y1}`
    : `M${x0} ${y0} C${x0} ${y0 + 26} ${lane} ${y0} ${lane} ${y0 + 40} V${y1 - 40} C${lane} ${y1} ${x1} ${y1 - 26} ${x1} ${y1}`;
  const largest = e.tensors.reduce((m, t) => (t.size > m.size ? t : m)), total = e.tensors.reduce((sum, t) => sum + t.size, 0);
  const text = (e.tensors.length > 1 ? e.tensors.length + ": " : "") + kib(total), w = 6.6 * text.length + 12;
  const label = svgElement("g", { class: "tensor" }, svgElement("rect", { x: middle[0] - w / 2, y: middle[1] - 9, width: w, height: 18, rx: 9 }),
    svgElement("text", { x: middle[0], y: middle[1] + 4, "text-anchor": "middle" }, text), svgElement("title", {}, e.tensors.map((t) => t.name).join(", ")));
  const node = svgElement("g", { class: "edge" }, svgElement("path", { d: path }), pressable(label, `tensor ${largest.name}, ${kib(total)}`, () => pick(largest, false)));
  node.tensors = new Set(e.tensors);
  return node;
}

function drawLayer(n, most) {
  const share = n.cycles === undefined ? "" : `~${number.format(n.cycles)}  ${percent(n.cycles, data.estimated_cycles)}`;
  const node = svgElement("g", { class: "layer " + n.agent, transform: `translate(${n.x} ${n.y})` },
    svgElement("rect", { class: "box", width: BOX.width, height: BOX.height, rx: 7 }), svgElement("rect", { class: "agent", width: 4, height: BOX.height - 12, x: 4, y: 6, rx: 2 }),
    svgElement("text", { class: "kind", x: 15, y: 18 }, shortened(n.title, share ? 20 : 32)), svgElement("text", { class: "cycles", x: BOX.width - 8, y: 18, "text-anchor": "end" }, share),
    svgElement("text", { class: "name", x: 15, y: 33 }, shortened(n.name, 38)),
    svgElement("rect", { class: "share", x: 15, y: BOX.height - 7, height: 3, width: (BOX.width - 23) * ((n.cycles || 0) / most), rx: 1.5 }), svgElement("title", {}, n.name));
  node.tensors = new Set([...n.makes, ...n.takes]);
  const made = n.makes.length ? n.makes.reduce((m, t) => (t.size > m.size ? t : m)) : n.takes[0];
  return made ? pressable(node, `${n.title} ${n.name} ${share}`, () => pick(made, false)) : node;
}

// what is picked, in words, and where it is in the picture
function showInGraph(b) {
  for (const node of document.querySelectorAll(".graph .edge, .graph .layer")) node.classList.toggle("on", !!b && node.tensors.has(b));
  const description = b ? `${shortened(b.name, 44)}: ${both(b.size)} in ${data.pools[b.pool].name} at ${number.format(b.offset)}, points ${lifetimeText(b)}` : "Click a layer or a tensor: it is picked on the map as well.";
  const layer = b && b.made >= 0 ? `made by ${operatorAt(b.made)}` : "", time = b ? layerCycles(b) : "";
  $("graph-detail").replaceChildren(element("span", {}, [description, layer, time].filter(Boolean).join("; ") + " "),
    b ? element("button", { type: "button", onclick: () => $("map").scrollIntoView({ block: "start" }) }, "show on the map") : "");
}
