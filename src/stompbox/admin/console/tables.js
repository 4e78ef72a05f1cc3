// Tables whose rows stay the same elements from one answer to the next, so that focus and selection stay, too.

import { ask, lookAgain, query } from "./asking.js";
import { attribute, make, tell } from "./elements.js";
import { count } from "./figures.js";

const ROWS = 100; // of one page of a list

/** `columns`: {title, sort, kind, text(row) or draw(cell, row)}; `key(row)`: what makes a row the same one in the next answer. */
export class Table {
  constructor(caption, columns, key, options = {}) {
    Object.assign(this, { columns, key, options, rows: new Map(), sort: options.sort ?? "" });
    this.heads = columns.map((column) => make("th", { role: "columnheader", scope: "col", class: column.kind ?? "" }, this.title(column)));
    this.body = make("tbody", { role: "rowgroup" });
    this.empty = make("p", { class: "empty", hidden: true });
    const head = make("thead", { role: "rowgroup" }, make("tr", { role: "row" }, ...this.heads));
    this.table = make("table", this.stacks(), make("caption", { class: "unseen" }, caption), head, this.body);
    this.element = make("div", {}, make("div", { class: "scroll" }, this.table), this.empty);
    this.arrows();
  }

  /** A table of many columns shows each row as a card where the screen is narrow (console.css): its roles must not go with its layout. */
  stacks() {
    return this.columns.length > 3 ? { class: "stacks", role: "table" } : {};
  }

  title(column) {
    if (!column.sort) return column.title;
    return make("button", { type: "button", onclick: () => this.turn(column) }, column.title);
  }

  turn(column) {
    const first = column.kind === "number" ? `-${column.sort}` : column.sort;
    const second = column.kind === "number" ? column.sort : `-${column.sort}`;
    this.sort = this.sort === first ? second : first;
    this.arrows();
    this.options.turned?.();
  }

  arrows() {
    this.columns.forEach((column, at) => {
      if (column.sort) attribute(this.heads[at], "aria-sort", this.sort === column.sort ? "ascending" : this.sort === `-${column.sort}` ? "descending" : "none");
    });
  }

  show(rows, empty) {
    const seen = new Set();
    rows.forEach((row, at) => {
      const key = this.key(row);
      seen.add(key);
      const shown = this.rows.get(key) ?? this.add(key);
      shown.row = row;
      this.columns.forEach((column, index) => {
        const cell = shown.element.cells[index];
        if (column.draw) column.draw(cell, row, shown);
        else tell(cell, column.text(row));
        if (column.kind === "number") cell.classList.toggle("zero", cell.textContent === "0");
      });
      if (this.body.rows[at] !== shown.element) this.body.insertBefore(shown.element, this.body.rows[at] ?? null);
    });
    for (const [key, shown] of this.rows) if (!seen.has(key)) (shown.element.remove(), this.rows.delete(key));
    this.table.hidden = !rows.length;
    this.empty.hidden = rows.length > 0;
    tell(this.empty, empty);
  }

  add(key) {
    const shown = { element: make("tr", { role: "row" }, ...this.columns.map(cell)), row: null };
    this.rows.set(key, shown);
    return shown;
  }
}

/** An empty cell of a column, which says the column's name where the head of the table is not above it. */
export const cell = (column) => make("td", { role: "cell", class: column.kind ?? "", "data-title": column.title });

/** A number with a bar below it: how much it is of `whole`. */
export function part(cell, text, value, whole) {
  tell(cell, text);
  cell.classList.toggle("part", whole > 0);
  cell.style.setProperty("--part", `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%`);
}

/** A list of the API with a filter, an order and pages, all of them the broker's work. */
export class Listed {
  constructor(title, name, columns, key, options) {
    this.name = name;
    this.options = options;
    this.offset = 0;
    this.table = new Table(title, columns, key, { sort: options.sort, turned: () => this.again() });
    this.filter = make("input", { type: "search", placeholder: options.filter, "aria-label": options.filter, oninput: () => this.typed() });
    this.total = make("span", { class: "soft" });
    this.problem = make("p", { class: "empty", role: "status" });
    this.where = make("span");
    this.back = make("button", { type: "button", onclick: () => this.again(this.offset - ROWS) }, "Previous");
    this.on = make("button", { type: "button", onclick: () => this.again(this.offset + ROWS) }, "Next");
    this.pages = make("div", { class: "pages" }, this.back, this.on, this.where);
    const head = make("div", { class: "head" }, make("h1", {}, title), this.total, make("span", { class: "push" }), this.filter, ...(options.buttons ?? []));
    this.panels = [make("section", { class: "panel" }, this.table.element, this.pages)];
    this.elements = [...(options.above ?? []), head, this.problem, ...this.panels];
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.again(), 200);
  }

  again(offset = 0) {
    this.offset = Math.max(0, offset);
    lookAgain();
  }

  async load(signal) {
    const sort = this.table.sort === this.options.sort ? "" : this.table.sort; // that is the order they have anyway
    const given = { match: this.filter.value, sort, limit: ROWS, offset: this.offset || "" };
    const [found] = await Promise.all([ask(`${this.name}?${query({ ...given, ...this.options.given })}`, undefined, signal), this.options.beside?.(signal)]);
    return found;
  }

  show(found) {
    if (this.offset && this.offset >= found.total) return this.again(Math.floor(Math.max(0, found.total - 1) / ROWS) * ROWS);
    this.options.before?.(found);
    const rows = found[this.name];
    for (const row of rows) row.now = found.now;
    this.table.show(rows, this.filter.value ? `Nothing here holds “${this.filter.value}”.` : this.options.empty);
    tell(this.total, count(found.total));
    this.pages.hidden = found.total <= ROWS;
    this.back.disabled = !this.offset;
    this.on.disabled = this.offset + ROWS >= found.total;
    tell(this.where, `${count(this.offset + 1)} to ${count(Math.min(found.total, this.offset + ROWS))} of ${count(found.total)}`);
  }
}
