// Searchable, sortable tables. Only the rows in sight exist, so 10,000 rows scroll like ten.
const ROW = 27, ALL_UP_TO = 150, PRINTED = 2000;

class DataTable {
  // columns: [heading, row => text, numeric?, row => class or node]
  constructor(host, rows, columns, options) {
    this.host = $(host); this.columns = columns; this.options = options || {};
    this.sort = null; this.query = ""; this.printing = false;
    this.body = element("tbody");
    const heads = columns.map((c, i) => element("th", { class: c.numeric ? "num" : null, scope: "col", "aria-sort": "none", onclick: () => this.order(i) },
      element("button", { type: "button", title: "Sort by " + c.head }, c.head)));
    this.heads = heads;
    this.host.append(element("table", {}, element("thead", {}, element("tr", {}, ...heads)), this.body));
    this.host.addEventListener("scroll", () => this.paint());
    this.at = -1; // the row under the keyboard, in the order shown
    this.host.addEventListener("keydown", (e) => this.key(e));
    if (this.options.input) $(this.options.input).addEventListener("input", (e) => this.filter(e.target.value));
    this.replace(rows);
  }

  replace(rows) {
    this.rows = rows; this.keys = null;
    this.filter(this.query);
  }

  filter(query) {
    this.query = query.trim().toLowerCase(); this.at = -1;
    const words = this.query.split(/\s+/).filter(Boolean);
    this.visible = [];
    // made when they are first needed: the texts of 10,000 rows take longer than painting a page
    if (words.length && this.keys === null) this.keys = this.rows.map((r) => this.columns.map((c) => String(c.text(r))).join(" ").toLowerCase());
    for (let i = 0; i < this.rows.length; i++) if (words.every((w) => this.keys[i].includes(w))) this.visible.push(i);
    if (this.sort) this.applySort();
    if (this.options.count) $(this.options.count).textContent =
      this.visible.length === this.rows.length ? number.format(this.rows.length) : `${number.format(this.visible.length)} of ${number.format(this.rows.length)}`;
    this.host.scrollTop = 0; this.paint(true);
  }

  key(e) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[e.key];
    if (e.target !== this.host || (!step && e.key !== "Enter")) return;
    e.preventDefault();
    if (e.key === "Enter") { if (this.options.click && this.visible[this.at] !== undefined) this.options.click(this.rows[this.visible[this.at]]); return; }
    this.at = Math.min(Math.max(this.at + step, 0), this.visible.length - 1);
    const top = this.at * ROW, room = this.host.clientHeight - 2 * ROW;
    if (top < this.host.scrollTop || top > this.host.scrollTop + room) this.host.scrollTop = Math.max(0, top - room / 2);
    this.paint(true);
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
    const rows = this.visible.slice(from, to).map((i, k) => this.row(this.rows[i], from + k === this.at));
    this.body.replaceChildren(this.gap(from), ...rows, this.gap(this.printing ? 0 : total - to));
  }

  gap(count) {
    return element("tr", { class: "gap", "aria-hidden": "true" }, element("td", { colspan: this.columns.length, style: `height:${count * ROW}px` }));
  }

  row(row, at) {
    const cells = this.columns.map((c) => {
      const content = c.node ? c.node(row) : c.mono ? shortened(c.text(row), 44) : c.text(row);
      return element("td", { class: (c.numeric ? "num " : "") + (c.mono ? "mono" : ""), title: String(c.text(row)) }, content);
    });
    const on = this.options.on && this.options.on(row);
    return element("tr", { class: [on && "on", at && "at"].filter(Boolean).join(" ") || null, "aria-selected": at ? "true" : null, onclick: this.options.click ? () => this.options.click(row) : null }, ...cells);
  }
}
