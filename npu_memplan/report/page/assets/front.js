// Cycles over bytes: the points in a row, the default compile, Vela's own placements.
const row = data.points.filter((p) => p.class === "point");
document.getElementById("front").append(scatterPlot({
  width: innerWidth > 900 ? 820 : undefined,
  x: `bytes of ${data.pool}`, y: "estimated NPU cycles",
  marks: data.points.map((p) => ({ ...p, x: p.bytes, y: p.cycles })),
  lines: [{ points: row.map((p) => [p.bytes, p.cycles]), class: "ours" }],
}));
