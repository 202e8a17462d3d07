// The table of the sweep, unpacked into one object a result, and what is shown of it.
const networks = data.networks, targets = data.targets; // targets: {name, accelerator, multipliers}
const results = data.rows.network.map((n, i) => {
  const r = { index: i };
  for (const [name, values] of Object.entries(data.rows)) r[name] = values[i];
  r.name = networks[n];
  r.on = targets[r.target];
  r.fits = data.outcomes[r.outcome] === "fits";
  r.outcomeName = data.outcomes[r.outcome];
  return r;
});
const cells = networks.map(() => new Array(targets.length).fill(null));
for (const r of results) cells[r.network][r.target] = r;
const changesOf = new Map(); // result -> its differences
for (const d of data.against ? data.against.differences : []) {
  const r = (cells[networks.indexOf(d.network)] || [])[data.target_index[d.target]];
  if (r) changesOf.set(r, [...(changesOf.get(r) || []), d]);
}

const ms = (value) => (value < 0.0995 ? value.toPrecision(2) : value < 9.95 ? value.toFixed(2) : value.toFixed(1));
const time = (r) => (r.ms === null ? "host" : ms(r.ms) + (r.host ? ` +${r.host}h` : ""));
const METRICS = {
  SRAM: (r) => (r.fits ? number.format(r.sram) : r.sram === null ? r.outcomeName : `no: ${number.format(r.sram)}`),
  RAM: (r) => (r.fits ? number.format(r.ram) : r.outcomeName),
  flash: (r) => (r.fits ? number.format(r.flash) : r.outcomeName),
  ms: (r) => (r.fits ? time(r) : r.outcomeName),
  exact: (r) => (r.fits ? data.texts[r.exactness] : r.outcomeName),
  fits: (r) => (r.fits ? "yes" : r.outcomeName),
};

const view = {
  metric: "SRAM", networks: [], targets: [], accelerators: new Set(targets.map((t) => t.accelerator)),
  outcomes: new Set([...data.outcomes.keys()]), changed: false, picked: null, matching: 0,
};

const matches = (r) => r !== null && view.outcomes.has(r.outcome) && (!view.changed || changesOf.has(r));
function searchWords(id) { return $(id).value.trim().toLowerCase().split(/\s+/).filter(Boolean); }
function filter() {
  const wanted = searchWords("find-networks"), on = searchWords("find-targets");
  view.targets = [...targets.keys()].filter((t) => view.accelerators.has(targets[t].accelerator) && on.every((w) => targets[t].name.toLowerCase().includes(w)));
  view.matching = 0;
  const used = new Set();
  view.networks = [...networks.keys()].filter((n) => {
    if (!wanted.every((w) => networks[n].toLowerCase().includes(w))) return false;
    let any = false;
    for (const t of view.targets) if (matches(cells[n][t])) { any = true; used.add(t); view.matching += 1; }
    return any;
  });
  view.targets = view.targets.filter((t) => used.has(t));
}

// The same question as `sweep.table.cheapest` answers, of the networks and targets that are shown.
function cheapestTargets(deadline) {
  const found = [];
  for (const t of view.targets) {
    const rows = view.networks.map((n) => cells[n][t]);
    if (!rows.length || rows.some((r) => r === null || !r.fits)) continue;
    const most = (what) => Math.max(...rows.map(what));
    const c = { target: targets[t], sram: most((r) => r.sram), ram: most((r) => r.ram), flash: rows.reduce((sum, r) => sum + r.flash, 0), ms: rows.some((r) => r.ms === null) ? null : most((r) => r.ms), host: most((r) => r.host) };
    if (deadline === null || (c.ms !== null && c.ms <= deadline)) found.push(c);
  }
  const key = (c) => [c.target.multipliers, c.sram, c.ram, c.flash, c.ms === null ? Infinity : c.ms];
  return found.sort((a, b) => {
    const x = key(a), y = key(b), i = x.findIndex((v, j) => v !== y[j]);
    return i >= 0 ? x[i] - y[i] : a.target.name < b.target.name ? -1 : 1;
  });
}
