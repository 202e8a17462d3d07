// Wiring: filters, tables. All state lives in `view`; drawing follows it.
let waiting = false;
function redraw() {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; drawGrid(); });
}

function apply() {
  filter();
  $("count-cells").textContent = `${number.format(view.matching)} of ${number.format(results.length)} results`;
  $("grid").scrollTop = 0; $("grid").scrollLeft = 0;
  redraw();
  showCheapest();
}

function choice(label, on, change) {
  const node = element("button", { type: "button", "aria-pressed": String(on) }, label);
  node.addEventListener("click", () => { node.setAttribute("aria-pressed", String(change())); apply(); });
  return node;
}
const toggle = (set, value) => { set.has(value) ? set.delete(value) : set.add(value); return set.has(value); };

function makeFilters() {
  for (const name of Object.keys(METRICS)) {
    const node = element("button", { type: "button", "data-metric": name, "aria-pressed": String(name === view.metric) }, name);
    node.addEventListener("click", () => {
      view.metric = name;
      for (const other of $("metrics").children) other.setAttribute("aria-pressed", String(other === node));
      redraw();
    });
    $("metrics").append(node);
  }
  const found = [...new Set(targets.map((t) => t.accelerator))];
  if (found.length > 1) for (const name of found) $("accelerators").append(choice(name.replace(/^ethos-/, ""), true, () => toggle(view.accelerators, name)));
  data.outcomes.forEach((name, i) => {
    const count = results.filter((r) => r.outcome === i).length;
    $("outcomes").append(choice(`${name} ${number.format(count)}`, true, () => toggle(view.outcomes, i)));
  });
  if (changesOf.size) $("outcomes").append(choice(`changed only ${number.format(changesOf.size)}`, false, () => (view.changed = !view.changed)));
  for (const id of ["find-networks", "find-targets"]) $(id).addEventListener("input", apply);
  $("deadline").addEventListener("input", showCheapest);
  if (data.deadline !== null) $("deadline").value = data.deadline;
}

let cheapestTable = null;
function showCheapest() {
  const typed = $("deadline").value, found = cheapestTargets(typed === "" ? null : Number(typed));
  view.cheapest = found;
  $("cheapest-note").textContent = found.length ? `${number.format(found.length)} of ${number.format(view.targets.length)} targets fit${typed === "" ? "" : " and keep to that on"} all ${counted(view.networks.length, "network")}` : `none of ${number.format(view.targets.length)} targets fits${typed === "" ? "" : " and keeps to that on"} all ${counted(view.networks.length, "network")}`;
  if (cheapestTable === null) {
    cheapestTable = new DataTable("table-cheapest", [], [
      { head: "target", text: (c) => c.target.name, mono: true },
      { head: "multipliers", text: (c) => number.format(c.target.multipliers), value: (c) => c.target.multipliers, numeric: true },
      { head: "SRAM, most", text: (c) => number.format(c.sram), value: (c) => c.sram, numeric: true },
      { head: "RAM, most", text: (c) => number.format(c.ram), value: (c) => c.ram, numeric: true },
      { head: "flash of all", text: (c) => number.format(c.flash), value: (c) => c.flash, numeric: true },
      { head: "ms of the slowest", text: (c) => (c.ms === null ? "unknown" : ms(c.ms)), value: (c) => (c.ms === null ? Infinity : c.ms), numeric: true },
      { head: "host calls, most", text: (c) => number.format(c.host), value: (c) => c.host, numeric: true },
    ]);
  }
  cheapestTable.replace(found);
}

function makeTables() {
  const tables = {};
  tables.results = new DataTable("table-results", results, [
    { head: "network", text: (r) => r.name, mono: true },
    { head: "target", text: (r) => r.on.name },
    { head: "result", text: (r) => r.outcomeName },
    { head: "SRAM", text: (r) => (r.sram === null ? "" : number.format(r.sram)), value: (r) => r.sram || 0, numeric: true },
    { head: "RAM", text: (r) => (r.ram === null ? "" : number.format(r.ram)), value: (r) => r.ram || 0, numeric: true },
    { head: "flash", text: (r) => (r.flash === null ? "" : number.format(r.flash)), value: (r) => r.flash || 0, numeric: true },
    { head: "ms", text: (r) => (r.fits ? time(r) : ""), value: (r) => r.ms || 0, numeric: true },
    { head: "results", text: (r) => data.texts[r.exactness] },
    { head: "plan", text: (r) => r.plan },
    { head: "reason", text: (r) => data.texts[r.reason] },
  ], { input: "find-results", count: "count-results", click: (r) => { pick(r); $("matrix").scrollIntoView(); } });
  $("changes").hidden = $("to-changes").hidden = data.against === null;
  if (data.against !== null) {
    const a = data.against, better = a.differences.length - a.regressions;
    $("changes-note").textContent = `${number.format(a.compared)} results compared: ${number.format(a.regressions)} figures worse, ${number.format(better)} better; ${number.format(a.added)} new, ${number.format(a.removed)} gone` +
      (a.other_models.length ? `; other models: ${a.other_models.join(", ")}` : "");
    tables.changes = new DataTable("table-changes", [...a.differences].sort((x, y) => y.worse - x.worse), [
      { head: "", text: (d) => (d.worse ? "worse" : "better"), node: (d) => element("span", { class: d.worse ? "worse" : "better" }, d.worse ? "worse" : "better") },
      { head: "network", text: (d) => d.network, mono: true },
      { head: "target", text: (d) => d.target },
      { head: "figure", text: (d) => d.what },
      { head: "before", text: (d) => (typeof d.before === "number" ? number.format(d.before) : String(d.before)), value: (d) => d.before, numeric: true },
      { head: "after", text: (d) => (typeof d.after === "number" ? number.format(d.after) : String(d.after)), value: (d) => d.after, numeric: true },
      { head: "change", text: (d) => (typeof d.before === "number" && d.before ? (100 * (d.after - d.before) / d.before).toFixed(1) + " %" : ""), value: (d) => (typeof d.before === "number" && d.before ? d.after / d.before : 0), numeric: true },
    ], { input: "find-changes", count: "count-changes", click: (d) => { pick(cells[networks.indexOf(d.network)][data.target_index[d.target]]); $("matrix").scrollIntoView(); } });
  }
  return tables;
}

function makeCards() {
  const fit = results.filter((r) => r.fits), run = fit.filter((r) => r.exact !== null);
  const cards = [["results", results.length, `${counted(networks.length, "network")}, ${counted(targets.length, "target")}`], ["fit", fit.length, percent(fit.length, results.length)],
    ["failed", results.filter((r) => !r.fits && r.outcomeName !== "no room").length, "refused, crashed or over a limit"],
    run.length ? ["exact when run", run.filter((r) => r.exact).length, `of ${number.format(run.length)} run`] : ["claimed exact", fit.filter((r) => r.inexact === 0).length, "not checked: nothing was run"]];
  if (data.against !== null) cards.push(["figures worse", data.against.regressions, "against the earlier sweep"]);
  for (const [label, value, note] of cards) $("cards").append(element("div", { class: "card" }, element("div", { class: "label" }, label), element("div", { class: "value" }, number.format(value)), element("div", { class: "quiet" }, note)));
}

$("grid").addEventListener("scroll", redraw);
$("grid").addEventListener("keydown", (e) => {
  const [down, right] = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[e.key] || [0, 0];
  if (!down && !right) return;
  e.preventDefault();
  let n = view.networks.indexOf(view.picked.network), t = view.targets.indexOf(view.picked.target), r = null;
  if (n < 0 || t < 0) { n = t = 0; r = cells[view.networks[0]]?.[view.targets[0]] || null; }
  while (r === null) { // past the cells that were not tried
    n += down; t += right;
    if (n < 0 || t < 0 || n >= view.networks.length || t >= view.targets.length) return;
    r = cells[view.networks[n]][view.targets[t]];
  }
  pick(r);
  const left = t * CELL.width, top = n * CELL.height, wide = e.currentTarget.clientWidth - CELL.side, high = e.currentTarget.clientHeight - CELL.head;
  const kept = (at, from, size, room) => (at < from ? at : at + size > from + room ? at + size - room : from);
  e.currentTarget.scrollTo(kept(left, e.currentTarget.scrollLeft, CELL.width, wide), kept(top, e.currentTarget.scrollTop, CELL.height, high));
});
addEventListener("resize", redraw);

makeCards(); makeFilters();
const tables = makeTables();
apply();
if (results.length) pick(results[0]);
const npuSweep = { view, results, cells, tables, changesOf, cheapestTargets, painted: null };
requestAnimationFrame(() => requestAnimationFrame(() => { npuSweep.painted = performance.now(); }));
