// Connections: who is connected, with what, and why connections were closed.

import { Refusal, ask, query } from "./asking.js";
import { confirm, doing } from "./dialogs.js";
import { drawn, facts, make, mark } from "./elements.js";
import { ago, bytes, clock, count, span } from "./figures.js";
import { Listed, Table } from "./tables.js";

/** A client's address and port, where it has one. */
export const placeOf = (row) => (row.port ? `${row.peer.includes(":") ? `[${row.peer}]` : row.peer}:${row.port}` : row.peer);

const parts = (here) => make(
  "nav", { class: "parts", "aria-label": "Connections" },
  ...[["connections", "Open"], ["closed", "Closed"]].map(([name, text]) => make("a", { href: `#${name}`, "aria-current": name === here ? "page" : null }, text)),
);
export function connections(id) {
  if (id !== undefined) return connection(id);
  const columns = [
    { title: "Id", sort: "id", draw: (cell, row) => drawn(cell, row.id, () => [make("a", { href: `#connections/${row.id}` }, String(row.id))]) },
    { title: "User", sort: "user", text: (row) => row.user || "–" },
    { title: "Client address", sort: "peer", text: placeOf },
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
    filter: "Filter by id, user, address, client id", sort: "id", empty: "Nobody is connected.", above: [parts("connections")],
  });
}

export function connection(id) {
  const columns = [
    { title: "Id", kind: "name", text: (row) => row.id }, { title: "Destination", kind: "name", text: (row) => row.destination },
    { title: "Ack", text: (row) => row.ack }, { title: "Selector", text: (row) => row.selector ?? "" },
    { title: "In delivery", kind: "number", text: (row) => count(row.delivering) },
  ];
  const subscriptions = new Table("Subscriptions", columns, (row) => row.id);
  const [about, problem] = [make("dl", { class: "facts" }), make("p", { class: "empty", role: "status" })];
  const close = doing("Close…", () => confirm({
    title: `Close connection ${id}?`, isDanger: true, verb: "Close it",
    text: "The client gets an ERROR (closed-by-operator). What it had in delivery goes back to its queues; its open transactions are aborted. Most clients connect again by themselves.",
    act: async () => (await ask("connections/close", { connection: Number(id) }), `Connection ${id} is closed`),
  }));
  async function load(signal) {
    const found = await ask(`connections?${query({ connection: id })}`, undefined, signal);
    const [one] = found.connections;
    close.disabled = !one;
    if (!one) throw await absent(id, signal);
    return { ...one, now: found.now };
  }
  function show(one) {
    const rows = [
      ["User", one.user || "–"], ["Client address", placeOf(one)], ["Client id", one.client_id || "–"], ["STOMP", one.version || "not yet"], ["Listener", one.listener],
      ["Since", `${clock.format(one.since)}, ${span(one.now - one.since)}`], ["Open transactions", count(one.transactions)], ["Waits for", one.waits_for.join(", ") || "nothing"], ["Memory", bytes(one.memory_bytes)],
    ];
    drawn(about, rows, () => facts(rows));
    subscriptions.show(one.subscriptions, "It has no subscription.");
  }
  const head = make("div", { class: "head" }, make("h1", {}, `Connection ${id}`), make("span", { class: "push" }, close));
  const back = make("p", {}, make("a", { href: "#connections" }, "All connections"));
  const panels = [make("section", { class: "panel" }, about), make("section", { class: "panel" }, make("h2", {}, "Subscriptions"), subscriptions.element)];
  return { elements: [back, head, problem, ...panels], panels, problem, load, show };
}

// ---- Those that are gone ----

export function closed() {
  const columns = [
    { title: "Ended", sort: "at", kind: "number", text: (row) => ago(row.at, row.now) },
    { title: "Why", sort: "code", kind: "name", draw: (cell, row) => drawn(cell, [row.id, row.text], () => [mark(row.code), make("span", { class: "note" }, row.text)]) },
    { title: "Id", text: (row) => String(row.id) },
    { title: "User", sort: "user", text: (row) => row.user || "–" },
    { title: "Client address", text: placeOf },
    { title: "Client id", text: (row) => row.client_id || "–" },
    { title: "Listener", text: (row) => row.listener },
    { title: "Was there for", kind: "number", text: (row) => span(row.at - row.since) },
  ];
  return new Listed("Closed connections", "closings", columns, (row) => row.id, {
    filter: "Filter by id, user, address, code", sort: "-at", empty: "No connection has ended since the broker started.", above: [parts("closed")],
  });
}

/** What is said of a connection that is not there: why it ended, if that is known. */
async function absent(id, signal) {
  const error = new Refusal(404, { code: "no-such-connection", message: `Connection ${id} is not there, or not any more` });
  const found = await ask(`closings?${query({ match: id })}`, undefined, signal);
  const one = found.closings.find((each) => String(each.id) === id);
  if (one) error.more = `. It ended ${ago(one.at, found.now)}: ${one.text} (${one.code})`;
  return error;
}
