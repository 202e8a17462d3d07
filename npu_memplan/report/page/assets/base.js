// What every page uses: its own JSON, elements, numbers as text. Nothing else holds data.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);

const number = new Intl.NumberFormat("en-US");
const counted = (n, noun) => `${number.format(n)} ${noun}${n === 1 ? "" : "s"}`;
const bytes = (n) => counted(n, "byte");
// halves go to the even digit, as in every other report of this package
const inKib = (n) => (n / 1024).toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2, roundingMode: "halfEven" });
const kib = (n) => inKib(n) + " KiB";
const both = (n) => `${bytes(n)} (${kib(n)})`;
const percent = (a, b) => (b ? ((100 * a) / b).toFixed(1) + " %" : "-");

// what names have in common is mostly in their middle
const shortened = (text, most) => (text.length <= most ? text : text.slice(0, Math.ceil((most - 1) / 2)) + "…" + text.slice(text.length - Math.floor((most - 1) / 2)));

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((c) => c !== null && c !== undefined));
  return node;
}
