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
const sortKey = (text, number) => number || /^-?[\d.]+$/.test(text) ? parseFloat(text) : text;
const value = cell => cell.classList.contains("empty") ? null
  : sortKey(cell.dataset.v ?? cell.textContent.trim().replace("−", "-"), cell.classList.contains("n"));
const compare = up => ([a], [b]) => a === null || b === null ? (a === null) - (b === null)
  : (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b))) * (up ? 1 : -1);
function makeSortable(table, sort) {
  const heads = all("thead th[aria-sort]", table);
  heads.forEach((head, column) => head.querySelector(".sort").addEventListener("click", () => {
    const before = head.getAttribute("aria-sort"), number = head.classList.contains("n");
    const up = before === "none" ? !number : before === "descending";
    sort(column, number, compare(up));
    for (const other of heads) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
  }));
}
for (const table of all("table:not([data-first])")) {
  makeSortable(table, (column, number, order) => {
    const keyed = all("tbody tr", table).map(row => [value(row.cells[column]), row]).sort(order);
    table.tBodies[0].append(...keyed.map(([, row]) => row));
  });
}

// Searching: rows that contain every word, in any column; a few at a time, so that thousands stay fast.
const plain = text => text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
const matching = new Map();  // by table: the texts of the rows that match, for copying
for (const table of all("table[data-first]")) {
  const box = table.closest(".table"), find = box.querySelector(".find"), input = find.querySelector("input");
  const rest = box.querySelector(".rest"), body = table.tBodies[0], template = body.rows[0];
  if (!template) continue;
  let records = JSON.parse(find.querySelector("script").textContent).map(texts => [plain(texts.join("\n")), texts]);
  let limit = Number(table.dataset.first);
  function build([, texts], words) {
    const row = template.cloneNode(true), text = texts.at(-1);
    [...row.cells].forEach((cell, i) => { cell.textContent = texts[i]; });
    if (!text) return [row];
    const long = text.length > table.dataset.fold, more = document.createElement("tr");
    const cell = more.insertCell(), fold = cell.appendChild(document.createElement(long ? "details" : "div"));
    const place = long ? fold.appendChild(document.createElement("summary")) : fold;
    more.className = "more";
    cell.colSpan = texts.length - 1;
    fold.className = "fold";
    place.textContent = text;
    if (long) fold.open = words.some(word => plain(text).includes(word));
    return [row, more];
  }
  function draw() {
    const words = plain(input.value).split(/\s+/).filter(Boolean);
    const found = records.filter(([text]) => words.every(word => text.includes(word)));
    matching.set(box, found.map(([, texts]) => texts));
    body.replaceChildren(...found.slice(0, limit).flatMap(record => build(record, words)));
    const count = words.length ? `${found.length} of ${records.length} match` : "";
    find.querySelector("[role=status]").textContent = count;
    rest.hidden = found.length <= limit;
    rest.firstElementChild.textContent = `Show more (${found.length - limit} left)`;
    mark(body, words);
  }
  input.addEventListener("input", () => { limit = Number(table.dataset.first); draw(); });
  rest.firstElementChild.addEventListener("click", () => { limit += 50; draw(); });
  makeSortable(table, (column, number, order) => {
    records = records.map(record => [sortKey(record[1][column], number), record]).sort(order).map(([, record]) => record);
    draw();
  });
  find.hidden = false;
  draw();
}
// Marks words in the text without changing it, where the browser can.
function mark(body, words) {
  if (!CSS.highlights) return;
  const ranges = [], nodes = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  while (words.length && nodes.nextNode()) {
    const node = nodes.currentNode, text = node.data.toLowerCase();
    if (text.length !== node.length) continue;
    for (const word of words) {
      for (let at = text.indexOf(word); at >= 0; at = text.indexOf(word, at + word.length)) {
        const range = new Range();
        range.setStart(node, at);
        range.setEnd(node, at + word.length);
        ranges.push(range);
      }
    }
  }
  CSS.highlights.set("found", new Highlight(...ranges));
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
function toCsv(table, rows) {
  const titles = [...all("thead .sort", table).map(head => head.textContent), table.dataset.more];
  const quote = text => /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  return [titles, ...rows].map(texts => texts.map(quote).join(",") + "\n").join("");
}
for (const bar of all(".copy")) {
  bar.hidden = false;
  bar.addEventListener("click", async event => {
    const format = event.target.dataset.copy;
    if (!format) return;
    const box = bar.closest(".table"), rows = matching.get(box);
    const text = rows ? toCsv(box.querySelector("table"), rows) : JSON.parse(bar.nextElementSibling.textContent)[format];
    const what = rows ? `${format} of ${rows.length} rows` : format;
    bar.lastElementChild.textContent = await copy(text) ? `${what} copied` : "copying is blocked by the browser";
  });
}
