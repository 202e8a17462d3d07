// The tables of buffers, operators and calls.
function swatch(b) { return element("i", { class: "swatch", style: `background:${colourOf(b)}` }); }
const agentNode = (name) => element("span", { class: name }, name.toUpperCase());

function makeTables(pick, goTo) {
  const tables = {};
  tables.buffers = new DataTable("table-buffers", buffers, [
    { head: "buffer", text: (b) => b.name, mono: true, node: (b) => { return element("span", {}, swatch(b), shortened(b.name, 40)); } },
    { head: "kind", text: (b) => data.kinds[b.kind].label },
    { head: "pool", text: (b) => data.pools[b.pool].name },
    { head: "offset", text: (b) => number.format(b.offset), value: (b) => b.offset, numeric: true },
    { head: "bytes", text: (b) => number.format(b.size), value: (b) => b.size, numeric: true },
    { head: "KiB", text: (b) => inKib(b.size), value: (b) => b.size, numeric: true },
    { head: "points", text: lifetimeText, value: (b) => b.first, numeric: true },
    { head: "made by", text: (b) => b.producer },
    { head: "read by", text: (b) => b.consumers.join(", ") },
    { head: "touched by", text: (b) => data.agents[b.agents].label },
  ], { input: "find-buffers", count: "count-buffers", click: (b) => pick(b, true), on: (b) => b === state.picked });
  tables.operators = new DataTable("table-operators", data.operators, [
    { head: "#", text: (o) => String(o.index), value: (o) => o.index, numeric: true },
    { head: "operator", text: (o) => o.name, mono: true },
    { head: "kind", text: (o) => o.kind },
    { head: "runs on", text: (o) => o.agent, node: (o) => agentNode(o.agent) },
    { head: "cycles", text: (o) => o.cycles === undefined ? "" : "~" + number.format(o.cycles), value: (o) => o.cycles || 0, numeric: true },
    { head: "CPU, cycles", text: (o) => o.host === undefined ? "" : "~" + number.format(o.host), value: (o) => o.host || 0, numeric: true },
    { head: "share", text: (o) => o.cycles === undefined ? "" : percent(o.cycles, data.estimated_cycles), value: (o) => o.cycles || 0, numeric: true },
    { head: "MACs", text: (o) => o.macs ? number.format(o.macs) : "", value: (o) => o.macs || 0, numeric: true },
    { head: "of its peak", text: (o) => o.macs ? percent(o.busy, 1) : "", value: (o) => o.busy || 0, numeric: true },
    { head: "moved", text: (o) => Object.entries(o.bytes || {}).map(([m, n]) => `${m} ${bytes(n)}`).join(", ") },
    { head: "bound by", text: (o) => o.bound || "" },
    { head: "why not on the NPU", text: (o) => o.reason },
  ], { input: "find-operators", count: "count-operators", click: (o) => byName.has(o.name) && pick(byName.get(o.name), true) });
  tables.calls = new DataTable("table-calls", data.calls, [
    { head: "#", text: (c) => String(c.index), value: (c) => c.index, numeric: true },
    { head: "function", text: (c) => c.function, mono: true },
    { head: "runs on", text: (c) => c.agent, node: (c) => agentNode(c.agent) },
    { head: "points", text: (c) => `${c.first}–${c.last - 1}`, value: (c) => c.first, numeric: true },
    { head: "cycles", text: (c) => c.cycles === null ? "" : "~" + number.format(c.cycles), value: (c) => c.cycles || 0, numeric: true },
    { head: "reads", text: (c) => c.reads.map((i) => buffers[i].name).join(", ") },
    { head: "writes", text: (c) => c.writes.map((i) => buffers[i].name).join(", ") },
  ], { input: "find-calls", count: "count-calls", click: (c) => goTo(c.first, c.last) });
  if (!data.operators.length) $("operators").hidden = true;
  if (!data.calls.length) $("calls").hidden = true;
  addEventListener("beforeprint", () => { for (const t of Object.values(tables)) { t.printing = true; t.paint(true); } });
  addEventListener("afterprint", () => { for (const t of Object.values(tables)) { t.printing = false; t.paint(true); } });
  return tables;
}
