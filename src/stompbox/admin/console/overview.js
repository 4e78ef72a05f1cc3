// The overview: how the broker is, what passes through it, what is deepest and furthest behind.

import { NO_ADDRESS, addressColumns } from "./addresses.js";
import { Refusal, ask, query } from "./asking.js";
import { Past, Plot, activity } from "./charts.js";
import { frontColumns } from "./configuration.js";
import { drawn, facts, make, tell } from "./elements.js";
import { Rates, bytes, clock, count, plural, rate, span } from "./figures.js";
import { NO_GROUP, groupColumns, mostLag } from "./groups.js";
import { NO_PIPELINE, pipelineColumns, stepKey } from "./pipelines.js";
import { Table } from "./tables.js";

const FEW = 5; // of what the overview has of a list
const MUCH = 2000; // addresses: beyond, the largest of them are looked for less often
export function overview() {
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
  const past = new Past();
  const chart = new Plot("Messages per second", [{ series: "received", kind: "in", label: "in", isCount: true }, { series: "delivered", kind: "out", label: "out", isCount: true }], past.choice);
  const rates = new Rates();
  const about = make("dl", { class: "facts" });
  const lost = new Table(
    "Refused and removed", [{ title: "What", text: (row) => row.what, kind: "name" }, { title: "Since the start", text: (row) => count(row.count), kind: "number" }],
    (row) => row.what,
  );
  let looked = 0;
  const problem = make("p", { class: "empty", role: "status" });
  const broker = make("section", { class: "panel" }, make("h2", {}, "This broker"), about);
  const gone = make("section", { class: "panel" }, make("h2", {}, "Refused and removed"), lost.element);
  const tops = [
    new Top("Most messages ready", "addresses", "-ready", ({ name, ready, in: incoming, done, spark: small }) => [name, ready, incoming, done, small], addressColumns(new Rates()), (row) => row.name, NO_ADDRESS),
    new Top("Reader groups furthest behind", "positions", "-lag_messages", ({ group, address: of, lag, behind }) => [group, of, lag, behind], groupColumns(new Rates()), (row) => `${row.group} ${row.address}`, NO_GROUP),
    new Top("Pipelines", "pipelines", "-told", ({ pipeline, step, state: at, rows, rate: speed, lag, batch }) => [pipeline, step, at, rows, speed, lag, batch], pipelineColumns(), stepKey, NO_PIPELINE),
  ];
  const [deepest, behind, pipes] = tops.map((top) => top.element);
  const helpers = new Top("Fronts", "fronts", null, Object.values, frontColumns(new Rates()), (row) => row.name, "");
  const panels = [list, chart.element, make("div", { class: "pair" }, deepest, behind), pipes, helpers.element, make("div", { class: "pair" }, gone, broker)];

  function show({ found, listed, plot }) {
    tops.forEach((top, at) => top.show(listed[at]));
    const messages = found.messages;
    const now = found.started + found.uptime;
    const perSecond = (name) => rate(rates.of(name, messages[name] ?? 0, now, found.started));
    helpers.element.hidden = !helpers.found.total;
    helpers.show(helpers.found);
    put("in", perSecond("received"), `${count(messages.received ?? 0)} since the start`);
    put("out", perSecond("delivered"), `${count(messages.delivered ?? 0)} since the start`);
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
    chart.show(plot);
    const rows = [
      ["Version", found.version], ["Up for", `${span(found.uptime)}, since ${clock.format(found.started)}`], ["Listens on", found.listeners.join(", ")], ["Keeps messages", found.is_durable ? "on disk" : "in memory"],
      ["Addresses", count(found.addresses)], ["Queues", count(found.queues)], ["Transactions", count(found.transactions)],
      ["Commits", count(found.commits) + (found.commits_failed ? `, ${count(found.commits_failed)} failed` : "")],
      ["On the way to disk", bytes(found.unsaved_bytes)], ["Acknowledged", count(messages.acknowledged ?? 0)], ["Process", String(found.process)], ["Start number", count(found.epoch)],
    ];
    drawn(about, rows, () => facts(rows));
    const usual = ["received", "delivered", "acknowledged"];
    const removed = Object.entries(messages).filter(([name, value]) => value && !usual.includes(name)).map(([name, value]) => ({ what: `messages ${name}`, count: value }));
    const errors = Object.entries(found.errors).filter(([, value]) => value).map(([code, value]) => ({ what: `errors ${code}`, count: value }));
    lost.show([...removed, ...errors], "Nothing was refused, and every message went its way.");
  }
  async function load(signal, state) {
    if (!state.status) throw new Refusal(403, { code: "not-permitted", message: state.mayNot });
    const found = state.status; // asked for already, as for every view
    const isMuch = found.addresses > MUCH && looked++ % 5 > 0;
    const [plot, ...listed] = await Promise.all([
      past.load(signal), ...tops.map((top) => (isMuch && top.found) || top.load(signal)), helpers.found?.total === 0 || helpers.load(signal), activity.load(signal),
    ]);
    return { found, plot, listed };
  }
  return { elements: [make("h1", { class: "unseen" }, "Overview"), problem, ...panels], panels, problem, load, show };
}

/** The first few of a list, for the overview. */
export class Top {
  constructor(title, name, sort, choose, columns, key, empty) {
    Object.assign(this, { name, sort, empty, found: null });
    this.table = new Table(title, choose(columns).map(({ sort: _, ...column }) => column), key);
    const head = make("h2", {}, make("a", { href: `#${name === "positions" ? "groups" : name}` }, title));
    this.element = make("section", { class: "panel" }, head, this.table.element);
  }

  async load(signal) {
    return (this.found = await ask(`${this.name}?${query({ sort: this.sort, limit: this.sort ? FEW : null })}`, undefined, signal));
  }

  show(found) {
    const rows = found[this.name];
    for (const row of rows) row.now = found.now;
    if (this.name === "positions") mostLag(rows);
    this.table.show(rows, this.empty);
  }
}
