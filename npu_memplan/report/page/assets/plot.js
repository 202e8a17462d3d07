// One canvas a pool: the strip of calls, the map (address over time), the curve of live bytes.
// A canvas stays fast at 10,000 rectangles where that many SVG nodes do not.
const STRIP = 16, GAP = 12;

class Plot extends Track {
  constructor(index, host) {
    const pool = data.pools[index], inside = rectangles.filter((r) => r.buffer.pool === index);
    super(host, { "data-pool": pool.name }, `Memory map of pool ${pool.name}: ${inside.length} rectangles, ` +
      `${both(pool.used)} used; the table of buffers below has the same content`,
      element("div", { class: "name" }, element("strong", {}, pool.name), ` ${both(pool.used)}`));
    this.index = index;
    this.pool = pool;
    this.rectangles = inside;
    this.shared = sharedAreas(index);
    this.top = Math.max(this.pool.used, 1);
    this.address = [0, this.top * 1.03];
    this.mapHeight = data.pools.filter((p) => p.used).length > 1 ? 250 : 360;
    this.curveHeight = 96;
    this.height = STRIP + this.mapHeight + GAP + this.curveHeight + AXIS;
    this.brushTop = this.curveTop;
    this.resize();
  }

  get mapTop() { return STRIP; }
  get mapBottom() { return STRIP + this.mapHeight; }
  get curveTop() { return this.mapBottom + GAP; }
  get curveBottom() { return this.curveTop + this.curveHeight; }
  y(a) { return this.mapBottom - ((a - this.address[0]) / (this.address[1] - this.address[0])) * this.mapHeight; }
  bytesAt(y) { return this.address[0] + ((this.mapBottom - y) / this.mapHeight) * (this.address[1] - this.address[0]); }
  box(r) {
    const x = this.x(r.first), y = this.y(r.high);
    return { x, y, width: this.x(r.last) - x, height: this.y(r.low) - y };
  }

  hit(x, y) {
    if (x < LEFT || x > this.width - RIGHT || y < this.mapTop || y > this.mapBottom) return null;
    const t = pointAt(this.time(x)), a = this.bytesAt(y);
    let best = null; // the smallest wins where proven overlaps lie on one another
    for (const r of this.rectangles) {
      if (r.first <= t && t < r.last && r.low <= a && a < r.high && (!best || r.high - r.low < best.high - best.low)) best = r;
    }
    return best;
  }

  draw() {
    const c = this.begin();
    this.drawAddresses(c);
    c.save();
    c.beginPath(); c.rect(LEFT, this.mapTop, this.plotWidth, this.mapHeight); c.clip();
    this.drawRectangles(c);
    this.drawLevels(c);
    c.restore();
    this.drawStrip(c);
    this.drawCurve(c);
    this.drawTime(c, this.curveBottom + 6);
    this.drawMarks(c);
    this.drawCursor(c, this.mapTop, this.curveBottom);
  }

  drawAddresses(c) {
    c.textAlign = "right"; c.textBaseline = "middle";
    const step = niceBytes((this.address[1] - this.address[0]) / 5);
    for (let a = Math.ceil(this.address[0] / step) * step; a <= this.address[1]; a += step) {
      const y = Math.round(this.y(a)) + 0.5;
      c.strokeStyle = this.grid; line(c, LEFT, y, this.width - RIGHT, y);
      c.fillStyle = this.quiet; c.fillText(step >= 1 << 24 ? trim(a / 1048576) + " MiB" : step >= 1024 ? trim(a / 1024) + " KiB" : number.format(a) + " B", LEFT - 8, y);
    }
  }

  drawRectangles(c) {
    const selective = state.picked || state.query;
    let last = "";
    for (const r of this.rectangles) {
      if (!this.sees(r.first, r.last)) continue;
      const b = r.buffer, { x, y, width, height } = this.box(r);
      c.globalAlpha = !selective || stands(b) ? 1 : 0.16;
      const colour = colourOf(b);
      if (colour !== last) { c.fillStyle = colour; last = colour; }
      c.fillRect(x, y, Math.max(width, 0.7), Math.max(height, 0.7));
      if (width > 3 && height > 3) { c.strokeStyle = this.panel; c.lineWidth = 0.8; c.strokeRect(x + 0.4, y + 0.4, width - 0.8, height - 0.8); }
    }
    c.globalAlpha = 1;
    if (this.shared.length) c.fillStyle = hatch(c);
    for (const r of this.shared) if (this.sees(r.first, r.last)) {
      const { x, y, width, height } = this.box(r);
      c.fillRect(x, y, width, height);
    }
    for (const r of this.rectangles) { // names last: nothing is drawn over them
      const { x, y, width, height } = this.box(r);
      if (height <= 13 || width <= 34 || !this.sees(r.first, r.last)) continue;
      c.globalAlpha = !selective || stands(r.buffer) ? 1 : 0.16;
      this.write(c, r.buffer.name, x, y + height / 2, width, lookOf(r.buffer));
    }
    c.globalAlpha = 1;
    for (const b of [state.hover, state.picked]) {
      if (!b || b.pool !== this.index) continue;
      c.strokeStyle = this.ink; c.lineWidth = b === state.picked ? 2.5 : 1.5;
      for (const r of this.rectangles) if (r.buffer === b) { const o = this.box(r); c.strokeRect(o.x, o.y, o.width, o.height); }
    }
  }

  drawLevels(c) {
    const levels = [[this.pool.bound, this.good, "bound"]];
    if (this.pool.capacity) levels.push([this.pool.capacity, this.warn, "capacity"]);
    c.setLineDash([6, 4]); c.lineWidth = 1.3; c.textAlign = "right"; c.textBaseline = "bottom";
    for (const [value, colour, name] of levels) {
      if (value > this.address[1]) continue;
      const y = this.y(value);
      c.strokeStyle = c.fillStyle = colour; line(c, LEFT, y, this.width - RIGHT, y);
      const at = y - this.mapTop < 14 ? y + 13 : y - 1;
      c.save(); c.setLineDash([]); c.lineWidth = 4; c.lineJoin = "round"; c.strokeStyle = this.panel; // readable on whatever lies below
      c.strokeText(name, this.width - RIGHT - 3, at); c.restore();
      c.fillText(name, this.width - RIGHT - 3, at);
    }
    c.setLineDash([]);
  }

  drawStrip(c) {
    c.textAlign = "center"; c.textBaseline = "middle"; c.font = "10px system-ui, sans-serif";
    for (const call of data.calls) {
      const x0 = Math.max(LEFT, this.x(call.first)), x1 = Math.min(this.width - RIGHT, this.x(call.last));
      if (x1 <= x0) continue;
      const look = data.agents[call.agent];
      c.fillStyle = look.colour;
      c.fillRect(x0, 2, Math.max(x1 - x0 - 1, 0.7), STRIP - 5);
      this.write(c, call.function, x0, 7.5, x1 - x0, look);
    }
    c.font = "11px system-ui, sans-serif";
    c.fillStyle = this.quiet; c.textAlign = "right"; if (data.calls.length) c.fillText("calls", LEFT - 8, 8);
  }

  drawCurve(c) {
    const { starts, live } = this.pool.curve;
    const ceiling = 1.08 * Math.max(this.pool.used, this.pool.bound, this.pool.peak.bytes, Math.min(this.pool.capacity || 0, this.pool.used * 1.6), 1);
    const level = (v) => this.curveBottom - (v / ceiling) * this.curveHeight;
    c.save();
    c.beginPath(); c.rect(LEFT, this.curveTop, this.plotWidth, this.curveHeight); c.clip();
    c.beginPath(); c.moveTo(this.x(0), this.curveBottom);
    starts.forEach((start, i) => {
      c.lineTo(this.x(start), level(i ? live[i - 1] : 0)); c.lineTo(this.x(start), level(live[i]));
    });
    c.lineTo(this.x(data.end), level(live.length ? live[live.length - 1] : 0)); c.lineTo(this.x(data.end), this.curveBottom);
    c.globalAlpha = 0.16; c.fillStyle = this.accent; c.fill(); c.globalAlpha = 1;
    c.strokeStyle = this.accent; c.lineWidth = 1.4; c.stroke();
    c.setLineDash([6, 4]); c.lineWidth = 1.2;
    c.strokeStyle = this.good; line(c, LEFT, level(this.pool.bound), this.width - RIGHT, level(this.pool.bound));
    if (this.pool.capacity) { c.strokeStyle = this.warn; line(c, LEFT, level(this.pool.capacity), this.width - RIGHT, level(this.pool.capacity)); }
    c.setLineDash([]);
    c.restore();
    c.fillStyle = this.quiet; c.textAlign = "right"; c.textBaseline = "middle";
    c.fillText("live bytes", LEFT - 8, this.curveTop + 8); c.fillText(this.pool.peak.bytes >= 1 << 27 ? trim(this.pool.peak.bytes / 1048576) + " MiB" : kib(this.pool.peak.bytes), LEFT - 8, this.curveTop + 24);
    c.strokeStyle = this.grid; c.lineWidth = 1; line(c, LEFT, this.curveBottom + 0.5, this.width - RIGHT, this.curveBottom + 0.5);
  }

  drawMarks(c) {
    const peak = this.x(this.pool.peak.point + 0.5);
    if (this.rectangles.length && peak >= LEFT && peak <= this.width - RIGHT) {
      c.strokeStyle = this.ink; c.lineWidth = 1; c.globalAlpha = 0.6; c.setLineDash([3, 3]);
      line(c, peak, this.mapTop, peak, this.curveBottom); c.setLineDash([]); c.globalAlpha = 1;
      c.fillStyle = this.ink; c.textAlign = peak > this.width - 70 ? "right" : "left"; c.textBaseline = "top";
      c.fillText(" peak ", peak, this.curveTop + 2);
    }
  }

  inside(x, y) { return x >= LEFT && x <= this.width - RIGHT && y >= 0 && y <= this.curveBottom; }
  tell(x, y) {
    const r = this.hit(x, y), lines = [], t = Math.min(data.end - 1, Math.max(0, Math.floor(pointAt(this.time(x)))));
    if (r) {
      const b = r.buffer;
      lines.push(element("div", {}, swatch(b), element("b", {}, b.name)), element("div", {}, both(b.size)),
        element("div", { class: "quiet" }, `${data.kinds[b.kind].label}; ${data.pools[b.pool].name} ${number.format(b.offset)}–${number.format(b.offset + b.size)}; points ${lifetimeText(b)}`),
        element("div", { class: "quiet" }, `made by ${b.producer || "the caller"}`), element("div", { class: "quiet" }, `read by ${b.consumers.join(", ") || "the caller"}`));
    }
    const label = pointLabel(t);
    lines.push(element("div", { class: "quiet" }, `at ${atPoint(t)}${label ? " (" + label + ")" : ""}: ${kib(liveAt(this.index, t))} live`));
    return lines;
  }
}

// Where two buffers that live at the same time lie on one another, on purpose: aliases and proven overlaps.
function sharedAreas(pool) {
  const areas = [];
  for (const [i, j] of data.shares) {
    const a = buffers[i], b = buffers[j], low = Math.max(a.offset, b.offset), high = Math.min(a.offset + a.size, b.offset + b.size);
    if (a.pool !== pool || b.pool !== pool || low >= high) continue;
    for (const s of rectanglesOf(a)) for (const t of rectanglesOf(b)) {
      const first = Math.max(s.first, t.first), last = Math.min(s.last, t.last);
      if (first < last) areas.push({ first, last, low, high });
    }
  }
  return areas;
}
function hatch(c) {
  const tile = element("canvas", { width: "6", height: "6" }), t = tile.getContext("2d");
  t.strokeStyle = "rgba(255, 255, 255, .6)";
  for (const shift of [-6, 0, 6]) line(t, shift, 6, shift + 6, 0);
  return c.createPattern(tile, "repeat");
}
const stands = (b) => (state.picked ? b === state.picked || state.related.has(b) : b.haystack.includes(state.query));
