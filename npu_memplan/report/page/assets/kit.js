// Pages of plots and tables alone: what `data.plots` and `data.tables` say.
data.plots.forEach((plot, n) => $(`plot${n}`).append(scatterPlot({
  width: innerWidth > 900 ? 820 : undefined, x: plot.x, y: plot.y, omitNames: plot.marks.length > 40,
  marks: plot.marks.map(([x, y, kind, name, title]) => ({ x, y, class: kind, name, title })),
  lines: plot.line.length ? [{ points: plot.line, class: "ours" }] : [],
})));
const cellText = (v) => (v === null ? "" : typeof v === "number" ? v.toLocaleString("en-US", { maximumFractionDigits: 3 }) : v);
const made = data.tables.map((t, n) => new DataTable(`table${n}`, t.rows, t.columns.map((head, i) => ({
  head, numeric: t.numeric[i], text: (row) => cellText(row[i]), value: (row) => (row[i] === null ? (t.numeric[i] ? -1 : "") : row[i]),
})), { input: `find${n}`, count: `count${n}` }));
for (const [event, printing] of [["beforeprint", true], ["afterprint", false]])
  addEventListener(event, () => made.forEach((t) => { t.printing = printing; t.paint(true); }));
