// Everything around the map: cards, legend, pools, the peak, the panel of the buffer in hand.
function makeCards() {
  const host = $("cards");
  makeFitCard(host);
  for (const p of data.pools) {
    const scale = Math.max(p.capacity || 0, p.used, p.bound, 1);
    const tight = p.used === p.bound;
    const over = p.used - p.bound, small = over < p.bound / 100;
    const badge = p.used === 0 ? ["", "unused"] : tight ? ["good", "at its bound"] : ["", (small ? bytes(over) : percent(over, p.bound)) + " over its bound"];
    host.append(element("div", { class: "card" },
      element("div", { class: "label" }, "pool " + p.name, element("span", { class: "badge " + badge[0] }, badge[1])),
      element("div", { class: "value" }, kib(p.used), " ", element("small", {}, bytes(p.used))),
      element("div", { class: "gauge" }, element("i", { style: `width:${(100 * p.used) / scale}%` }), element("b", { style: `left:${(100 * p.bound) / scale}%`, title: "bound" })),
      element("div", { class: "quiet" }, p.capacity ? `${percent(p.used, p.capacity)} of ${kib(p.capacity)}, ${bytes(p.capacity - p.used)} free` : `no size given; no plan is below ${kib(p.bound)}`)));
  }
  makeVelaCard(host);
  host.append(element("div", { class: "card" },
    element("div", { class: "label" }, "work"),
    element("div", { class: "value" }, number.format(data.npu_operations), " ", element("small", {}, "NPU operations")),
    data.busy === null ? null : element("div", { class: "quiet" }, `about ${number.format(data.estimated_cycles)} cycles, ${percent(data.busy, 1)} of its peak`),
    data.bounds ? element("div", { class: "quiet" }, data.bounds) : null,
    element("div", { class: "quiet" }, `read-only: ${kib(data.constants_bytes)} weights, ${kib(data.stream_bytes)} streams`)));
}

// What Vela's own placement and stream take, compared with ours.
function makeVelaCard(host) {
  const used = new Map(data.pools.map((p) => [p.name, p.used]));
  const rows = Object.entries(data.vela.bytes).filter(([name]) => used.has(name)).map(([name, theirs]) => [name + ", KiB", used.get(name), theirs, inKib]);
  if (data.vela.cycles && data.estimated_cycles) rows.push(["cycles (our estimates)", data.estimated_cycles, data.vela.cycles, number.format]);
  if (!rows.length) return;
  const card = element("div", { class: "card", id: "vela" }, element("div", { class: "label" }, "compared with Vela", element("span", {}, "ours / Vela's")));
  for (const [label, ours, theirs, text] of rows) {
    const most = Math.max(ours, theirs), change = (100 * (ours - theirs)) / theirs;
    card.append(element("div", { class: "pair" },
      element("span", {}, label),
      element("span", { class: ours < theirs ? "less" : ours > theirs ? "more" : "" }, `${change > 0 ? "+" : ""}${change.toFixed(1)} %`),
      element("span", { class: "big" }, `${text(ours)} / ${text(theirs)}`),
      element("div", { class: "meter" }, element("i", { class: "second", style: `width:${(100 * ours) / most}%` })),
      element("div", { class: "meter" }, element("i", { style: `width:${(100 * theirs) / most}%` }))));
  }
  host.append(card);
}

// The first card: does it fit, how long does it take.
function makeFitCard(host) {
  const f = data.fit, badge = f.fits === null ? ["", "no size given"] : f.fits ? ["good", "fits"] : ["warn", "does not fit"];
  const rows = f.rows.map(([name, used, size]) => element("div", { class: "quiet" }, `${name}: ${number.format(used)} of ${bytes(size)}, ${percent(size - used, size)} free`));
  host.append(element("div", { class: "card", id: "fit" },
    element("div", { class: "label" }, f.where ? "fit on " + f.where : "fit and time", element("span", { class: "badge " + badge[0] }, badge[1])),
    element("div", { class: "value" }, ...(f.ms === null ? ["time unknown"] : [f.ms.toFixed(3) + " ms ", element("small", {}, "estimated")])),
    !data.clock_hz || f.ms === null ? null : element("div", { class: "quiet" }, `the NPU at ${number.format(data.clock_hz / 1e6)} MHz` + (f.most_ms.toFixed(3) > f.ms.toFixed(3) ? `; up to ${f.most_ms.toFixed(3)} ms by how memories are shared` : "")),
    f.host ? element("div", { class: "quiet" }, f.host) : null,
    ...rows, rows.length ? null : element("div", { class: "quiet" }, "give --board, or --pool NAME=SIZE, to be told whether it fits"),
    element("div", { class: "quiet" }, `plan ${data.status}: ` + (data.status === "optimal" ? "proven, no placement is smaller"
      : data.pools.every((p) => p.used === p.bound) ? "no pool can be lower; who spills is not proven best"
      : data.stopped_early ? `stopped by its budget (${data.budget})` : "a smaller placement is not excluded"))));
}

const LEGEND_LAYERS = 16;
function makeLegend() {
  const host = $("legend");
  host.replaceChildren();
  const present = new Set(buffers.map(lookOf));
  const every = state.colour === "agent" ? Object.values(data.agents) : state.colour === "layer" ? [...data.layers, NO_LAYER] : data.kinds;
  const entries = every.filter((e) => present.has(e));
  for (const e of entries.slice(0, state.colour === "layer" ? LEGEND_LAYERS : entries.length)) {
    const mark = element("i", { style: `background:${e.colour}` });
    // a kind in the legend is also a filter: a second click takes it away
    if (state.colour !== "agent" && e !== NO_LAYER) host.append(element("button", { type: "button", title: "Show only these", onclick: () => search(state.query === e.label ? "" : e.label) }, mark, e.label));
    else host.append(element("span", {}, mark, e.label));
  }
  if (state.colour === "layer" && entries.length > LEGEND_LAYERS) host.append(element("span", {}, `and ${entries.length - LEGEND_LAYERS} more layers, in program order`));
  if (data.pools.some((_, i) => sharedAreas(i).length)) host.append(element("span", {}, element("i", { class: "shared" }), "shared on purpose"));
  host.append(element("span", {}, element("i", { class: "line", style: "border-color:var(--good)" }), "lower bound"));
  if (data.pools.some((p) => p.capacity)) host.append(element("span", {}, element("i", { class: "line", style: "border-color:var(--warn)" }), "capacity"));
}

function makePools(plots, redraw) {
  data.pools.forEach((p, i) => {
    const chip = element("button", { type: "button", "aria-pressed": "true", "data-pool": p.name }, p.name);
    chip.addEventListener("click", () => {
      if (state.shown.has(i)) state.shown.delete(i); else state.shown.add(i);
      chip.setAttribute("aria-pressed", String(state.shown.has(i)));
      plots[i].node.hidden = !state.shown.has(i);
      redraw();
    });
    $("pools").append(chip);
  });
}

function makePeaks(pick, goTo) {
  data.pools.forEach((p, i) => {
    if (!p.used) return;
    const live = aliveAt(i, p.peak.point).sort((a, b) => b.size - a.size || a.index - b.index);
    const most = live.length ? live[0].size : 1, shown = live.slice(0, 14);
    const lost = p.used - p.peak.bytes;
    const jump = element("button", { type: "button", onclick: () => goTo(Math.max(0, p.peak.point - 5), p.peak.point + 6) }, `point ${p.peak.point}`);
    const where = pointLabel(p.peak.point);
    const block = element("div", { class: "peak" },
      element("p", {}, element("strong", {}, p.name), `: ${both(p.peak.bytes)} live at `, jump, where ? ` ${where}` : "",
        lost > 0 ? `; the pool is ${bytes(lost)} higher because of gaps between buffers` : "; the plan wastes nothing there"));
    for (const b of shown) {
      block.append(element("div", { class: "row" },
        element("button", { type: "button", title: b.name, onclick: () => pick(b, true) }, shortened(b.name, 30)),
        element("div", { class: "track" }, element("i", { style: `width:${Math.max(0.5, (100 * b.size) / most)}%;background:${data.kinds[b.kind].colour}` })),
        element("span", { class: "num quiet" }, kib(b.size)), element("span", { class: "num quiet" }, percent(b.size, p.peak.bytes))));
    }
    if (live.length > shown.length) block.append(element("p", { class: "quiet" }, `and ${live.length - shown.length} smaller ones, ${both(live.slice(14).reduce((s, b) => s + b.size, 0))}`));
    $("peaks").append(block);
  });
}

// of the layer that makes `b`
function layerCycles(b) {
  const o = b.made < 0 ? undefined : data.operators[data.operator_of[b.made]];
  return o && o.cycles !== undefined ? `~${number.format(o.cycles)} of the layer, ${percent(o.cycles, data.estimated_cycles)}; bound by ${o.bound}` : "";
}

function describe(b, pick) {
  const host = $("detail");
  if (!b) {
    host.replaceChildren(element("p", { class: "quiet" }, "Point at a rectangle for its name, size and lifetime; click it to follow what feeds it and what it feeds."));
    data.pools.forEach((p, i) => {
      const live = p.used ? aliveAt(i, p.peak.point).sort((x, y) => y.size - x.size || x.index - y.index) : [];
      if (!live.length) return;
      host.append(element("div", { class: "links", style: "margin-top:.9rem" }, element("h3", {}, `At the peak of ${p.name}`),
        ...live.slice(0, 6).map((o) => element("button", { type: "button", title: o.name, onclick: () => pick(o, false) }, element("span", {}, kib(o.size)), swatch(o), shortened(o.name, 25)))));
    });
    for (const note of data.notes) host.append(element("p", { class: "quiet", style: "margin-top:.6rem" }, note));
    return;
  }
  const kin = family(b), p = data.pools[b.pool];
  const rows = [["kind", data.kinds[b.kind].label], ["layer", b.layer < 0 ? "none" : data.layers[b.layer].label], ["cycles", layerCycles(b)], ["size", both(b.size)], ["place", `${p.name} ${number.format(b.offset)} – ${number.format(b.offset + b.size)}`],
    ["points", lifetimeText(b)], ["made by", b.producer || "the caller"], ["read by", b.consumers.join(", ") || "the caller"],
    ["touched by", data.agents[b.agents].label], ["alignment", bytes(b.alignment)]];
  if (b.read || b.write) rows.push(["traffic", `${bytes(b.read)} read, ${number.format(b.write)} written`]);
  if (b.fixed) rows.push(["fixed", "its place was given, not planned"]);
  const live = rectanglesOf(b).some((r) => r.first <= p.peak.point && p.peak.point < r.last);
  rows.push(["at the peak", live ? percent(b.size, p.peak.bytes) + " of it" : "not live"]);
  const list = element("dl", {});
  for (const [k, v] of rows) if (v) list.append(element("dt", {}, k), element("dd", {}, v));
  const links = (title, others) => others.length ? element("div", { class: "links" }, element("h3", {}, title),
    ...others.slice(0, 12).map((o) => element("button", { type: "button", title: o.name, onclick: () => pick(o, false) }, element("span", {}, kib(o.size)), shortened(o.name, 27)))) : null;
  const shares = data.shares.filter((s) => s[0] === b.index || s[1] === b.index);
  host.replaceChildren(element("h3", {}, swatch(b), b.name), list,
    ...[links("Comes from", kin.up), links("Goes to", kin.down), links("Shares bytes with", shares.map((s) => buffers[s[0] === b.index ? s[1] : s[0]]))].filter(Boolean));
}
