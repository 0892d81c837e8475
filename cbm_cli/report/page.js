"use strict";
const root = document.documentElement;
const all = (query, root = document) => [...root.querySelectorAll(query)];

// Filters: nothing chosen of a setting shows all of it.
const form = document.getElementById("filters");
function filter() {
  const names = new Set(all("input", form).map((box) => box.name));
  const wanted = [...names].map((name) => [name, all(`input[name=${name}]:checked`, form).map((box) => box.value)]);
  const fits = (item) => wanted.every(([name, values]) => !values.length || values.includes(item.dataset[name] ?? values[0]));
  for (const item of all(".item")) item.classList.toggle("out", !fits(item));
  const seen = (items) => !items.length || items.some((item) => !item.classList.contains("out"));
  for (const place of all(".holds")) place.classList.toggle("out", !seen(all(".item", place)));
  for (const table of all(".results")) {
    all("thead th", table).forEach((head, i) => {
      const column = all("tr.holds", table).map((row) => row.cells[i]);
      const gone = i > 0 && !seen(column);
      for (const cell of [head, ...column]) cell.classList.toggle("gone", gone);
    });
  }
  const cells = all(".results .item");
  const found = cells.filter((cell) => !cell.classList.contains("out")).length;
  document.getElementById("found").textContent = `${found} of ${cells.length} cells`;
}
if (form) {
  form.addEventListener("change", filter);
  form.addEventListener("reset", () => setTimeout(filter));
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
  const room = () => (root.style.scrollPaddingTop = getComputedStyle(form).position === "sticky" ? `${form.offsetHeight}px` : "");
  addEventListener("resize", room);
  room();
}

// Sorting: within a group of rows; the largest first, then the smallest, then the order of the file.
function sort(head) {
  const place = head.cellIndex;
  const table = head.closest("table");
  const next = { none: "descending", descending: "ascending", ascending: "none" };
  const order = next[head.getAttribute("aria-sort") ?? "none"];
  for (const other of all("thead th", table)) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const value = (row) => row.cells[place].dataset.sort ?? row.cells[place].textContent.trim();
  const sign = order === "ascending" ? 1 : -1;
  for (const body of table.tBodies) {
    const rows = [...body.rows].filter((row) => !row.classList.contains("heading"));
    for (const row of rows) row.place ??= row.rowIndex;
    rows.sort((a, b) => {
      const [x, y] = [value(a), value(b)];
      if (order === "none" || x === y) return a.place - b.place;
      if (x === "" || y === "") return x === "" ? 1 : -1;
      return sign * (isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y);
    });
    body.append(...rows);
  }
}
for (const button of all(".sortable thead button")) {
  button.addEventListener("click", () => sort(button.closest("th")));
}

// Copying: where the browser does not allow it, the text is selected.
for (const button of all(".copy")) {
  const words = button.textContent;
  button.addEventListener("click", async () => {
    const source = button.previousElementSibling;
    try {
      await navigator.clipboard.writeText(source.querySelector("pre").textContent);
      button.textContent = "Copied";
    } catch {
      source.open = true;
      getSelection().selectAllChildren(source.querySelector("pre"));
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = words), 3000);
  });
}

// Light or dark: as the system has it, until the button is used.
const theme = document.getElementById("theme");
const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
const name = () => (theme.textContent = dark() ? "Light" : "Dark");
theme.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  name();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
name();
