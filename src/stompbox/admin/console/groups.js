// Reader groups: where they are, how far behind, and what an operator can do to them.

import { ask } from "./asking.js";
import { confirm, doing } from "./dialogs.js";
import { drawn, make } from "./elements.js";
import { Rates, ago, count, rate, span } from "./figures.js";
import { Listed, part } from "./tables.js";
export function groups() {
  const columns = [...Object.values(groupColumns(new Rates())), { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, row.group, () => groupActions(shown)) }];
  return new Listed("Reader groups", "positions", columns, (row) => `${row.group} ${row.address}`, {
    filter: "Filter by group or address", sort: "group", before: (found) => mostLag(found.positions), empty: NO_GROUP,
  });
}

export const NO_GROUP = "There is no reader group. Spark makes one for its option group, a pipeline for each step that reads; it keeps messages until they are read.";

export function groupActions(shown) {
  const { row } = shown;
  return [row.address === null ? "" : doing("Reset…", () => resetGroup(shown.row)), doing("Delete…", () => deleteGroup(shown.row))];
}

export function resetGroup(row) {
  confirm({
    title: `Put ${row.group} elsewhere?`, verb: "Reset", isDanger: true, fields: [{ name: "to", label: "To an offset, earliest or latest", placeholder: "earliest" }],
    text: `The position of reader group ${row.group} on address ${row.address} is ${count(row.position)} of ${count(row.next)}. Further on, messages are not read by it; further back, they come again as far as they are still there. Stop who reads by it first.`,
    act: async (values) => (await ask("groups/reset", { group: row.group, address: row.address, to: values.to || "earliest" }), `${row.group} is put elsewhere on ${row.address}`),
  });
}

export function deleteGroup(row) {
  confirm({
    title: `Delete ${row.group}?`, verb: "Delete the group", isDanger: true,
    text: `Reader group ${row.group} loses its positions on all of its addresses (${row.patterns.join(", ")}), and messages that were kept for it alone may go. They cannot be brought back.`,
    act: async () => (await ask("groups/delete", { group: row.group }), `Reader group ${row.group} is deleted`),
  });
}

/** Tells each row what the largest lag is of those that are shown. */
export function mostLag(rows) {
  const most = Math.max(0, ...rows.map((row) => row.lag_messages));
  for (const row of rows) row.most = most;
}

export function groupColumns(rates) {
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
