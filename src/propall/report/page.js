"use strict";
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// Theme: follows the system until the button overrides it.
const root = document.documentElement, dark = matchMedia("(prefers-color-scheme: dark)"), button = document.getElementById("theme");
const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
const nameTheme = () => { button.textContent = isDark() ? "Light theme" : "Dark theme"; };
button.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  try { localStorage.setItem("propall-theme", root.dataset.theme); } catch {}
  nameTheme();
});
dark.addEventListener("change", nameTheme);
nameTheme();
button.hidden = false;

// Tooltips: marks refer to their text by index; arrow keys step through the marks of a focused chart.
const tip = document.getElementById("tip");
let lit = null;
const hideTip = () => { lit?.classList.remove("on"); lit = null; tip.hidden = true; };
function showTip(mark, x, y) {
  const texts = mark.closest("figure").querySelector(":scope > script");
  if (mark !== lit) {
    hideTip();
    lit = mark;
    mark.classList.add("on");
    tip.textContent = JSON.parse(texts.textContent)[mark.dataset.t];
    tip.hidden = false;
  }
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - tip.offsetWidth - 4)) + "px";
  tip.style.top = Math.max(4, y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18) + "px";
}
document.addEventListener("pointermove", event => {
  const mark = event.target.closest?.("[data-t]");
  if (mark) showTip(mark, event.clientX, event.clientY);
  else if (!document.activeElement?.matches("svg")) hideTip();
});
document.addEventListener("pointerdown", event => {
  const mark = event.target.closest?.("[data-t]");
  if (mark) showTip(mark, event.clientX, event.clientY); else hideTip();
});
document.addEventListener("scroll", hideTip, { passive: true });
for (const svg of all("svg[tabindex]")) {
  svg.addEventListener("keydown", event => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hideTip();
    if (!step || event.target !== svg) return;
    event.preventDefault();
    const marks = all("[data-t]", svg).sort((a, b) => a.dataset.t - b.dataset.t);
    const next = marks[(marks.indexOf(lit) + step + marks.length + (lit || step > 0 ? 0 : 1)) % marks.length];
    const box = next.getBoundingClientRect();
    showTip(next, box.x + box.width / 2, box.y + Math.min(box.height / 2, 60));
  });
  svg.addEventListener("blur", hideTip);
}

// Clicking a method's name fades the others; clicking again restores them.
function pick(name) {
  const figure = name.closest("figure"), series = name.dataset.pick, off = name.getAttribute("aria-pressed") === "true";
  figure.classList.toggle("picking", !off);
  for (const other of all("[data-pick]", figure)) other.setAttribute("aria-pressed", String(!off && other.dataset.pick === series));
  for (const group of all(".series", figure)) group.classList.toggle("picked", !off && group.dataset.series === series);
}
for (const name of all("[data-pick]")) {
  name.addEventListener("click", () => pick(name));
  name.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(name); }
  });
}

// Sorting: numbers start with the highest; cells without a number stay last.
const value = cell => {
  const text = cell.dataset.v ?? cell.textContent.trim().replace("−", "-");
  return cell.classList.contains("empty") ? null : cell.classList.contains("n") || /^-?[\d.]+$/.test(text) ? parseFloat(text) : text;
};
for (const table of all("table")) {
  const heads = all("thead th[aria-sort]", table);
  heads.forEach((head, column) => head.querySelector(".sort").addEventListener("click", () => {
    const before = head.getAttribute("aria-sort"), number = head.classList.contains("n");
    const up = before === "none" ? !number : before === "descending";
    const keyed = all("tbody tr", table).map(row => [value(row.cells[column]), row]);
    keyed.sort(([a], [b]) => a === null || b === null ? (a === null) - (b === null)
      : (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))) * (up ? 1 : -1));
    table.tBodies[0].append(...keyed.map(([, row]) => row));
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }));
}

// Copying: the clipboard API if the browser allows it, otherwise a selected text area.
async function copy(text) {
  try { await navigator.clipboard.writeText(text); return true; } catch {}
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
for (const bar of all(".copy")) {
  bar.hidden = false;
  bar.addEventListener("click", async event => {
    const format = event.target.dataset.copy;
    if (!format) return;
    const done = await copy(JSON.parse(bar.nextElementSibling.textContent)[format]);
    bar.lastElementChild.textContent = done ? `${format} copied` : "copying is blocked by the browser";
  });
}
