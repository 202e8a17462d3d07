// Searchable, sortable tables. Only the rows in sight exist, so 10,000 rows scroll like ten.
const ROW = 27, ALL_UP_TO = 150, PRINTED = 2000;

class DataTable {
  // columns: [heading, row => text, numeric?, row => class or node]
  constructor(host, rows, columns, options) {
    this.host = $(host); this.rows = rows; this.columns = columns; this.options = options || {};
    this.sort = null; this.query = ""; this.printing = false;
    this.keys = rows.map((r) => columns.map((c) => String(c.text(r))).join(" ").toLowerCase());
    this.body = element("tbody");
    const heads = columns.map((c, i) => element("th", { class: c.numeric ? "num" : null, scope: "col", "aria-sort": "none", onclick: () => this.order(i) },
      element("button", { type: "button", title: "Sort by " + c.head }, c.head)));
    this.heads = heads;
    this.host.append(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), this.body));
    this.host.addEventListener("scroll", () => this.paint());
    if (this.options.input) $(this.options.input).addEventListener("input", (e) => this.filter(e.target.value));
    this.filter("");
  }

  filter(query) {
    this.query = query.trim().toLowerCase();
    const words = this.query.split(/\s+/).filter(Boolean);
    this.visible = [];
    for (let i = 0; i < this.rows.length; i++) if (words.every((w) => this.keys[i].includes(w))) this.visible.push(i);
    if (this.sort) this.applySort();
    if (this.options.count) $(this.options.count).textContent =
      this.visible.length === this.rows.length ? number.format(this.rows.length) : `${number.format(this.visible.length)} of ${number.format(this.rows.length)}`;
    this.host.scrollTop = 0; this.paint(true);
  }

  order(i) {
    this.sort = this.sort && this.sort[0] === i ? [i, -this.sort[1]] : [i, this.columns[i].numeric ? -1 : 1];
    this.heads.forEach((h, j) => h.setAttribute("aria-sort", j !== i ? "none" : this.sort[1] > 0 ? "ascending" : "descending"));
    this.applySort(); this.paint(true);
  }

  applySort() {
    const [i, sign] = this.sort, column = this.columns[i];
    const value = (row) => (column.value ? column.value(row) : column.text(row));
    this.visible.sort((a, b) => {
      const x = value(this.rows[a]), y = value(this.rows[b]);
      return sign * (typeof x === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true })) || a - b;
    });
  }

  show(row) {
    const at = this.visible.indexOf(this.rows.indexOf(row));
    if (at >= 0) this.host.scrollTop = Math.max(0, at * ROW - this.host.clientHeight / 2);
    this.paint(true);
  }

  paint(force) {
    const total = this.visible.length;
    let from = 0, to = total;
    if (this.printing) to = Math.min(total, PRINTED);
    else if (total > ALL_UP_TO) {
      from = Math.max(0, Math.floor(this.host.scrollTop / ROW) - 10);
      to = Math.min(total, from + Math.ceil((this.host.clientHeight || 420) / ROW) + 24);
    }
    if (!force && this.range && this.range[0] === from && this.range[1] === to) return;
    this.range = [from, to];
    const rows = this.visible.slice(from, to).map((i) => this.row(this.rows[i]));
    this.body.replaceChildren(this.gap(from), ...rows, this.gap(this.printing ? 0 : total - to));
  }

  gap(count) {
    return element("tr", { class: "gap", "aria-hidden": "true" }, element("td", { colspan: this.columns.length, style: `height:${count * ROW}px` }));
  }

  row(row) {
    const cells = this.columns.map((c) => {
      const content = c.node ? c.node(row) : c.text(row);
      return element("td", { class: (c.numeric ? "num " : "") + (c.mono ? "mono" : ""), title: String(c.text(row)) }, content);
    });
    const on = this.options.on && this.options.on(row);
    return element("tr", { class: on ? "on" : null, onclick: this.options.click ? () => this.options.click(row) : null }, ...cells);
  }
}

function swatch(b) { return element("i", { class: "swatch", style: `background:${colourOf(b)}` }); }
const agentNode = (name) => element("span", { class: name }, name.toUpperCase());

function makeTables(pick, goTo) {
  const tables = {};
  tables.buffers = new DataTable("table-buffers", buffers, [
    { head: "buffer", text: (b) => b.name, mono: true, node: (b) => { const s = element("span", {}, swatch(b), b.name); return s; } },
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
