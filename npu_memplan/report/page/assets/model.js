// The plan, unpacked from the page's own JSON into one object a buffer.
const columns = data.buffers;
const buffers = columns.name.map((name, i) => ({
  index: i, name, size: columns.size[i], offset: columns.offset[i], pool: columns.pool[i],
  kind: columns.kind[i], layer: columns.layer[i], agents: columns.agents[i], lifetimes: columns.lifetimes[i],
  producer: data.labels[columns.producer[i]], consumers: columns.consumers[i].map((c) => data.labels[c]),
  made: columns.made[i], used: columns.used[i], read: columns.read[i], write: columns.write[i], alignment: columns.alignment[i], fixed: columns.fixed[i],
}));
for (const b of buffers) {
  b.first = b.lifetimes[0];
  b.last = b.lifetimes[b.lifetimes.length - 1];
  b.haystack = [b.name, b.layer < 0 ? "" : data.layers[b.layer].label, data.kinds[b.kind].name, data.kinds[b.kind].label, data.pools[b.pool].name, b.producer, ...b.consumers].join(" ").toLowerCase();
}
const byName = new Map(buffers.map((b) => [b.name, b]));

// One rectangle a lifetime; this list is what the map draws and what the tests compare with plan.json.
const rectangles = [];
for (const b of buffers) {
  for (let i = 0; i < b.lifetimes.length; i += 2) {
    rectangles.push({ buffer: b, first: b.lifetimes[i], last: b.lifetimes[i + 1], low: b.offset, high: b.offset + b.size });
  }
}

const pointLabel = (t) => data.labels[data.points[t]] || "";
const operatorAt = (t) => { const o = data.operators[data.operator_of[t]]; return o ? `${o.index}: ${shortened(o.name, 44)} (${o.kind})` : pointLabel(t); };
const lifetimeText = (b) => {
  const parts = [];
  for (let i = 0; i < b.lifetimes.length; i += 2) parts.push(`${b.lifetimes[i]}–${b.lifetimes[i + 1] - 1}`);
  return parts.join(", ");
};
// What nobody makes, or no known layer, is grey; on every colour stands the ink that can be read there.
const NO_LAYER = { label: "made by no layer", colour: "#b9c0c9", ink: "#000000" };
const lookOf = (b) => state.colour === "agent" ? data.agents[b.agents] : state.colour === "layer" ? data.layers[b.layer] || NO_LAYER : data.kinds[b.kind];
const colourOf = (b) => lookOf(b).colour;

// Live bytes of pool `p` at point `t`: the step function computed by the planner's report, by bisection.
function liveAt(p, t) {
  const { starts, live } = data.pools[p].curve;
  let low = 0, high = starts.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (starts[middle] <= t) low = middle + 1; else high = middle;
  }
  return low ? live[low - 1] : 0;
}
const aliveAt = (p, t) => buffers.filter((b) => b.pool === p && rectanglesOf(b).some((r) => r.first <= t && t < r.last));
function rectanglesOf(b) {
  const list = [];
  for (let i = 0; i < b.lifetimes.length; i += 2) list.push({ first: b.lifetimes[i], last: b.lifetimes[i + 1] });
  return list;
}

// Following a buffer: upstream feeds its producer, downstream is made by its consumers.
function family(b) {
  const eaters = new Set(b.consumers);
  const up = [], down = [];
  for (const other of buffers) {
    if (other === b) continue;
    if (b.producer && other.consumers.includes(b.producer)) up.push(other);
    if (other.producer && eaters.has(other.producer)) down.push(other);
  }
  return { up, down };
}

const state = {
  colour: "kind", query: "", picked: null, related: null, hover: null, cursor: null,
  cycles: data.time !== null, view: [0, data.time ? data.time.ends[data.end - 1] : data.end], shown: new Set(data.pools.map((_, i) => i)),
};
