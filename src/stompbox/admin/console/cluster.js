// The nodes of a cluster: who leads, how far the others have come, who took over when and why; and who is to lead.

import { ask } from "./asking.js";
import { confirm, doing } from "./dialogs.js";
import { drawn, facts, make, mark, tell } from "./elements.js";
import { ago, clock, count, plural, span } from "./figures.js";
import { Table } from "./tables.js";

const said = (node, text) => async (path, order) => (await ask(`cluster/${path}`, order), `Node ${node} ${text}`);

const promote = (node) => confirm({
  title: `Let node ${node} lead?`, verb: "Hand over",
  text: "The leader finishes its commits. The clients of all nodes connect once more, and what is not persistent is gone with the leader.",
  act: () => said(node, "is to lead")("promote", { node }),
});

const drain = (row) => (row.is_drained
  ? confirm({ title: `May node ${row.node} lead again?`, verb: "It may lead", text: "It takes over when the leader is gone, as the others do.", act: () => said(row.node, "may lead again")("drain", { node: row.node, is_drained: false }) })
  : confirm({
    title: `Drain node ${row.node}?`, verb: "Drain it", isDanger: row.role === "leader",
    text: row.role === "leader" ? "It hands over to another node, which costs every client one reconnect, and does not lead by itself until it may again, or starts anew." : "It does not lead by itself until it may again, or starts anew. Its clients stay.",
    act: () => said(row.node, "does not lead by itself any more")("drain", { node: row.node }),
  }));

const forget = (node) => confirm({
  title: `Forget node ${node}?`, verb: "Forget it", isDanger: true,
  text: "The log is not kept for it any more. When it comes back after all it gets a copy of another node's store.",
  act: () => said(node, "is forgotten")("remove", { node }),
});

/** What is to be known of a node besides its figures. */
const notes = (row) => [
  ...(row.is_connected ? [] : ["not connected"]), ...(row.is_drained ? ["drained"] : []), ...(row.is_other ? ["other configuration"] : []), ...(row.trouble ? [row.trouble] : []),
];

function actions(shown) {
  const row = () => shown.row;
  const buttons = [];
  if (shown.row.role !== "leader" && shown.row.is_connected) buttons.push(doing("Promote…", () => promote(row().node), { "aria-label": `Promote ${shown.row.node}…` }));
  if (shown.row.role === "leader" || shown.row.is_connected) buttons.push(doing(shown.row.is_drained ? "Undo drain…" : "Drain…", () => drain(row()), { "aria-label": `${shown.row.is_drained ? "Undo drain of" : "Drain"} ${shown.row.node}…` }));
  else buttons.push(doing("Forget…", () => forget(row().node), { "aria-label": `Forget ${shown.row.node}…` }));
  return buttons;
}

export function cluster() {
  const state = { mayChange: false };
  const nodes = new Table("Nodes", [
    { title: "Node", kind: "name", draw: (cell, row) => drawn(cell, [row.node, row.role, notes(row), row.admin], () => [
      make("span", {}, row.node), mark(row.role), ...notes(row).map(mark), row.admin ? make("span", { class: "note" }, row.admin) : ""]) },
    { title: "Reached at", text: (row) => row.advertise || "–" },
    { title: "Record", kind: "number", text: (row) => count(row.position) },
    { title: "Behind", kind: "number", text: (row) => count(row.lag) },
    { title: "Durable up to", kind: "number", text: (row) => count(row.durable) },
    { title: "Clients", kind: "number", text: (row) => count(row.connections) },
    { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, [state.mayChange, row.node, row.role, row.is_connected, row.is_drained], () => (state.mayChange ? actions(shown) : [])) },
  ], (row) => row.node);
  const takeovers = new Table("Who took over", [
    { title: "When", text: (row) => `${clock.format(row.at)}, ${ago(row.at, row.now)}` }, { title: "Node", kind: "name", text: (row) => row.node },
    { title: "Epoch", kind: "number", text: (row) => count(row.epoch) }, { title: "Why", kind: "name", text: (row) => row.why || "it did not say" },
  ], (row) => row.epoch);
  const [about, problem] = [make("dl", { class: "facts" }), make("p", { class: "empty", role: "status" })];
  async function load(signal, { status }) {
    return { ...(await ask("cluster", undefined, signal)), place: status?.cluster ?? null };
  }
  function show(found) {
    const { place } = found;
    state.mayChange = place?.role === "leader";
    const age = place?.stale_ms;
    const rows = [
      ["Cluster", found.cluster], ["Log", found.log], ["Leads", found.leader || "nobody"], ["Epoch", count(found.epoch)], ["Record", count(found.position)],
      ...(place?.role === "follower" ? [["This node", `${place.node} follows, ${plural(place.lag, "record")} behind; it has all that was confirmed ${age === null ? "(not known since when)" : `until ${span(age)} ago`}`]] : []),
    ];
    drawn(about, rows, () => facts(rows));
    nodes.show(found.members, "No node has told of itself yet.");
    takeovers.show(found.takeovers.map((one) => ({ ...one, now: Date.now() })).reverse(), "Nobody has begun to lead since this node started.");
    tell(hint, state.mayChange ? "" : "Nodes are promoted and drained at the leader.");
  }
  const hint = make("p", { class: "soft" });
  const panels = [
    make("section", { class: "panel" }, about), make("section", { class: "panel" }, make("h2", {}, "Nodes"), nodes.element, hint),
    make("section", { class: "panel" }, make("h2", {}, "Who took over, and why"), takeovers.element),
  ];
  return { elements: [make("h1", {}, "Cluster"), problem, ...panels], panels, problem, load, show, title: "Cluster" };
}
