// One queue: what it has, who is at it with what, and its messages.

import { holds, queueActions } from "./addresses.js";
import { Refusal, ask, query } from "./asking.js";
import { placeOf } from "./connections.js";
import { drawn, facts, make } from "./elements.js";
import { Rates, count, exact, rate } from "./figures.js";
import { Messages } from "./messages.js";
import { Table } from "./tables.js";

const AT_MOST = 200; // consumers that are shown

function consumerColumns(rates) {
  return [
    { title: "Connection", draw: (cell, row) => drawn(cell, row.connection, () => [make("a", { href: `#connections/${row.connection}` }, String(row.connection))]) },
    { title: "User", text: (row) => row.user || "–" },
    { title: "Client address", text: placeOf },
    { title: "Client id", text: (row) => row.client_id || "–" },
    { title: "Subscription", text: (row) => row.id },
    { title: "Ack", text: (row) => row.ack },
    { title: "Holds", kind: "number", text: (row) => count(row.delivering) },
    { title: "Oldest", kind: "number", text: (row) => (row.oldest === null ? "–" : `offset ${count(row.oldest)}`) },
    { title: "Acknowledged", kind: "number", text: (row) => count(row.acknowledged) },
    { title: "Done/s", kind: "number", text: (row) => rate(rates.of(`${row.connection} ${row.id}`, row.acknowledged, row.now)) },
    { title: "Selector", text: (row) => row.selector ?? "" },
  ];
}

export function queue(given = "") {
  const at = given.indexOf("::"); // no address has it in its name, but that of a durable subscription may
  const [address, name] = at < 0 ? [given, given] : [given.slice(0, at), given.slice(at + 2)];
  const consumers = new Table("Consumers", consumerColumns(new Rates()), (row) => `${row.connection} ${row.id}`);
  const messages = new Messages(given, name);
  const about = make("dl", { class: "facts" });
  const [buttons, problem] = [make("span", { class: "push actions" }), make("p", { class: "empty", role: "status" })];
  const shown = { row: null };
  const back = make("p", {}, make("a", { href: `#addresses/${encodeURIComponent(address)}` }, `Address ${address}`));

  async function load(signal) {
    const wanted = { address, match: `${address}::${name}`, all: true };
    const found = await ask(`queues?${query(wanted)}`, undefined, signal);
    const one = found.queues.find((each) => each.name === name && holds(each));
    if (!one) throw new Refusal(404, { code: "no-such-queue", message: `Queue ${given} is not there, or not any more` });
    const holders = await ask(`consumers?${query({ queue: given, limit: AT_MOST, sort: "-delivering" })}`, undefined, signal).catch(forgive);
    await messages.begin(signal);
    return { one, holders };
  }

  function show({ one, holders }) {
    shown.row = one;
    drawn(buttons, [one.kind, one.is_paused], () => queueActions(shown));
    const rows = [
      ["Kind", one.kind + (one.is_durable ? "" : ", in memory") + (one.is_paused ? ", paused" : "")], ["Ready", exact(one, one.ready) + (one.paged ? `, of which ${count(one.paged)} on disk alone` : "")],
      ["In delivery", count(one.delivering)], ["Delayed", count(one.delayed)], ["Consumers", count(one.consumers) + (one.max_consumers >= 0 ? ` of at most ${count(one.max_consumers)}` : "")],
      ["Done with", `${count(one.settled)} messages; all below offset ${count(one.position)}`], ["Selector", one.selector ?? "none: it takes every message"],
    ];
    drawn(about, rows, () => facts(rows));
    for (const row of holders.consumers) row.now = holders.now;
    consumers.show(holders.consumers, holders.text ?? "Nobody is subscribed to it.");
  }

  const panel = (title, ...children) => make("section", { class: "panel" }, make("h2", {}, title), ...children);
  const panels = [make("section", { class: "panel" }, about), panel("Consumers", consumers.element), messages.element];
  return { elements: [back, make("div", { class: "head" }, make("h1", {}, name), buttons), problem, ...panels], panels, problem, load, show };
}

/** Who may look into a queue need not be one who may see who else is there. */
function forgive(error) {
  if (!(error instanceof Refusal) || ![403, 404].includes(error.status)) throw error;
  return { consumers: [], now: 0, text: `${error.message} (${error.code})` };
}
