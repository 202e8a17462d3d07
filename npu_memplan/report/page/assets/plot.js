// One canvas a pool: the strip of calls, the map (address over time), the curve of live bytes.
// A canvas stays fast at 10,000 rectangles where that many SVG nodes do not.
let LEFT = 82;
const RIGHT = 14, STRIP = 16, GAP = 12, AXIS = 24;

class Plot {
  constructor(index, host) {
    this.index = index;
    this.pool = data.pools[index];
    this.rectangles = rectangles.filter((r) => r.buffer.pool === index);
    this.shared = sharedAreas(index);
    this.top = Math.max(this.pool.used, 1);
    this.address = [0, this.top * 1.03];
    this.mapHeight = data.pools.filter((p) => p.used).length > 1 ? 250 : 360;
    this.curveHeight = 96;
    this.canvas = element("canvas", { tabindex: "0", role: "img" });
    this.canvas.setAttribute("aria-label", `Memory map of pool ${this.pool.name}: ${this.rectangles.length} rectangles, ` +
      `${both(this.pool.used)} used; the table of buffers below has the same content`);
    const name = element("div", { class: "name" }, element("strong", {}, this.pool.name), ` ${both(this.pool.used)}`);
    this.node = element("div", { class: "plot", "data-pool": this.pool.name }, name, this.canvas);
    host.append(this.node);
    this.context = this.canvas.getContext("2d");
    this.resize();
  }

  resize() {
    this.width = Math.max(240, this.node.clientWidth);
    LEFT = this.width < 520 ? 62 : 82; // a phone has no room to give away; all plots are equally wide
    this.height = STRIP + this.mapHeight + GAP + this.curveHeight + AXIS;
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = this.height + "px";
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  get plotWidth() { return this.width - LEFT - RIGHT; }
  get mapTop() { return STRIP; }
  get mapBottom() { return STRIP + this.mapHeight; }
  get curveTop() { return this.mapBottom + GAP; }
  get curveBottom() { return this.curveTop + this.curveHeight; }
  x(t) { return LEFT + ((t - state.view[0]) / (state.view[1] - state.view[0])) * this.plotWidth; }
  y(a) { return this.mapBottom - ((a - this.address[0]) / (this.address[1] - this.address[0])) * this.mapHeight; }
  time(x) { return state.view[0] + ((x - LEFT) / this.plotWidth) * (state.view[1] - state.view[0]); }
  bytesAt(y) { return this.address[0] + ((this.mapBottom - y) / this.mapHeight) * (this.address[1] - this.address[0]); }
  box(r) {
    const x = this.x(r.first), y = this.y(r.high);
    return { x, y, width: this.x(r.last) - x, height: this.y(r.low) - y };
  }

  hit(x, y) {
    if (x < LEFT || x > this.width - RIGHT || y < this.mapTop || y > this.mapBottom) return null;
    const t = this.time(x), a = this.bytesAt(y);
    let best = null; // the smallest wins where proven overlaps lie on one another
    for (const r of this.rectangles) {
      if (r.first <= t && t < r.last && r.low <= a && a < r.high && (!best || r.high - r.low < best.high - best.low)) best = r;
    }
    return best;
  }

  draw() {
    const c = this.context, style = getComputedStyle(document.documentElement);
    this.ink = style.getPropertyValue("--ink"); this.quiet = style.getPropertyValue("--quiet");
    this.gridColour = style.getPropertyValue("--grid"); this.panel = style.getPropertyValue("--panel");
    this.accent = style.getPropertyValue("--accent"); this.good = style.getPropertyValue("--good");
    this.warn = style.getPropertyValue("--warn");
    this.written = []; // texts on coloured ground: [text, ink, ground]
    c.clearRect(0, 0, this.width, this.height);
    c.font = "11px system-ui, sans-serif";
    this.drawAddresses(c);
    c.save();
    c.beginPath(); c.rect(LEFT, this.mapTop, this.plotWidth, this.mapHeight); c.clip();
    this.drawRectangles(c);
    this.drawLevels(c);
    c.restore();
    this.drawStrip(c);
    this.drawCurve(c);
    this.drawTime(c);
    this.drawMarks(c);
  }

  drawAddresses(c) {
    c.textAlign = "right"; c.textBaseline = "middle";
    const step = niceBytes((this.address[1] - this.address[0]) / 5);
    for (let a = Math.ceil(this.address[0] / step) * step; a <= this.address[1]; a += step) {
      const y = Math.round(this.y(a)) + 0.5;
      c.strokeStyle = this.gridColour; line(c, LEFT, y, this.width - RIGHT, y);
      c.fillStyle = this.quiet; c.fillText(step >= 1 << 24 ? trim(a / 1048576) + " MiB" : step >= 1024 ? trim(a / 1024) + " KiB" : number.format(a) + " B", LEFT - 8, y);
    }
  }

  drawRectangles(c) {
    const selective = state.picked || state.query;
    let last = "";
    for (const r of this.rectangles) {
      if (r.last <= state.view[0] || r.first >= state.view[1]) continue;
      const b = r.buffer, { x, y, width, height } = this.box(r);
      c.globalAlpha = !selective || stands(b) ? 1 : 0.16;
      const colour = colourOf(b);
      if (colour !== last) { c.fillStyle = colour; last = colour; }
      c.fillRect(x, y, Math.max(width, 0.7), Math.max(height, 0.7));
      if (width > 3 && height > 3) { c.strokeStyle = this.panel; c.lineWidth = 0.8; c.strokeRect(x + 0.4, y + 0.4, width - 0.8, height - 0.8); }
    }
    c.globalAlpha = 1;
    if (this.shared.length) c.fillStyle = hatch(c);
    for (const r of this.shared) if (r.last > state.view[0] && r.first < state.view[1]) {
      const { x, y, width, height } = this.box(r);
      c.fillRect(x, y, width, height);
    }
    for (const r of this.rectangles) { // names last: nothing is drawn over them
      const { x, y, width, height } = this.box(r);
      if (height <= 13 || width <= 34 || r.last <= state.view[0] || r.first >= state.view[1]) continue;
      c.globalAlpha = !selective || stands(r.buffer) ? 1 : 0.16;
      this.label(c, r.buffer, x, y, width, height);
    }
    c.globalAlpha = 1;
    for (const b of [state.hover, state.picked]) {
      if (!b || b.pool !== this.index) continue;
      c.strokeStyle = this.ink; c.lineWidth = b === state.picked ? 2.5 : 1.5;
      for (const r of this.rectangles) if (r.buffer === b) { const o = this.box(r); c.strokeRect(o.x, o.y, o.width, o.height); }
    }
  }

  label(c, b, x, y, width, height) {
    const left = Math.max(x, LEFT), right = Math.min(x + width, this.width - RIGHT), room = right - left - 8;
    if (room < 24) return;
    let text = b.name;
    if (c.measureText(text).width > room) {
      const fits = Math.floor((text.length * room) / c.measureText(text).width) - 1;
      text = fits > 3 ? "…" + b.name.slice(-fits) : ""; // names differ at their ends
    }
    if (!text) return;
    const look = lookOf(b);
    c.fillStyle = look.ink; c.textAlign = "center"; c.textBaseline = "middle";
    c.fillText(text, (left + right) / 2, y + height / 2);
    this.written.push([text, look.ink, look.colour]);
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
      const fits = Math.floor((x1 - x0 - 6) / 5.6);
      if (fits >= 3) {
        const text = call.function.length <= fits ? call.function : call.function.slice(0, fits - 1) + "…";
        c.fillStyle = look.ink; c.fillText(text, (x0 + x1) / 2, 7.5);
        this.written.push([text, look.ink, look.colour]);
      }
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
    c.strokeStyle = this.gridColour; c.lineWidth = 1; line(c, LEFT, this.curveBottom + 0.5, this.width - RIGHT, this.curveBottom + 0.5);
  }

  drawTime(c) {
    c.fillStyle = this.quiet; c.textAlign = "center"; c.textBaseline = "top";
    const step = Math.max(1, nice((state.view[1] - state.view[0]) / Math.max(2, this.plotWidth / 90)));
    for (let t = Math.ceil(state.view[0] / step) * step; t <= state.view[1]; t += step) {
      c.fillText(number.format(t), this.x(t), this.curveBottom + 6);
    }
    c.textAlign = "left"; c.fillText("point", 4, this.curveBottom + 6);
  }

  drawMarks(c) {
    const peak = this.x(this.pool.peak.point + 0.5);
    if (this.rectangles.length && peak >= LEFT && peak <= this.width - RIGHT) {
      c.strokeStyle = this.ink; c.lineWidth = 1; c.globalAlpha = 0.6; c.setLineDash([3, 3]);
      line(c, peak, this.mapTop, peak, this.curveBottom); c.setLineDash([]); c.globalAlpha = 1;
      c.fillStyle = this.ink; c.textAlign = peak > this.width - 70 ? "right" : "left"; c.textBaseline = "top";
      c.fillText(" peak ", peak, this.curveTop + 2);
    }
    if (state.cursor !== null) {
      const x = this.x(state.cursor);
      if (x >= LEFT && x <= this.width - RIGHT) { c.strokeStyle = this.quiet; c.lineWidth = 1; line(c, x, this.mapTop, x, this.curveBottom); }
    }
    if (this.brush) {
      const [a, b] = this.brush; c.fillStyle = this.accent; c.globalAlpha = 0.2;
      c.fillRect(Math.min(a, b), this.curveTop, Math.abs(b - a), this.curveHeight); c.globalAlpha = 1;
    }
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
function line(c, x0, y0, x1, y1) { c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke(); }
function trim(v) { return v.toLocaleString("en-US", { maximumFractionDigits: 2 }); }
function nice(v) {
  const power = Math.pow(10, Math.floor(Math.log10(Math.max(v, 1e-9)))), f = v / power;
  return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10) * power;
}
function niceBytes(v) { return v <= 1 ? 1 : Math.pow(2, Math.ceil(Math.log2(v))); }
