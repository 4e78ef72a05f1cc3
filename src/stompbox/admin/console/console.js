// The console: asks the API every two seconds for what is looked at, and shows it.
//
// Names of addresses, users and clients come from strangers. All of them go into the page as text (`textContent`); the page's policy
// refuses markup from a string. Rows stay the same elements from one answer to the next, so that focus and selection stay, too.

const EVERY = 2000; // ms between two questions
const PATIENCE = 15000; // ms until a broker that does not answer counts as away
const ROWS = 100; // of one page of a list
const FEW = 5; // of what the overview has of a list
const MUCH = 2000; // addresses: beyond, the overview looks for the largest of them less often
const SAMPLES = 300; // of the drawing: ten minutes
const TABS = { overview, addresses, connections, groups, pipelines };

const page = document.getElementById("main");
const state = { view: null, reasons: [], mayNot: "", timer: 0, asking: null, started: 0, awaySince: 0, refused: false, samples: [], status: null };

// ---- Elements ----

/** An element. `given`: its attributes and properties; on… are listeners. Children are elements or text. */
function make(tag, given = {}, ...children) {
  const made = tag === "svg" || SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
const SVG = new Set(["polyline", "polygon", "line", "text"]);

function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

// ---- Numbers, times ----

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const count = (value) => whole.format(value);
const plural = (value, name) => `${count(value)} ${name}${value === 1 ? "" : "s"}`;
const rate = (value) => (value === null ? "–" : (value > 0 && value < 10 ? tenth : whole).format(value));
const exact = (row, value) => (row.is_estimate ? "≈ " : "") + count(value);

function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${(value < 10 && at ? tenth : whole).format(value)} ${units[at]}`;
}

function span(ms) {
  if (ms === null) return "?";
  const seconds = Math.round(ms / 1000);
  if (seconds < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

const ago = (then, now) => (then === null ? "not since the start" : `${span(Math.max(0, now - then))} ago`);

/** Rates from what was counted in successive answers. `now` is the broker's time, so that a slow network changes nothing. */
class Rates {
  constructor() { this.before = new Map(); }

  /** Per second since the answer before; null for the first one, and where counting began anew. */
  of(key, value, now, kind = "") {
    const last = this.before.get(key);
    if (last && last.now === now) return last.rate;
    const goesOn = last && last.kind === kind && value >= last.value && now > last.now;
    const found = goesOn ? ((value - last.value) * 1000) / (now - last.now) : null;
    this.before.delete(key); // behind all others: the first ones are those that were not seen for longest
    this.before.set(key, { value, now, kind, rate: found });
    if (this.before.size > 2000) this.before.delete(this.before.keys().next().value);
    return found;
  }
}

// ---- Asking the broker ----

class Refusal extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
  }
}

/** Why a question had no answer, for the reader. */
const why = (error) => (error instanceof Refusal ? `${error.message} (${error.code})` : "The broker does not answer.");

async function ask(path, body, signal) {
  const given = { cache: "no-store", credentials: "same-origin", redirect: "error", signal };
  if (body !== undefined) Object.assign(given, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const answer = await fetch(path.startsWith("/") ? path : `/api/v1/${path}`, given);
  const content = await answer.json();
  if (!answer.ok && !content.reasons) throw new Refusal(answer.status, content.error ?? { code: "refused", message: `status ${answer.status}` });
  return content;
}

function query(given) {
  return new URLSearchParams(Object.entries(given).filter(([, value]) => value !== "" && value !== null)).toString();
}

async function poll() {
  clearTimeout(state.timer);
  state.asking?.abort();
  state.asking = null;
  if (document.hidden || state.refused) return;
  const asking = (state.asking = new AbortController());
  const late = setTimeout(() => asking.abort("late"), PATIENCE);
  const began = performance.now();
  try {
    await look(asking.signal);
    answered();
  } catch (error) {
    if (asking !== state.asking) return; // another question has taken its place
    failed(error);
  } finally {
    clearTimeout(late);
    if (asking === state.asking) state.timer = setTimeout(poll, Math.max(EVERY, 4 * (performance.now() - began)));
  }
}

async function look(signal) {
  const view = state.view;
  await status(signal);
  try {
    const found = await view.load(signal);
    if (view !== state.view || signal.aborted) return;
    tell(view.problem, "");
    for (const panel of view.panels) panel.hidden = false;
    view.show(found);
  } catch (error) {
    if (!(error instanceof Refusal) || error.status === 401 || error.status === 429) throw error;
    tell(view.problem, `${error.message} (${error.code})`);
    for (const panel of view.panels) panel.hidden = true;
  }
}

/** How the broker is: for the head of the page, and a sample for the drawing. Who may not see it learns only whether it is ready. */
async function status(signal) {
  let found = null;
  if (!state.mayNot) {
    try {
      found = await ask("status", undefined, signal);
    } catch (error) {
      if (!(error instanceof Refusal) || error.status !== 403) throw error;
      state.mayNot = error.message;
    }
  }
  const health = found ?? (await ask("/readyz", undefined, signal));
  const isReady = found ? found.is_ready : health.status === "ready";
  badge(document.getElementById("state"), isReady ? "ready" : "not ready");
  tell(document.getElementById("version"), found ? `${found.version}, up for ${span(found.uptime)}` : "");
  state.reasons = health.reasons;
  state.status = found;
  if (found) sample(found);
  if (state.samples.length === 1) await remember(signal);
}

/** What the broker remembers of the time before this page was opened. */
async function remember(signal) {
  const past = await ask("history", undefined, signal);
  const [received, delivered] = [past.series.received ?? [], past.series.delivered ?? []];
  const perSecond = (counted) => (counted * 1000) / past.step;
  const before = received.map((counted, at) => ({ now: past.until - (received.length - 1 - at) * past.step, in: perSecond(counted), out: perSecond(delivered[at]) }));
  state.samples.unshift(...before.filter((one) => one.now < state.samples[0].now).slice(1 - SAMPLES));
}

function sample(found) {
  if (found.started !== state.started) [state.started, state.samples] = [found.started, []];
  const now = found.started + found.uptime;
  const last = state.samples.at(-1);
  const taken = { now, received: found.messages.received ?? 0, delivered: found.messages.delivered ?? 0, in: null, out: null };
  if (last && now > last.now) {
    taken.in = ((taken.received - last.received) * 1000) / (now - last.now);
    taken.out = ((taken.delivered - last.delivered) * 1000) / (now - last.now);
  }
  state.samples.push(taken);
  if (state.samples.length > SAMPLES) state.samples.shift();
}

function answered() {
  state.awaySince = 0;
  document.body.classList.remove("is-away");
  notice(state.reasons.length ? `The broker is not ready: ${state.reasons.map((reason) => `${reason.message} (${reason.code})`).join("; ")}` : "", true);
}

function failed(error) {
  if (error instanceof Refusal && (error.status === 401 || error.status === 429)) {
    if (error.code === "login-required") return location.replace("/login");
    state.refused = true; // asking on would only count as more failed logins
    badge(document.getElementById("state"), "refused");
    notice(`${error.message} (${error.code}). Load the page again to log in.`);
    return;
  }
  state.awaySince ||= Date.now();
  document.body.classList.add("is-away");
  badge(document.getElementById("state"), "away");
  notice(`The broker has not answered since ${clock.format(state.awaySince)}. What is shown is from before; the console goes on asking.`);
}

function notice(text, isMild = false) {
  const shown = document.getElementById("notice");
  shown.classList.toggle("mild", isMild);
  shown.hidden = !text;
  tell(shown, text);
}

function badge(element, text) {
  tell(element, text);
  attribute(element, "data-state", text);
}

const mark = (text) => make("span", { class: "badge", "data-state": text }, text);

let saying = 0;
function say(text) {
  clearTimeout(saying);
  tell(document.getElementById("said"), text);
  saying = setTimeout(() => tell(document.getElementById("said"), ""), 8000);
}

// ---- Tables ----

/** `columns`: {title, sort, kind, text(row) or draw(cell, row)}; `key(row)`: what makes a row the same one in the next answer. */
class Table {
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
const cell = (column) => make("td", { role: "cell", class: column.kind ?? "", "data-title": column.title });

/** A number with a bar below it: how much it is of `whole`. */
function part(cell, text, value, whole) {
  tell(cell, text);
  cell.classList.toggle("part", whole > 0);
  cell.style.setProperty("--part", `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%`);
}

/** Draws a cell again only when what it depends on has changed. */
function drawn(cell, depends, draw) {
  const now = JSON.stringify(depends);
  if (cell.drawnFor === now) return;
  cell.drawnFor = now;
  cell.replaceChildren(...draw());
}

/** A list of the API with a filter, an order and pages, all of them the broker's work. */
class Listed {
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
    const head = make("div", { class: "head" }, make("h1", {}, title), this.total, make("span", { class: "push" }), this.filter);
    this.panels = [make("section", { class: "panel" }, this.table.element, this.pages)];
    this.elements = [head, this.problem, ...this.panels];
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => this.again(), 200);
  }

  again(offset = 0) {
    this.offset = Math.max(0, offset);
    poll();
  }

  load(signal) {
    const sort = this.table.sort === this.options.sort ? "" : this.table.sort; // that is the order they have anyway
    const given = { match: this.filter.value, sort, limit: ROWS, offset: this.offset || "" };
    return ask(`${this.name}?${query(given)}`, undefined, signal);
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

// ---- Asking the reader ----

/** `fields`: [{name, label, value, type}]; `act(values)` does it and returns what is said then. The one thing that is lost stands in `text`. */
function confirm({ title, text, verb, isDanger = false, fields = [], act }) {
  const dialog = document.getElementById("dialog");
  const wrong = make("p", { class: "wrong", role: "alert" });
  const inputs = fields.map((field) => make("input", { type: field.type ?? "text", name: field.name, placeholder: field.placeholder ?? "", autocomplete: "off" }));
  const go = make("button", { type: "button", class: isDanger ? "danger" : "main" }, verb);
  const stay = make("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  go.addEventListener("click", async () => {
    go.disabled = true;
    tell(wrong, "");
    try {
      say(await act(Object.fromEntries(inputs.map((input) => [input.name, input.value]))));
      dialog.close();
      poll();
    } catch (error) {
      tell(wrong, why(error));
    }
    go.disabled = false;
  });
  const labels = fields.map((field, at) => make("label", {}, field.label, inputs[at]));
  dialog.onkeydown = (event) => { if (event.key === "Enter" && event.target.tagName === "INPUT") go.click(); };
  const heading = make("h2", { id: "dialog-title" }, title);
  dialog.className = "";
  dialog.replaceChildren(heading, make("p", {}, text), ...labels, wrong, make("div", { class: "buttons" }, stay, go));
  dialog.showModal();
  (inputs[0] ?? stay).focus();
}

async function act(path, body, said) {
  try {
    await ask(path, body);
    say(said);
  } catch (error) {
    say(why(error));
  }
  poll();
}

const doing = (text, onclick, given = {}) => make("button", { type: "button", onclick, ...given }, text);

// ---- Overview ----

function overview() {
  const cards = {};
  const card = (name, title, hasMeter = false) => {
    const [value, note] = [make("dd"), make("dd", { class: "note" })];
    const meter = hasMeter ? make("meter", { min: 0, max: 1, "aria-label": title }) : null;
    cards[name] = { value, note, meter, element: make("div", { class: "card" }, make("dt", {}, title), value, meter && make("dd", { class: "gauge" }, meter), note) };
    return cards[name].element;
  };
  const list = make(
    "dl", { class: "cards" },
    card("in", "Messages in/s"), card("out", "Messages out/s"), card("connections", "Connections"), card("dead", "Dead letters"),
    card("memory", "Memory", true), card("disk", "Disk free", true),
  );
  const put = (name, value, note, part) => {
    tell(cards[name].value, value);
    tell(cards[name].note, note);
    if (cards[name].meter) {
      cards[name].meter.hidden = part === null;
      if (part !== null) cards[name].meter.value = part;
    }
  };
  const chart = new Chart();
  const facts = make("dl", { class: "facts" });
  const lost = new Table(
    "Refused and removed", [{ title: "What", text: (row) => row.what, kind: "name" }, { title: "Since the start", text: (row) => count(row.count), kind: "number" }],
    (row) => row.what,
  );
  const problem = make("p", { class: "empty", role: "status" });
  const about = make("section", { class: "panel" }, make("h2", {}, "This broker"), facts);
  const gone = make("section", { class: "panel" }, make("h2", {}, "Refused and removed"), lost.element);
  const tops = [
    new Top("Most messages ready", "addresses", "-ready", ({ name, ready, in: incoming, done }) => [name, ready, incoming, done], addressColumns(new Rates()), (row) => row.name, NO_ADDRESS),
    new Top("Reader groups furthest behind", "positions", "-lag_messages", ({ group, address: of, lag, behind }) => [group, of, lag, behind], groupColumns(new Rates()), (row) => `${row.group} ${row.address}`, NO_GROUP),
    new Top("Pipelines", "pipelines", "-told", ({ pipeline, step, state: at, rows, rate: speed, lag, batch }) => [pipeline, step, at, rows, speed, lag, batch], pipelineColumns(), stepKey, NO_PIPELINE),
  ];
  const [deepest, behind, pipes] = tops.map((top) => top.element);
  const panels = [list, chart.element, make("div", { class: "pair" }, deepest, behind), pipes, make("div", { class: "pair" }, gone, about)];

  function show({ found, listed }) {
    tops.forEach((top, at) => top.show(listed[at]));
    const [last, messages] = [state.samples.at(-1), found.messages];
    put("in", rate(last.in), `${count(messages.received ?? 0)} since the start`);
    put("out", rate(last.out), `${count(messages.delivered ?? 0)} since the start`);
    const waiting = found.waiting ? `, ${count(found.waiting)} not read further` : "";
    put("connections", count(found.connections), plural(found.subscriptions, "subscription") + waiting);
    const dead = found.dead_letters.reduce((sum, one) => sum + one.messages, 0);
    const kept = found.dead_letters.map((one) => `${count(one.messages)} on ${one.address}`).join(", ");
    put("dead", count(dead), kept || (found.messages.dropped ? `${count(found.messages.dropped)} dropped: no address is set` : "none"));
    cards.dead.element.classList.toggle("is-bad", dead > 0);
    const limit = found.memory_limit < 0 ? "no limit" : `of ${bytes(found.memory_limit)}`;
    const part = found.memory_limit > 0 ? Math.min(1, found.memory_bytes / found.memory_limit) : null;
    put("memory", found.resident_bytes === null ? bytes(found.memory_bytes) : bytes(found.resident_bytes), `messages: ${bytes(found.memory_bytes)} ${limit}`, part);
    const isStored = found.disk_size !== null;
    put("disk", isStored ? bytes(found.disk_free) : "–", isStored ? `of ${bytes(found.disk_size)}` : "everything is in memory", isStored ? 1 - found.disk_free / found.disk_size : null);
    chart.show(state.samples);
    const rows = [
      ["Version", found.version], ["Up for", `${span(found.uptime)}, since ${clock.format(found.started)}`], ["Listens on", found.listeners.join(", ")], ["Keeps messages", found.is_durable ? "on disk" : "in memory"],
      ["Addresses", count(found.addresses)], ["Queues", count(found.queues)], ["Transactions", count(found.transactions)],
      ["Commits", count(found.commits) + (found.commits_failed ? `, ${count(found.commits_failed)} failed` : "")],
      ["On the way to disk", bytes(found.unsaved_bytes)], ["Acknowledged", count(messages.acknowledged ?? 0)], ["Process", String(found.process)], ["Start number", count(found.epoch)],
    ];
    drawn(facts, rows, () => rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    const usual = ["received", "delivered", "acknowledged"];
    const removed = Object.entries(messages).filter(([name, value]) => value && !usual.includes(name)).map(([name, value]) => ({ what: `messages ${name}`, count: value }));
    const errors = Object.entries(found.errors).filter(([, value]) => value).map(([code, value]) => ({ what: `errors ${code}`, count: value }));
    lost.show([...removed, ...errors], "Nothing was refused, and every message went its way.");
  }
  async function load(signal) {
    if (!state.status) throw new Refusal(403, { code: "not-permitted", message: state.mayNot });
    const found = state.status; // asked for already, as for every view
    const isMuch = found.addresses > MUCH && state.samples.length % 5 > 0;
    return { found, listed: await Promise.all(tops.map((top) => (isMuch && top.found) || top.load(signal))) };
  }
  return { elements: [make("h1", { class: "unseen" }, "Overview"), problem, ...panels], panels, problem, load, show };
}

/** The first few of a list, for the overview. */
class Top {
  constructor(title, name, sort, choose, columns, key, empty) {
    Object.assign(this, { name, sort, empty, found: null });
    this.table = new Table(title, choose(columns).map(({ sort: _, ...column }) => column), key);
    const head = make("h2", {}, make("a", { href: `#${name === "positions" ? "groups" : name}` }, title));
    this.element = make("section", { class: "panel" }, head, this.table.element);
  }

  async load(signal) {
    return (this.found = await ask(`${this.name}?${query({ sort: this.sort, limit: FEW })}`, undefined, signal));
  }

  show(found) {
    const rows = found[this.name];
    for (const row of rows) row.now = found.now;
    if (this.name === "positions") mostLag(rows);
    this.table.show(rows, this.empty);
  }
}

/** Messages in and out per second, as far back as the broker remembers: ten minutes, and what the page has seen since. */
class Chart {
  constructor() {
    this.drawing = make("svg", { class: "chart", role: "img" });
    this.values = { in: make("b"), out: make("b") };
    const name = (kind, text) => make("span", { class: kind }, make("i"), `${text} `, this.values[kind]);
    this.when = make("span", { class: "push" });
    const key = make("div", { class: "key" }, name("in", "in"), name("out", "out"), this.when);
    this.element = make("section", { class: "panel" }, make("h2", {}, "Messages per second"), key, this.drawing);
    this.drawing.addEventListener("pointermove", (event) => { this.at = event.offsetX; this.draw(); });
    this.drawing.addEventListener("pointerleave", () => { this.at = null; this.draw(); });
    this.at = null;
    this.samples = [];
  }

  show(samples) {
    this.samples = samples.filter((one) => one.in !== null);
    this.draw();
  }

  draw() {
    const [wide, high, left, foot] = [this.drawing.clientWidth || 900, 190, 62, 20];
    const samples = this.samples;
    const end = samples.at(-1)?.now ?? 0;
    const reach = Math.max(60000, end - (samples[0]?.now ?? end));
    const [top, step] = scale(Math.max(1, ...samples.flatMap((one) => [one.in, one.out])));
    const x = (one) => left + (wide - left) * (1 - (end - one.now) / reach);
    const y = (value) => 8 + (high - foot - 8) * (1 - value / top);
    const marks = [];
    for (let value = 0; value <= top; value += step) {
      marks.push(make("line", { class: "grid", x1: left, x2: wide, y1: y(value), y2: y(value) }));
      marks.push(make("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    for (let back = 0; back <= 4; back++) {
      const place = left + (wide - left) * (1 - back / 4);
      const text = back ? `−${span((reach * back) / 4)}` : "now";
      marks.push(make("text", { x: place, y: high - 4, "text-anchor": back === 0 ? "end" : back === 4 ? "start" : "middle" }, text));
    }
    if (samples.length) {
      const line = (kind) => samples.map((one) => `${x(one).toFixed(1)},${y(one[kind]).toFixed(1)}`).join(" ");
      marks.push(make("polygon", { points: `${x(samples[0]).toFixed(1)},${y(0)} ${line("in")} ${x(samples.at(-1)).toFixed(1)},${y(0)}` }));
      for (const kind of ["in", "out"]) marks.push(make("polyline", { class: kind, points: line(kind) }));
    }
    const near = this.at === null ? samples.at(-1) : samples.reduce((best, one) => (Math.abs(x(one) - this.at) < Math.abs(x(best) - this.at) ? one : best), samples[0]);
    if (this.at !== null && near) marks.push(make("line", { class: "cross", x1: x(near), x2: x(near), y1: 0, y2: high - foot }));
    for (const kind of ["in", "out"]) tell(this.values[kind], `${rate(near?.[kind] ?? null)}/s`);
    tell(this.when, near && this.at !== null ? clock.format(near.now) : "");
    attribute(this.drawing, "aria-label", `Messages per second: ${rate(near?.in ?? null)} in, ${rate(near?.out ?? null)} out`);
    attribute(this.drawing, "viewBox", `0 0 ${wide} ${high}`);
    this.drawing.replaceChildren(...marks);
  }
}

/** A round number at or above `most`, and the step of the lines up to it. */
function scale(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((part) => part * power).find((part) => most / part <= 5);
  return [Math.ceil(most / step) * step, step];
}

function short(value) {
  for (const [size, name] of [[1e6, "M"], [1e3, "k"]]) if (value >= size) return `${tenth.format(value / size)} ${name}`;
  return tenth.format(value);
}

// ---- Addresses ----

const marksOf = (row) => [
  ["paused", row.is_paused], ["blocked", row.is_blocked], ["full", row.is_full], ["dead letters", row.is_dead_letters], ["temporary", row.is_temporary],
].filter(([, is]) => is).map(([text]) => text);

function withMarks(row, href) {
  return (cell) => drawn(cell, [row.name, marksOf(row)], () => [href ? make("a", { href }, row.name) : row.name, ...marksOf(row).map(mark)]);
}

function addresses(name) {
  if (name !== undefined) return address(name);
  const columns = Object.values(addressColumns(new Rates()));
  return new Listed("Addresses", "addresses", columns, (row) => row.name, {
    filter: "Filter by name", sort: "name", empty: NO_ADDRESS,
  });
}

const NO_ADDRESS = "There is no address yet: the first SEND or SUBSCRIBE makes one.";

function addressColumns(rates) {
  return {
    name: { title: "Address", sort: "name", kind: "name", draw: (cell, row) => withMarks(row, `#addresses/${encodeURIComponent(row.name)}`)(cell) },
    type: { title: "Type", text: types },
    ready: { title: "Ready", sort: "ready", kind: "number", text: (row) => exact(row, row.ready) },
    delivering: { title: "In delivery", sort: "delivering", kind: "number", text: (row) => count(row.delivering) },
    delayed: { title: "Delayed", sort: "delayed", kind: "number", text: (row) => count(row.delayed) },
    consumers: { title: "Consumers", sort: "consumers", kind: "number", text: (row) => count(row.consumers) },
    in: { title: "In/s", kind: "number", text: (row) => rate(rates.of(`in ${row.name}`, row.next, row.now)) },
    done: { title: "Done/s", kind: "number", text: (row) => rate(rates.of(`out ${row.name}`, row.settled, row.now, row.queues + row.subscriptions)) },
    sent: { title: "Sent in all", sort: "next", kind: "number", text: (row) => count(row.next) },
  };
}

const types = (row) => row.routing_types.map((type) => (type === "ANYCAST" ? "queue" : "topic")).join(", ");

function address(name) {
  const rates = new Rates();
  const full = (row) => `${row.address}::${row.name}`;
  const columns = [
    { title: "Queue", kind: "name", draw: (cell, row) => withMarks(row)(cell) },
    { title: "Kind", text: (row) => row.kind + (row.is_durable ? "" : ", in memory") },
    { title: "Ready", kind: "number", text: (row) => exact(row, row.ready) },
    { title: "In delivery", kind: "number", text: (row) => count(row.delivering) },
    { title: "Delayed", kind: "number", text: (row) => count(row.delayed) },
    { title: "Consumers", kind: "number", text: (row) => count(row.consumers) },
    { title: "Done/s", kind: "number", text: (row) => rate(rates.of(`${row.kind} ${row.name}`, row.settled, row.now)) },
    { title: "Selector", text: (row) => row.selector ?? "" },
    { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, [row.kind, row.is_paused], () => queueActions(shown, full)) },
  ];
  const queues = new Table(`Queues of ${name}`, columns, (row) => `${row.kind} ${row.name}`);
  const facts = make("dl", { class: "facts" });
  const [title, buttons, problem] = [make("h1", {}, name), make("span", { class: "push" }), make("p", { class: "empty", role: "status" })];
  const back = make("a", { href: "#addresses" }, "All addresses");
  const about = make("section", { class: "panel" }, make("h2", {}, "The log"), facts);
  const held = make("section", { class: "panel" }, make("h2", {}, "Queues and subscriptions"), queues.element);

  async function load(signal) {
    const [found, listed] = await Promise.all([
      ask(`addresses?${query({ address: name })}`, undefined, signal), ask(`queues?${query({ address: name, all: true, limit: 1000 })}`, undefined, signal),
    ]);
    const [one] = found.addresses;
    if (!one) throw new Refusal(404, { code: "no-such-address", message: `Address ${name} is not there, or not any more` });
    return { one, listed, now: found.now };
  }

  function show({ one, listed, now }) {
    withMarks(one)(title);
    drawn(buttons, [one.is_paused, one.is_blocked], () => addressActions(one));
    const incoming = rate(rates.of("in", one.next, now));
    const rows = [
      ["Type", types(one)], ["Messages in per second", incoming], ["Sent in all", count(one.next)],
      ["Can be read", one.next > one.oldest ? `from offset ${count(one.oldest)} on` : "nothing is kept"], ["On disk below", `offset ${count(one.committed)}`],
      ["Reader groups", count(one.groups)], ["Made", one.is_auto ? "by a client" : "by the configuration"],
    ];
    drawn(facts, rows, () => rows.flatMap(([term, value]) => [make("dt", {}, term), make("dd", {}, value)]));
    for (const row of listed.queues) row.now = listed.now;
    queues.show(listed.queues, "No queue and no subscription: what is sent here is read by offset, or by nobody.");
  }
  const panels = [held, about];
  return { elements: [make("p", {}, back), make("div", { class: "head" }, title, buttons), problem, ...panels], panels, problem, load, show };
}

function addressActions(one) {
  const body = { address: one.name };
  const pause = one.is_paused
    ? doing("Resume", () => act("addresses/resume", body, `${one.name} goes on`))
    : doing("Pause…", () => confirm({
      title: `Pause ${one.name}?`, text: "Nothing goes out of its queues until it is resumed, or the broker restarts. What is sent is kept; nothing is lost.",
      verb: "Pause", act: async () => (await ask("addresses/pause", body), `${one.name} is paused`),
    }));
  const block = one.is_blocked
    ? doing("Unblock", () => act("addresses/unblock", body, `${one.name} takes messages again`))
    : doing("Block…", () => confirm({
      title: `Block ${one.name}?`, text: "Every SEND to it is refused with the ERROR address-blocked until it is unblocked, or the broker restarts. Consumers go on.",
      verb: "Block", isDanger: true, act: async () => (await ask("addresses/block", body), `${one.name} is blocked`),
    }));
  return [pause, block];
}

function queueActions(shown, full) {
  const { row } = shown;
  if (!["anycast", "durable"].includes(row.kind)) return [];
  const queue = full(row);
  const pause = row.is_paused
    ? doing("Resume", () => act("queues/resume", { queue }, `${row.name} goes on`))
    : doing("Pause", () => act("queues/pause", { queue }, `${row.name} is paused: nothing goes out of it until it is resumed`));
  return [doing("Look…", () => lookInto(shown.row, queue)), pause, doing("Redrive…", () => redrive(shown.row, queue)), doing("Move…", () => move(shown.row, queue)), doing("Purge…", () => purge(shown.row, queue))];
}

function purge(row, queue) {
  const waiting = row.ready + row.delayed;
  const rest = row.delivering ? ` The ${plural(row.delivering, "message")} in delivery stay.` : "";
  confirm({
    title: `Purge ${row.name}?`, isDanger: true, verb: `Drop ${row.is_estimate ? "about " : ""}${plural(waiting, "message")}`,
    text: `All messages that wait in queue ${row.name} of address ${row.address} are dropped: ${exact(row, waiting)} now, and those that come until then. They cannot be brought back.${rest}`,
    act: async () => `${plural((await ask("queues/purge", { queue })).removed, "message")} dropped from ${row.name}`,
  });
}

/** The first messages of a queue, as they were when they were asked for. */
async function lookInto(row, queue) {
  const dialog = document.getElementById("dialog");
  let found;
  try {
    found = (await ask(`messages?${query({ queue })}`)).messages;
  } catch (error) {
    return say(why(error));
  }
  const shown = found.map((one) => make(
    "article", { class: "message" },
    make("h3", {}, `Offset ${count(one.offset)}`, make("span", { class: "soft" }, ` ${clock.format(one.arrived)}, ${bytes(one.size)}`), one.is_delivering ? mark("in delivery") : ""),
    make("dl", { class: "facts" }, ...Object.entries(one.headers).flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    one.body === null ? make("p", { class: "soft" }, "The body is not shown: it is no text, or too large.") : make("pre", { tabindex: 0 }, one.body + (one.is_cut ? " …" : "")),
  ));
  const about = found.length ? `The first ${plural(found.length, "message")} that wait or are in delivery. Looking takes nothing from the queue.` : "It holds no message now.";
  const close = make("button", { type: "button", onclick: () => dialog.close() }, "Close");
  dialog.className = "wide";
  dialog.replaceChildren(make("h2", { id: "dialog-title" }, `Messages of ${row.name}`), make("p", { class: "soft" }, about), ...shown, make("div", { class: "buttons" }, close));
  dialog.showModal();
  close.focus({ preventScroll: true });
}

const moved = (answer, text) => `${plural(answer.moved, "message")} ${text}${answer.is_done ? "" : " so far; the rest follows"}`;
const only = (values) => (values.count ? { count: Number(values.count) } : {});
const AMOUNT = { name: "count", label: "How many at most", type: "number", placeholder: "all" };

function move(row, queue) {
  confirm({
    title: `Move messages of ${row.name}`, verb: "Move", fields: [{ name: "to", label: "To the address" }, AMOUNT],
    text: `What waits in queue ${row.name} (${exact(row, row.ready + row.delayed)} now) goes to another address, oldest first, and is gone from here. The address is made if need be.`,
    act: async (values) => moved(await ask("queues/move", { queue, to: values.to, ...only(values) }), `moved from ${row.name} to ${values.to}`),
  });
}

function redrive(row, queue) {
  confirm({
    title: `Send messages of ${row.name} back?`, verb: "Redrive", fields: [AMOUNT],
    text: "Dead letters go back to the queues that they came from, and are gone from here. A message that does not say where it came from stays.",
    act: async (values) => moved(await ask("queues/redrive", { queue, ...only(values) }), `sent back from ${row.name}`),
  });
}

// ---- Connections ----

function connections(id) {
  if (id !== undefined) return connection(id);
  const columns = [
    { title: "Id", sort: "id", draw: (cell, row) => drawn(cell, row.id, () => [make("a", { href: `#connections/${row.id}` }, String(row.id))]) },
    { title: "User", sort: "user", text: (row) => row.user || "–" },
    { title: "Client address", sort: "peer", text: (row) => row.peer },
    { title: "Client id", sort: "client_id", text: (row) => row.client_id || "–" },
    { title: "STOMP", text: (row) => row.version || "not yet" },
    { title: "Listener", text: (row) => row.listener },
    { title: "Since", sort: "since", kind: "number", text: (row) => span(row.now - row.since) },
    { title: "Subscriptions", sort: "subscriptions", kind: "number", text: (row) => count(row.subscriptions.length) },
    { title: "In delivery", kind: "number", text: (row) => count(row.subscriptions.reduce((sum, one) => sum + one.delivering, 0)) },
    { title: "Transactions", sort: "transactions", kind: "number", text: (row) => count(row.transactions) },
    { title: "Waits for", text: (row) => row.waits_for.join(", ") },
  ];
  return new Listed("Connections", "connections", columns, (row) => row.id, {
    filter: "Filter by id, user, address, client id", sort: "id", empty: "Nobody is connected.",
  });
}

function connection(id) {
  const columns = [
    { title: "Id", kind: "name", text: (row) => row.id }, { title: "Destination", kind: "name", text: (row) => row.destination },
    { title: "Ack", text: (row) => row.ack }, { title: "Selector", text: (row) => row.selector ?? "" },
    { title: "In delivery", kind: "number", text: (row) => count(row.delivering) },
  ];
  const subscriptions = new Table("Subscriptions", columns, (row) => row.id);
  const [facts, problem] = [make("dl", { class: "facts" }), make("p", { class: "empty", role: "status" })];
  const close = doing("Close…", () => confirm({
    title: `Close connection ${id}?`, isDanger: true, verb: "Close it",
    text: "The client gets an ERROR (closed-by-operator). What it had in delivery goes back to its queues; its open transactions are aborted. Most clients connect again by themselves.",
    act: async () => (await ask("connections/close", { connection: Number(id) }), `Connection ${id} is closed`),
  }));
  async function load(signal) {
    const found = await ask(`connections?${query({ connection: id })}`, undefined, signal);
    const [one] = found.connections;
    close.disabled = !one;
    if (!one) throw new Refusal(404, { code: "no-such-connection", message: `Connection ${id} is not there, or not any more` });
    return { ...one, now: found.now };
  }
  function show(one) {
    const rows = [
      ["User", one.user || "–"], ["Client address", one.peer], ["Client id", one.client_id || "–"], ["STOMP", one.version || "not yet"], ["Listener", one.listener],
      ["Since", `${clock.format(one.since)}, ${span(one.now - one.since)}`], ["Open transactions", count(one.transactions)], ["Waits for", one.waits_for.join(", ") || "nothing"], ["Memory", bytes(one.memory_bytes)],
    ];
    drawn(facts, rows, () => rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
    subscriptions.show(one.subscriptions, "It has no subscription.");
  }
  const head = make("div", { class: "head" }, make("h1", {}, `Connection ${id}`), make("span", { class: "push" }, close));
  const back = make("p", {}, make("a", { href: "#connections" }, "All connections"));
  const panels = [make("section", { class: "panel" }, facts), make("section", { class: "panel" }, make("h2", {}, "Subscriptions"), subscriptions.element)];
  return { elements: [back, head, problem, ...panels], panels, problem, load, show };
}

// ---- Reader groups ----

function groups() {
  const columns = [...Object.values(groupColumns(new Rates())), { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, row.group, () => groupActions(shown)) }];
  return new Listed("Reader groups", "positions", columns, (row) => `${row.group} ${row.address}`, {
    filter: "Filter by group or address", sort: "group", before: (found) => mostLag(found.positions), empty: NO_GROUP,
  });
}

const NO_GROUP = "There is no reader group. Spark makes one for its option group, a pipeline for each step that reads; it keeps messages until they are read.";

function groupActions(shown) {
  const { row } = shown;
  return [row.address === null ? "" : doing("Reset…", () => resetGroup(shown.row)), doing("Delete…", () => deleteGroup(shown.row))];
}

function resetGroup(row) {
  confirm({
    title: `Put ${row.group} elsewhere?`, verb: "Reset", isDanger: true, fields: [{ name: "to", label: "To an offset, earliest or latest", placeholder: "earliest" }],
    text: `The position of reader group ${row.group} on address ${row.address} is ${count(row.position)} of ${count(row.next)}. Further on, messages are not read by it; further back, they come again as far as they are still there. Stop who reads by it first.`,
    act: async (values) => (await ask("groups/reset", { group: row.group, address: row.address, to: values.to || "earliest" }), `${row.group} is put elsewhere on ${row.address}`),
  });
}

function deleteGroup(row) {
  confirm({
    title: `Delete ${row.group}?`, verb: "Delete the group", isDanger: true,
    text: `Reader group ${row.group} loses its positions on all of its addresses (${row.patterns.join(", ")}), and messages that were kept for it alone may go. They cannot be brought back.`,
    act: async () => (await ask("groups/delete", { group: row.group }), `Reader group ${row.group} is deleted`),
  });
}

/** Tells each row what the largest lag is of those that are shown. */
function mostLag(rows) {
  const most = Math.max(0, ...rows.map((row) => row.lag_messages));
  for (const row of rows) row.most = most;
}

function groupColumns(rates) {
  return {
    group: { title: "Group", sort: "group", kind: "name", text: (row) => row.group },
    address: { title: "Address", sort: "address", kind: "name", draw: (cell, row) => drawn(cell, [row.address, row.patterns], () => (
      row.address === null
        ? [make("span", { class: "soft" }, `none yet that is ${row.patterns.join(", ")}`)]
        : [make("a", { href: `#addresses/${encodeURIComponent(row.address)}` }, row.address)])) },
    position: { title: "Position", kind: "number", text: (row) => count(row.position) },
    end: { title: "End", kind: "number", text: (row) => count(row.next) },
    lag: { title: "Lag", sort: "lag_messages", kind: "number", draw: (cell, row) => part(cell, count(row.lag_messages), row.lag_messages, row.most) },
    behind: { title: "Behind for", kind: "number", text: (row) => (row.lag_messages ? span(row.lag_ms) : "–") },
    read: { title: "Read/s", kind: "number", text: (row) => rate(rates.of(`${row.group} ${row.address}`, row.position, row.now)) },
    moved: { title: "Last moved", sort: "moved", kind: "number", text: (row) => ago(row.moved, row.now) },
  };
}

// ---- Pipelines ----

function pipelines() {
  return new Listed("Pipelines", "pipelines", Object.values(pipelineColumns()), stepKey, {
    filter: "Filter by pipeline, step or user", sort: "pipeline", empty: NO_PIPELINE,
  });
}

const NO_PIPELINE = "No pipeline has told of itself. stompbox pipeline run FILE does, for as long as it runs.";
const stepKey = (row) => `${row.user}/${row.pipeline}/${row.step}`;

function pipelineColumns() {
  return {
    pipeline: { title: "Pipeline", sort: "pipeline", kind: "name", text: (row) => row.pipeline },
    step: { title: "Step", sort: "step", kind: "name", draw: (cell, row) => drawn(cell, [row.step, row.kind, row.reason], () => [
      row.step, make("span", { class: "note" }, row.kind), row.reason ? make("span", { class: "note bad" }, row.reason) : ""]) },
    state: { title: "State", sort: "state", draw: (cell, row) => drawn(cell, row.state, () => [mark(row.state)]) },
    rows: { title: "Rows", sort: "rows", kind: "number", draw: (cell, row) => part(cell, count(row.rows) + (row.of ? ` of ${count(row.of)}` : ""), row.rows, row.of) },
    rate: { title: "Rows/s", sort: "rate", kind: "number", text: (row) => rate(row.rate) },
    lag: { title: "Waiting", sort: "lag_messages", kind: "number", text: (row) => (row.lag_messages === null ? "–" : count(row.lag_messages)) },
    batch: { title: "Last batch", kind: "number", text: (row) => (row.batch_at === null ? "–" : `${ago(row.batch_at, row.now)}, took ${tenth.format(row.batch_seconds)} s`) },
    told: { title: "Told", sort: "told", kind: "number", text: (row) => ago(row.told, row.now) },
    user: { title: "User", text: (row) => row.user || "–" },
  };
}

// ---- Where the reader is ----
//
// A view is {elements, panels, problem, load(signal), show(found)}: `panels` of its elements are hidden until there is something to show,
// and while there is a `problem`.

function go() {
  const [tab, ...rest] = location.hash.slice(1).split("/");
  const name = tab in TABS ? tab : "overview";
  let given;
  try {
    given = rest.length ? decodeURIComponent(rest.join("/")) : undefined;
  } catch {
    given = rest.join("/"); // a link that somebody has cut
  }
  state.view = TABS[name](given);
  for (const link of document.querySelectorAll("nav a")) attribute(link, "aria-current", link.hash === `#${name}` ? "page" : null);
  for (const panel of state.view.panels) panel.hidden = true;
  page.replaceChildren(...state.view.elements);
  document.title = `${given ?? document.querySelector("nav a[aria-current]").textContent} · Stompbox`;
  poll();
}

addEventListener("hashchange", () => { go(); page.focus(); });
document.addEventListener("visibilitychange", poll);
go();

// ---- Who is there ----

async function greet() {
  const found = await ask("session").catch(() => null);
  const leave = document.getElementById("leave");
  if (!found?.is_session) return;
  leave.textContent = `Log out ${found.user}`;
  leave.hidden = false;
  leave.addEventListener("click", async () => {
    await ask("session/end", {}).catch(() => null);
    location.replace("/login");
  });
}

greet();
