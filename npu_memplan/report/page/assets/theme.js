// Light or dark: what the reader chose last, else what the system prefers. Paper is white.
const THEME_KEY = "npu-memplan-theme", themed = []; // called after each change
const theme = () => document.documentElement.dataset.theme;
function showTheme(name) {
  document.documentElement.dataset.theme = name;
  for (const change of themed) change();
}
function switchTheme() {
  showTheme(theme() === "dark" ? "light" : "dark");
  try { localStorage.setItem(THEME_KEY, theme()); } catch (error) { /* a private window: the choice lasts as long as the page */ }
}
showTheme((() => { try { return localStorage.getItem(THEME_KEY); } catch (error) { return null; } })()
  || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
document.getElementById("theme").addEventListener("click", switchTheme);
addEventListener("keydown", (e) => {
  if (e.key === "t" && !/^(INPUT|TEXTAREA|SELECT)$/.test(document.activeElement.tagName) && !e.ctrlKey && !e.metaKey && !e.altKey) switchTheme();
});
let onScreen = "";
addEventListener("beforeprint", () => { onScreen = theme(); showTheme("light"); });
addEventListener("afterprint", () => showTheme(onScreen));
