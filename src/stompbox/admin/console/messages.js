// The messages of a queue, page by page, as they were when they were asked for: headers, bodies as text, JSON or hex, and what can be done
// with chosen ones. Looking takes nothing. Bodies are strangers' and only ever text.

import { Refusal, ask, lookAgain, query, why } from "./asking.js";
import { confirm, doing, input } from "./dialogs.js";
import { attribute, facts, make, mark, say, tell } from "./elements.js";
import { bytes, clock, count, plural } from "./figures.js";
import { Table } from "./tables.js";

const PAGE = 50; // messages
const SHORT = 160; // characters of a body in a row
const HEX = 65536; // octets that are shown as hex

export class Messages {
  constructor(queue, name) {
    Object.assign(this, { queue, name, starts: [0], next: null, rows: null, chosen: new Set() });
    this.table = new Table(`Messages of ${name}`, this.columns(), (row) => row.offset);
    this.from = input({ name: "start", type: "number", placeholder: "0" });
    this.since = input({ name: "since", type: "datetime-local" });
    this.selector = input({ name: "selector", placeholder: "region = 'EU'" });
    const look = make("button", { type: "submit" }, "Look again");
    const ask_ = make("form", { class: "asks" }, make("label", {}, "From offset", this.from), make("label", {}, "Arrived since", this.since), make("label", { class: "wide" }, "Selector", this.selector), look);
    ask_.addEventListener("submit", (event) => { event.preventDefault(); this.again([Number(this.from.value) || 0]); });
    this.back = doing("Previous", () => this.again(this.starts.slice(0, -1)));
    this.on = doing("Next", () => this.again([...this.starts, this.next]));
    this.count = make("span", { role: "status" });
    this.whole = doing("Choose all of this page", () => this.chooseAll());
    this.redrive = doing("Send back…", () => this.sendBack());
    this.remove = doing("Delete…", () => this.delete());
    this.about = make("p", { class: "soft" });
    this.problem = make("p", { class: "wrong", role: "alert" });
    this.element = make(
      "section", { class: "panel messages" }, make("h2", {}, "Messages"), ask_, this.problem, this.about, make("div", { class: "chosen" }, this.whole, this.count, this.redrive, this.remove),
      this.table.element, make("div", { class: "pages" }, this.back, this.on),
    );
    this.tell();
  }

  columns() {
    return [
      { title: "Choose", draw: (cell, row) => this.box(cell, row) },
      { title: "Offset", kind: "number", text: (row) => count(row.offset) },
      { title: "Arrived", text: (row) => clock.format(row.arrived) },
      { title: "Size", kind: "number", text: (row) => bytes(row.size) },
      { title: "Type", text: (row) => row.headers["content-type"] ?? "" },
      { title: "Body begins", kind: "name", text: (row) => (row.body === null ? "no text, or large" : row.body.slice(0, SHORT) + (row.is_cut || row.body.length > SHORT ? " …" : "")) },
      { title: "", kind: "actions", draw: (cell, row, shown) => this.actions(cell, row, shown) },
    ];
  }

  box(cell, row) {
    if (!cell.firstChild) {
      const box = make("input", { type: "checkbox", "aria-label": `Choose offset ${row.offset}` });
      box.addEventListener("change", () => { this.chosen[box.checked ? "add" : "delete"](row.offset); this.tell(); });
      cell.append(box);
    }
    cell.firstChild.checked = this.chosen.has(row.offset);
    cell.firstChild.disabled = row.is_delivering;
  }

  actions(cell, row, shown) {
    if (!cell.firstChild) cell.append(make("span"), doing("Show…", () => showMessage(this.queue, shown.row)));
    cell.firstChild.replaceChildren(...(row.is_delivering ? [mark("in delivery")] : []));
  }

  /** The first page, once; the others when they are asked for. */
  async begin(signal) {
    if (this.rows === null) await this.load([0], signal);
  }

  async again(starts) {
    tell(this.problem, "");
    try {
      await this.load(starts);
    } catch (error) {
      tell(this.problem, why(error));
    }
  }

  async load(starts, signal) {
    const since = this.since.value ? new Date(this.since.value).getTime() : "";
    const wanted = { queue: this.queue, limit: PAGE, start: starts.at(-1) || "", since, selector: this.selector.value };
    let found;
    try {
      found = await ask(`messages?${query(wanted)}`, undefined, signal);
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 403) throw error;
      found = { messages: [], next: null };
      tell(this.problem, why(error));
    }
    if (starts.length === 1 && starts[0] !== this.starts[0]) this.chosen.clear();
    [this.starts, this.next, this.rows] = [starts, found.next, found.messages];
    const [first, last] = [found.messages[0], found.messages.at(-1)];
    tell(this.about, first ? `${plural(found.messages.length, "message")}, offsets ${count(first.offset)} to ${count(last.offset)}, at ${clock.format(Date.now())}. Looking takes nothing from the queue.` : "");
    this.tell();
  }

  tell() {
    this.table.show(this.rows ?? [], "No message is there now that this asks for.");
    tell(this.count, this.chosen.size ? `${count(this.chosen.size)} chosen` : "none chosen");
    for (const button of [this.redrive, this.remove]) button.disabled = !this.chosen.size;
    this.whole.disabled = !this.rows?.length;
    this.back.disabled = this.starts.length < 2;
    this.on.disabled = this.next === null;
  }

  chooseAll() {
    for (const row of this.rows) if (!row.is_delivering) this.chosen.add(row.offset);
    this.tell();
  }

  sendBack() {
    confirm({
      title: `Send ${plural(this.chosen.size, "message")} of ${this.name} back?`, verb: "Send back",
      text: "The chosen dead letters go back to the queues that they came from, and are gone from here. One that does not say where it came from stays.",
      act: () => this.do("messages/redrive", `sent back from ${this.name}`),
    });
  }

  delete() {
    confirm({
      title: `Delete ${plural(this.chosen.size, "message")} of ${this.name}?`, verb: `Delete ${plural(this.chosen.size, "message")}`, isDanger: true,
      text: "The chosen messages are dropped. They cannot be brought back. What a consumer has by now stays.", act: () => this.do("messages/delete", `deleted from ${this.name}`),
    });
  }

  async do(path, text) {
    const answer = await ask(path, { queue: this.queue, offsets: [...this.chosen].sort((one, other) => one - other) });
    this.chosen.clear();
    await this.again(this.starts);
    return `${plural(answer.moved, "message")} ${text}${answer.is_done ? "" : " so far; the rest follows"}`;
  }
}

// ---- One message ----

async function showMessage(queue, row) {
  let found;
  try {
    [found] = (await ask(`messages?${query({ queue, start: row.offset || "", limit: 1, whole: true })}`)).messages;
  } catch (error) {
    return say(why(error));
  }
  if (found?.offset !== row.offset) {
    lookAgain();
    return say(`Offset ${count(row.offset)} is not in the queue any more`);
  }
  const octets = found.body === null ? Uint8Array.from(atob(found.body_base64 ?? ""), (one) => one.charCodeAt(0)) : new TextEncoder().encode(found.body);
  const dialog = document.getElementById("dialog");
  const close = doing("Close", () => dialog.close());
  const headers = make("dl", { class: "facts" }, ...facts(Object.entries(found.headers)));
  dialog.className = "wide";
  dialog.onkeydown = null;
  dialog.replaceChildren(
    make("h2", { id: "dialog-title" }, `Offset ${count(found.offset)}`),
    make("p", { class: "soft" }, `Arrived ${clock.format(found.arrived)}, ${bytes(found.size)}${found.is_delivering ? ", in delivery" : ""}${found.is_cut ? `; the first ${bytes(octets.length)} are shown` : ""}`),
    make("article", { class: "message" }, make("h3", {}, "Headers"), headers), body(found.body, octets), make("div", { class: "buttons" }, close),
  );
  dialog.showModal();
  close.focus({ preventScroll: true });
}

/** A body with the ways to read it: as text and JSON where it is that, and as hex. */
function body(text, octets) {
  const json = text === null ? null : indented(text);
  const ways = { Text: text, JSON: json, Hex: hex(octets) };
  const shown = make("pre", { tabindex: 0, "aria-label": "Body" });
  const buttons = Object.keys(ways).map((name) => doing(name, () => choose(name), { disabled: ways[name] === null }));
  const choose = (name) => {
    for (const button of buttons) attribute(button, "aria-pressed", String(button.textContent === name));
    tell(shown, ways[name] || "(empty)");
  };
  choose(json !== null ? "JSON" : text !== null ? "Text" : "Hex");
  return make("article", { class: "message" }, make("div", { class: "head" }, make("h3", {}, "Body"), make("span", { class: "choice", role: "group", "aria-label": "Shown as" }, ...buttons)), shown);
}

/** JSON with a line for each member; null where the text is not JSON. Numbers stay as they are written, however many digits they have. */
export function indented(text) {
  try {
    JSON.parse(text);
  } catch {
    return null;
  }
  let [depth, written] = [0, ""];
  const line = () => `\n${"  ".repeat(depth)}`;
  for (const [token] of text.matchAll(/"(?:[^"\\]|\\.)*"|[{[]\s*[}\]]|[{}[\],:]|[^\s{}[\],:"]+/g)) {
    if (token === "{" || token === "[") (depth++, (written += token + line()));
    else if (token === "}" || token === "]") (depth--, (written += line() + token));
    else if (token === ",") written += token + line();
    else written += token === ":" ? ": " : token.length > 1 && "{[".includes(token[0]) ? token[0] + token.at(-1) : token;
  }
  return written;
}

/** Sixteen octets a line: where, which, and those that are ASCII. */
export function hex(octets) {
  const lines = [];
  for (let at = 0; at < Math.min(octets.length, HEX); at += 16) {
    const row = [...octets.subarray(at, at + 16)];
    const digits = row.map((one) => one.toString(16).padStart(2, "0")).join(" ");
    lines.push(`${at.toString(16).padStart(8, "0")}  ${digits.padEnd(47)}  ${row.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : ".")).join("")}`);
  }
  if (octets.length > HEX) lines.push(`… and ${count(octets.length - HEX)} octets more`);
  return lines.join("\n");
}
