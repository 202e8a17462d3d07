// What runs when: the host, the NPU's kernels, DMA and both ports, in estimated cycles.
const LANE = 20;

class Timeline extends Track {
  constructor(host) {
    const columns = data.time.slices, lanes = data.time.lanes;
    super(host, { id: "timeline" }, "Timeline of the host, kernels, DMA and ports in estimated cycles; the table of operators has the same content",
      element("div", { class: "name" }, element("strong", {}, "timeline"), " estimated, one inference"));
    this.slices = columns.start.map((start, i) => ({
      lane: columns.lane[i], start, stop: start + columns.cycles[i], cause: data.time.causes[columns.cause[i]] || null,
      point: columns.point[i], title: data.labels[columns.title[i]],
    }));
    const used = new Set(this.slices.map((s) => s.lane));
    this.lanes = lanes.map((name, lane) => ({ name, lane })).filter((l) => used.has(l.lane));
    this.row = new Map(this.lanes.map((l, row) => [l.lane, row]));
    this.height = this.lanes.length * LANE + 4 + AXIS;
    this.mapBottom = -1; this.brushTop = 0; // a drag anywhere zooms
    this.node.append(element("div", { class: "legend" }, ...data.time.causes.filter((c) => this.slices.some((s) => s.cause === c)).map((c) =>
      element("span", {}, element("i", { style: `background:${c.colour}` }), `bound by ${c.label}`))));
    this.resize();
  }

  get bottom() { return this.height - AXIS; }
  look(s) { return s.cause || { colour: this.accent, ink: this.panel }; }

  draw() {
    const c = this.begin(), chosen = state.picked ? new Set([state.picked.made, ...state.picked.used]) : null;
    this.lanes.forEach((l, row) => {
      c.fillStyle = this.quiet; c.textAlign = "right"; c.textBaseline = "middle";
      c.fillText(fitted(c, l.name, LEFT - 6), LEFT - 8, row * LANE + LANE / 2);
      c.strokeStyle = this.grid; c.lineWidth = 1; line(c, LEFT, (row + 1) * LANE + 0.5, this.width - RIGHT, (row + 1) * LANE + 0.5);
    });
    c.save(); c.beginPath(); c.rect(LEFT, 0, this.plotWidth, this.bottom); c.clip();
    for (const s of this.slices) {
      if (s.stop <= state.view[0] || s.start >= state.view[1]) continue;
      const x = this.px(s.start), width = Math.max(this.px(s.stop) - x, 0.7), y = this.row.get(s.lane) * LANE + 3;
      c.globalAlpha = chosen && !chosen.has(s.point) ? 0.25 : s.cause ? 1 : 0.5;
      c.fillStyle = this.look(s).colour; c.fillRect(x, y, Math.max(width - 0.5, 0.7), LANE - 5);
      if (s.cause && width > 40 && c.globalAlpha === 1) this.write(c, s.title, x, y + LANE / 2 - 2, width, this.look(s));
    }
    c.restore(); c.globalAlpha = 1;
    this.drawTime(c, this.bottom + 6);
    this.drawCursor(c, 0, this.bottom);
  }

  under(x, y) {
    if (x < LEFT || x > this.width - RIGHT || y < 0 || y > this.bottom) return null;
    const time = this.time(x), slack = (2 / this.plotWidth) * (state.view[1] - state.view[0]), lane = this.lanes[Math.floor(y / LANE)];
    const found = lane ? this.slices.filter((s) => s.lane === lane.lane && s.start - slack <= time && time < s.stop + slack) : [];
    return found.find((s) => s.start <= time && time < s.stop) || found[0] || null;
  }

  // what a click takes up: what the operation makes, or its layer before it, else what it reads
  hit(x, y) {
    const s = this.under(x, y);
    if (!s) return null;
    const buffer = buffers.find((b) => b.made === s.point) || buffers.find((b) => b.made >= 0 && b.made < s.point && data.operator_of[b.made] >= 0
      && data.operator_of[b.made] === data.operator_of[s.point] && !b.used.includes(s.point)) || buffers.find((b) => b.used.includes(s.point));
    return buffer ? { buffer } : null;
  }

  inside(x, y) { return x >= LEFT && x <= this.width - RIGHT && y >= 0 && y <= this.bottom; }
  tell(x, y) {
    const s = this.under(x, y);
    return s ? [element("div", {}, element("b", {}, s.title)),
      element("div", { class: "quiet" }, `${number.format(s.stop - s.start)} cycles from ${number.format(s.start)}${s.cause ? "; bound by " + s.cause.label : ""}`),
      element("div", { class: "quiet" }, operatorAt(s.point))] : [];
  }
}
