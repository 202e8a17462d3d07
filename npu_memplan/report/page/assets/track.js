// A canvas along the time axis, and the axis: cycles where the command streams are known, else points of the program.
let LEFT = 82;
const RIGHT = 14, AXIS = 24;
const ends = data.time ? data.time.ends : [];
const extent = () => (state.cycles ? ends[ends.length - 1] : data.end);
function at(t) { // the position of point t; parts of a point are in proportion
  if (!state.cycles) return t;
  const k = Math.min(Math.max(Math.floor(t), 0), data.end - 1), start = k ? ends[k - 1] : 0;
  return start + (t - k) * (ends[k] - start);
}
function pointAt(position) {
  if (!state.cycles) return position;
  let low = 0, high = data.end - 1; // the first point that is not over
  while (low < high) { const middle = (low + high) >> 1; if (ends[middle] > position) high = middle; else low = middle + 1; }
  const start = low ? ends[low - 1] : 0;
  return low + (position - start) / Math.max(ends[low] - start, 1);
}
const atPoint = (t) => `point ${t}` + (state.cycles && data.clock_hz ? `, ${(1e6 * at(t) / data.clock_hz).toFixed(2)} µs` : "");

class Track {
  constructor(host, attributes, label, name) {
    this.address = [0, 1];
    this.canvas = element("canvas", { tabindex: "0", role: "img", "aria-label": label });
    this.node = element("div", { class: "plot", ...attributes }, name, this.canvas);
    host.append(this.node);
    this.context = this.canvas.getContext("2d");
  }

  resize() {
    this.width = Math.max(240, this.node.clientWidth);
    LEFT = this.width < 520 ? 62 : 82; // a phone has no room to give away; all tracks are equally wide
    const ratio = window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.height = this.height + "px";
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  get plotWidth() { return this.width - LEFT - RIGHT; }
  px(position) { return LEFT + ((position - state.view[0]) / (state.view[1] - state.view[0])) * this.plotWidth; }
  x(t) { return this.px(at(t)); }
  time(x) { return state.view[0] + ((x - LEFT) / this.plotWidth) * (state.view[1] - state.view[0]); }
  sees(first, last) { return at(last) > state.view[0] && at(first) < state.view[1]; }

  begin() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "quiet", "grid", "panel", "accent", "good", "warn"]) this[name] = style.getPropertyValue("--" + name);
    this.written = []; // texts on coloured ground: [text, ink, ground]
    this.context.clearRect(0, 0, this.width, this.height);
    this.context.font = "11px system-ui, sans-serif";
    return this.context;
  }

  // `text` inside x .. x + width, its middle left out where there is no room for all of it
  write(c, text, x, y, width, look) {
    const left = Math.max(x, LEFT), right = Math.min(x + width, this.width - RIGHT), shown = fitted(c, text, right - left - 8);
    if (!shown) return;
    c.fillStyle = look.ink; c.textAlign = "center"; c.textBaseline = "middle";
    c.fillText(shown, (left + right) / 2, y);
    this.written.push([shown, look.ink, look.colour]);
  }

  drawTime(c, y) {
    c.fillStyle = this.quiet; c.textAlign = "center"; c.textBaseline = "top";
    const step = Math.max(1, nice((state.view[1] - state.view[0]) / Math.max(2, this.plotWidth / 90)));
    for (let t = Math.ceil(state.view[0] / step) * step; t <= state.view[1]; t += step) {
      const text = number.format(t), half = c.measureText(text).width / 2;
      c.fillText(text, Math.min(this.px(t), this.width - half), y);
    }
    c.textAlign = "left"; c.fillText(state.cycles ? "cycles" : "point", 4, y);
  }

  drawCursor(c, top, bottom) {
    if (state.cursor !== null) {
      const x = this.px(state.cursor);
      if (x >= LEFT && x <= this.width - RIGHT) { c.strokeStyle = this.quiet; c.lineWidth = 1; line(c, x, top, x, bottom); }
    }
    if (this.brush) {
      const [a, b] = this.brush; c.fillStyle = this.accent; c.globalAlpha = 0.2;
      c.fillRect(Math.min(a, b), this.brushTop, Math.abs(b - a), bottom - this.brushTop); c.globalAlpha = 1;
    }
  }
}

function fitted(c, text, room) {
  if (room < 16 || c.measureText(text).width <= room) return room < 16 ? "" : text;
  const fits = Math.floor((text.length * room) / c.measureText(text).width) - 1;
  return fits > 3 ? shortened(text, fits) : "";
}
function line(c, x0, y0, x1, y1) { c.beginPath(); c.moveTo(x0, y0); c.lineTo(x1, y1); c.stroke(); }
function trim(v) { return v.toLocaleString("en-US", { maximumFractionDigits: 2 }); }
function nice(v) {
  const power = Math.pow(10, Math.floor(Math.log10(Math.max(v, 1e-9)))), f = v / power;
  return (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10) * power;
}
function niceBytes(v) { return v <= 1 ? 1 : Math.pow(2, Math.ceil(Math.log2(v))); }
