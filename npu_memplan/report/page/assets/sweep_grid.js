// The matrix. Only the cells in sight exist, so that a hundred thousand scroll like a hundred.
const CELL = { width: 104, height: 27, side: 210, head: 76 };

function drawGrid() {
  const host = $("grid"), layer = $("grid-layer");
  const { width, height, side, head } = CELL;
  const needed = head + view.networks.length * height;
  $("grid-space").style.cssText = `width:${side + view.targets.length * width}px;height:${needed}px;margin-bottom:-${needed}px`;
  host.style.height = `${Math.min(needed + 18, Math.max(300, 0.7 * innerHeight))}px`;
  const left = host.scrollLeft, top = host.scrollTop;
  const first = [Math.floor(left / width), Math.floor(top / height)];
  const last = [Math.ceil((left + host.clientWidth - side) / width), Math.ceil((top + host.clientHeight - head) / height)];
  const shownTargets = view.targets.slice(first[0], last[0] + 1), shownNetworks = view.networks.slice(first[1], last[1] + 1);
  const text = METRICS[view.metric], nodes = [];
  const place = (x, y, w, h) => `left:${x}px;top:${y}px;width:${w}px;height:${h}px;line-height:${h}px`;
  shownNetworks.forEach((n, j) => {
    const y = head + (first[1] + j) * height - top, least = leastOf(n);
    shownTargets.forEach((t, i) => {
      const r = cells[n][t];
      if (r === null) return;
      const x = side + (first[0] + i) * width - left;
      nodes.push(element("div", { class: cellClass(r) + (least !== null && r.fits && FIGURES[view.metric](r) === least ? " best" : ""), role: "gridcell", style: place(x, y, width, height), title: cellTitle(r), onclick: () => pick(r) }, text(r)));
    });
    nodes.push(element("div", { class: "side", role: "rowheader", style: place(0, y, side, height), title: networks[n], onclick: () => pick(cells[n].find((r) => r !== null)) }, networks[n]));
  });
  shownTargets.forEach((t, i) => {
    const style = `left:${side + (first[0] + i) * width - left}px;top:0;width:${width}px;height:${head}px`;
    nodes.push(element("div", { class: "head", role: "columnheader", style, title: targets[t].name }, targets[t].name.replace(/^ethos-/, "")));
  });
  nodes.push(element("div", { class: "corner", style: place(0, 0, side, head) }, ""));
  layer.replaceChildren(...nodes);
}

// The least of a network over the targets shown; null where the metric has no least.
const FIGURES = { SRAM: (r) => r.sram, RAM: (r) => r.ram, flash: (r) => r.flash, ms: (r) => r.ms };
function leastOf(n) {
  const figure = FIGURES[view.metric], fit = figure ? view.targets.map((t) => cells[n][t]).filter((r) => r !== null && r.fits && figure(r) !== null) : [];
  return fit.length ? Math.min(...fit.map(figure)) : null;
}

function cellClass(r) {
  const changes = changesOf.get(r) || [];
  return ["cell", r === view.picked && "on", !r.fits && (r.outcomeName === "no room" ? "no" : "bad"), r.fits && r.exact === false && "bad",
    r.front && "front", !matches(r) && "out", changes.some((d) => d.worse) ? "worse" : changes.length && "better"].filter(Boolean).join(" ");
}

function cellTitle(r) {
  const reason = data.texts[r.reason];
  return `${r.name} on ${r.on.name}: ${r.outcomeName}${reason ? ": " + reason : ""}`;
}

function pick(r) {
  view.picked = r;
  describe(r);
  drawGrid();
}

function describe(r) {
  const rows = cells[r.network].filter((other) => other !== null && other.fits);
  const facts = [["target", r.on.name], ["result", r.outcomeName], ["reason", data.texts[r.reason]]];
  if (r.fits) {
    facts.push(["SRAM", both(r.sram)], ["all RAM", both(r.ram)], ["flash", both(r.flash)]);
    facts.push(["time", r.ms === null ? "host only" : `~${ms(r.ms)} ms (${number.format(r.cycles)} cycles)`]);
    if (r.host_ms !== null) facts.push(["host's time", `~${ms(r.host_ms)} ms, roughly`]);
    facts.push(["calls", `${number.format(r.npu)} on the NPU, ${number.format(r.host)} on the host`], ["results", data.texts[r.exactness]], ["plan", r.plan]);
  } else if (r.sram !== null) facts.push(["SRAM needed", both(r.sram)]);
  const changes = (changesOf.get(r) || []).map((d) => [d.what, changeText(d)]);
  const list = element("dl", {});
  for (const [name, value] of [...facts, ...changes]) if (value) list.append(element("dt", {}, name), element("dd", {}, value));
  const onFront = rows.filter((other) => other.front);
  const links = element("div", { class: "links", id: "front" });
  for (const other of onFront) links.append(element("button", { type: "button", title: other.on.name, onclick: () => pick(other) }, element("span", {}, `${number.format(other.sram)}, ${time(other)}`), other.on.name.replace(/^ethos-/, "")));
  $("detail").replaceChildren(element("h3", {}, r.name), list, element("h3", {}, `Its front: ${onFront.length} of ${rows.length} targets that fit`), scatter(rows, r), links);
}

// SRAM against time.
function scatter(rows, picked) {
  const timed = rows.filter((r) => r.ms !== null);
  return timed.length ? scatterPlot({ x: "estimated ms", y: "SRAM, KiB", marks: timed.map((r) => ({ x: r.ms, y: r.sram / 1024, act: () => pick(r),
    class: `${r.front ? "front" : ""} ${r === picked ? "on" : ""}`, title: `${r.on.name}: ${number.format(r.sram)} bytes, ${time(r)} ms` })) }) : "";
}

function changeText(d) {
  const text = (v) => (typeof v === "number" ? number.format(v) : String(v));
  return `${text(d.before)} → ${text(d.after)}`;
}
