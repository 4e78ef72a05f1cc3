// Addresses and their queues: what waits, who reads, and what an operator can do to them.

import { Refusal, ask, query } from "./asking.js";
import { Past, Plot, activity, spark } from "./charts.js";
import { act, confirm, doing } from "./dialogs.js";
import { drawn, facts, make, mark } from "./elements.js";
import { Rates, count, exact, plural, rate } from "./figures.js";
import { send } from "./sending.js";
import { Listed, Table } from "./tables.js";

const marksOf = (row) => [
  ["paused", row.is_paused], ["blocked", row.is_blocked], ["full", row.is_full], ["dead letters", row.is_dead_letters], ["temporary", row.is_temporary],
].filter(([, is]) => is).map(([text]) => text);

function withMarks(row, href) {
  return (cell) => drawn(cell, [row.name, marksOf(row)], () => [href ? make("a", { href }, row.name) : row.name, ...marksOf(row).map(mark)]);
}

export function addresses(name) {
  if (name !== undefined) return address(name);
  const columns = Object.values(addressColumns(new Rates()));
  return new Listed("Addresses", "addresses", columns, (row) => row.name, {
    filter: "Filter by name", sort: "name", empty: NO_ADDRESS, beside: (signal) => activity.load(signal), buttons: [doing("Send a message…", () => send())],
  });
}

export const NO_ADDRESS = "There is no address yet: the first SEND or SUBSCRIBE makes one.";

export function addressColumns(rates) {
  return {
    name: { title: "Address", sort: "name", kind: "name", draw: (cell, row) => withMarks(row, `#addresses/${encodeURIComponent(row.name)}`)(cell) },
    type: { title: "Type", text: types },
    ready: { title: "Ready", sort: "ready", kind: "number", text: (row) => exact(row, row.ready) },
    delivering: { title: "In delivery", sort: "delivering", kind: "number", text: (row) => count(row.delivering) },
    delayed: { title: "Delayed", sort: "delayed", kind: "number", text: (row) => count(row.delayed) },
    consumers: { title: "Consumers", sort: "consumers", kind: "number", text: (row) => count(row.consumers) },
    in: { title: "In/s", kind: "number", text: (row) => rate(rates.of(`in ${row.name}`, row.next, row.now)) },
    done: { title: "Done/s", kind: "number", text: (row) => rate(rates.of(`out ${row.name}`, row.settled, row.now, row.queues + row.subscriptions)) },
    spark: { title: "Last 10 min", draw: (cell, row) => spark(cell, row.name) },
    sent: { title: "Sent in all", sort: "next", kind: "number", text: (row) => count(row.next) },
  };
}

const types = (row) => row.routing_types.map((type) => (type === "ANYCAST" ? "queue" : "topic")).join(", ");

function address(name) {
  const rates = new Rates();
  const columns = [
    { title: "Queue", kind: "name", draw: (cell, row) => withMarks(row, holds(row) ? hrefOf(row) : null)(cell) },
    { title: "Kind", text: (row) => row.kind + (row.is_durable ? "" : ", in memory") },
    { title: "Ready", kind: "number", text: (row) => exact(row, row.ready) },
    { title: "In delivery", kind: "number", text: (row) => count(row.delivering) },
    { title: "Delayed", kind: "number", text: (row) => count(row.delayed) },
    { title: "Consumers", kind: "number", text: (row) => count(row.consumers) },
    { title: "Done/s", kind: "number", text: (row) => rate(rates.of(`${row.kind} ${row.name}`, row.settled, row.now)) },
    { title: "Selector", text: (row) => row.selector ?? "" },
    { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, [row.kind, row.is_paused], () => queueActions(shown).filter((one) => one.textContent !== "Copy…")) },
  ];
  const past = new Past(name);
  const flow = new Plot("Messages per second", [{ series: "received", kind: "in", label: "in", isCount: true }, { series: "done", kind: "out", label: "done", isCount: true }], past.choice);
  const depth = new Plot("Messages ready", [{ series: "ready", kind: "level", label: "ready" }]);
  const plots = make("div", { class: "pair" }, flow.element, depth.element);
  const queues = new Table(`Queues of ${name}`, columns, (row) => `${row.kind} ${row.name}`);
  const log = make("dl", { class: "facts" });
  const [title, buttons, problem] = [make("h1", {}, name), make("span", { class: "push" }), make("p", { class: "empty", role: "status" })];
  const back = make("a", { href: "#addresses" }, "All addresses");
  const about = make("section", { class: "panel" }, make("h2", {}, "The log"), log);
  const held = make("section", { class: "panel" }, make("h2", {}, "Queues and subscriptions"), queues.element);

  async function load(signal) {
    const [found, listed] = await Promise.all([
      ask(`addresses?${query({ address: name })}`, undefined, signal), ask(`queues?${query({ address: name, all: true, limit: 1000 })}`, undefined, signal),
    ]);
    const [one] = found.addresses;
    if (!one) throw new Refusal(404, { code: "no-such-address", message: `Address ${name} is not there, or not any more` });
    const plot = await past.load(signal);
    return { one, listed, plot, now: found.now };
  }

  function show({ one, listed, plot, now }) {
    withMarks(one)(title);
    plots.hidden = !plot.series.received; // it is not among the busiest
    flow.show(plot);
    depth.show(plot);
    drawn(buttons, [one.is_paused, one.is_blocked], () => addressActions(one));
    const incoming = rate(rates.of("in", one.next, now));
    const rows = [
      ["Type", types(one)], ["Messages in per second", incoming], ["Sent in all", count(one.next)],
      ["Can be read", one.next > one.oldest ? `from offset ${count(one.oldest)} on` : "nothing is kept"], ["On disk below", `offset ${count(one.committed)}`],
      ["Reader groups", count(one.groups)], ["Settings", make("a", { href: `#settings/${encodeURIComponent(name)}` }, "what it obeys")], ["Plots", plot.series.received ? "the broker's, since it measures this address" : "none: of the 200 busiest addresses alone"], ["Made", one.is_auto ? "by a client" : "by the configuration"],
    ];
    drawn(log, rows, () => facts(rows));
    for (const row of listed.queues) row.now = listed.now;
    queues.show(listed.queues, "No queue and no subscription: what is sent here is read by offset, or by nobody.");
  }
  const panels = [held, plots, about];
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
  const to = `${one.routing_types.includes("ANYCAST") ? "/queue/" : "/topic/"}${one.name}`;
  return [doing("Send…", () => send({ destination: to })), pause, block];
}

/** Whether a queue's messages are its own: it can be looked into, and something can be done to it. */
export const holds = (row) => ["anycast", "durable"].includes(row.kind);
const full = (row) => `${row.address}::${row.name}`;
const hrefOf = (row) => `#queues/${encodeURIComponent(full(row))}`;

export function queueActions(shown) {
  const { row } = shown;
  if (!holds(row)) return [];
  const queue = full(row);
  const pause = row.is_paused
    ? doing("Resume", () => act("queues/resume", { queue }, `${row.name} goes on`))
    : doing("Pause", () => act("queues/pause", { queue }, `${row.name} is paused: nothing goes out of it until it is resumed`));
  return [
    pause, doing("Redrive…", () => redrive(shown.row, queue)), doing("Move…", () => move(shown.row, queue)), doing("Copy…", () => copy(shown.row, queue)), doing("Purge…", () => purge(shown.row, queue)),
  ];
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

function copy(row, queue) {
  confirm({
    title: `Copy messages of ${row.name}`, verb: "Copy", fields: [{ name: "to", label: "To the address" }, { ...AMOUNT, placeholder: "", value: "100" }],
    text: "Copies of what waits, the oldest first, go to another address. The messages stay. The address is made if need be.",
    act: async (values) => moved(await ask("queues/copy", { queue, to: values.to, count: Number(values.count) }), `copied from ${row.name} to ${values.to}`),
  });
}
