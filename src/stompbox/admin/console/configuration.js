// What the broker obeys, and where each of it was set: users, permissions, listeners, the settings of an address, every key; and its fronts.

import { ask, query } from "./asking.js";
import { addPermission, addUser, importDefinitions, permissionActions, settingButtons, userActions } from "./changing.js";
import { doing, input } from "./dialogs.js";
import { drawn, make, tell } from "./elements.js";
import { Rates, bytes, count, plural, tenth } from "./figures.js";
import { Listed, Table } from "./tables.js";

const PARTS = [["configuration", "Keys"], ["users", "Users"], ["permissions", "Permissions"], ["listeners", "Listeners"], ["settings", "Address settings"], ["fronts", "Fronts"]];

const parts = (here) => make(
  "nav", { class: "parts", "aria-label": "Configuration" },
  ...PARTS.map(([name, text]) => make("a", { href: `#${name}`, "aria-current": name === here ? "page" : null }, text)),
);

/** Where something was set; "default" and "" are nobody's. */
const SOURCE = { title: "Set in", kind: "name", text: (row) => row.source || "at the start" };

export function users() {
  const columns = [
    { title: "User", sort: "name", kind: "name", text: (row) => row.name },
    { title: "Groups", text: (row) => row.groups.join(", ") || "–" },
    { title: "Logs in by", text: (row) => ({ argon2: "passcode", plain: "passcode, in plain text", certificate: "certificate" })[row.login] ?? row.login },
    { title: "Connections", sort: "connections", kind: "number", text: (row) => count(row.connections) },
    SOURCE,
    { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, row.name, () => userActions(shown)) },
  ];
  return { title: "Users", ...view(new Listed("Users", "users", columns, (row) => row.name, { filter: "Filter by name or group", sort: "name", empty: "There are no users: whoever can connect may do everything, and only this machine can.", above: [parts("users")], buttons: [addUser()] })) };
}

/** A Listed as the plain object that a title can be put to. */
const view = (listed) => ({ elements: listed.elements, panels: listed.panels, problem: listed.problem, load: (signal) => listed.load(signal), show: (found) => listed.show(found) });

export function permissions() {
  const columns = [
    { title: "Addresses", kind: "name", text: (row) => row.match },
    { title: "Virtual host", text: (row) => row.virtual_host ?? "–" },
    { title: "Rights", kind: "name", draw: (cell, row) => drawn(cell, row.grants, () => [make("dl", { class: "facts" }, ...Object.entries(row.grants).flatMap(([right, groups]) => [make("dt", {}, right), make("dd", {}, groups.join(", ") || "nobody")]))]) },
    SOURCE,
    { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, row.match, () => permissionActions(shown)) },
  ];
  const empty = "There are no permissions: every known user may do everything.";
  return { title: "Permissions", ...view(new Listed("Permissions", "permissions", columns, (row) => `${row.virtual_host} ${row.match}`, { filter: "Filter by pattern", sort: "", empty, above: [parts("permissions")], buttons: [addPermission()] })) };
}

export function listeners() {
  const columns = [
    { title: "Port", kind: "number", text: (row) => (row.port ? String(row.port) : "–") },
    { title: "Host", text: (row) => row.host },
    { title: "Speaks", text: (row) => `STOMP and WebSocket${row.is_tls ? ", by TLS" : ""}` },
    { title: "Connections", kind: "number", text: (row) => count(row.connections) },
    { title: "URL", kind: "name", text: (row) => row.url },
    SOURCE,
    { title: "", kind: "actions", draw: (cell, row, shown) => drawn(cell, row.url, () => [doing("Options…", () => showOptions(shown.row))]) },
  ];
  return { title: "Listeners", ...view(new Listed("Listeners", "listeners", columns, (row) => row.url, { filter: "Filter by URL", sort: "", empty: "Nothing listens.", above: [parts("listeners")] })) };
}

function showOptions(row) {
  const dialog = document.getElementById("dialog");
  const table = new Table("Options", [{ title: "Option", kind: "name", text: (one) => one[0] }, { title: "Value", kind: "name", text: (one) => written(one[1]) }], (one) => one[0]);
  table.show(Object.entries(row.options), "");
  const close = doing("Close", () => dialog.close());
  dialog.className = "wide";
  dialog.onkeydown = null;
  dialog.replaceChildren(make("h2", { id: "dialog-title" }, `Options of ${row.url}`), table.element, make("div", { class: "buttons" }, close));
  dialog.showModal();
  close.focus({ preventScroll: true });
}

export function frontColumns(rates) {
  const speed = (row, name) => { const found = rates.of(`${row.name} ${name}`, row[name], row.now); return found === null ? "–" : `${bytes(found)}/s`; };
  return {
    name: { title: "Front", kind: "name", text: (row) => row.name },
    connections: { title: "Connections", kind: "number", text: (row) => count(row.connections) },
    busy: { title: "Of a core", kind: "number", text: (row) => `${tenth.format(row.busy * 100)} %` },
    in: { title: "From it", kind: "number", text: (row) => speed(row, "received_bytes") },
    out: { title: "To it", kind: "number", text: (row) => speed(row, "sent_bytes") },
    restarts: { title: "Restarts", kind: "number", text: (row) => count(row.restarts) },
  };
}

export function fronts() {
  return { title: "Fronts", ...view(new Listed("Fronts", "fronts", Object.values(frontColumns(new Rates())), (row) => row.name, { filter: "Filter by name", sort: "", empty: "There are no fronts: one process has all sockets. stompbox serve --fronts N gives them to N more.", above: [parts("fronts")] })) };
}

// ---- Lists that the page itself looks through ----

const written = (value) => (value === null ? "none" : Array.isArray(value) ? value.map(written).join(", ") || "none" : typeof value === "object" ? JSON.stringify(value) : String(value));

/** Rows of {name, value, source} that are all here, with a filter and a switch for those that somebody has set. */
class Keys {
  constructor(title, columns, asked) {
    this.all = [];
    this.table = new Table(title, columns, (row) => row.name);
    this.filter = make("input", { type: "search", placeholder: "Filter by name", "aria-label": "Filter by name", oninput: () => this.draw() });
    this.only = make("input", { type: "checkbox", onchange: () => this.draw() });
    this.total = make("span", { class: "soft" });
    this.problem = make("p", { class: "empty", role: "status" });
    this.heading = make("h1", {}, title);
    const head = make("div", { class: "head" }, this.heading, this.total, make("span", { class: "push" }), make("label", { class: "switch" }, this.only, " Only what is set"), this.filter);
    this.panels = [make("section", { class: "panel" }, this.table.element)];
    this.elements = [parts(asked), head, this.problem, ...this.panels];
  }

  draw() {
    const text = this.filter.value.toLowerCase();
    const rows = this.all.filter((row) => row.name.toLowerCase().includes(text) && (!this.only.checked || row.isSet));
    tell(this.total, plural(rows.length, "key"));
    this.table.show(rows, "No key is like that.");
  }
}

const KEY = { title: "Key", kind: "name", text: (row) => row.name };
const VALUE = { title: "Value", kind: "name", text: (row) => row.value };

export function configuration() {
  const keys = new Keys("Configuration", [KEY, VALUE, SOURCE], "configuration");
  const { elements, panels, problem } = keys;
  const exported = make("a", { class: "button", href: "/api/v1/definitions", download: "definitions.toml" }, "Export what was defined");
  elements[1].append(exported, importDefinitions());
  return {
    title: "Configuration", elements, panels, problem, load: (signal) => ask("configuration", undefined, signal),
    show({ values, sources }) {
      keys.all = flat(values).map(([name, value]) => ({ name, value, source: sources[name] ?? "default", isSet: name in sources }));
      keys.draw();
    },
  };
}

/** [name, text] of each value, however deep: tables and lists of tables by their keys. */
function flat(value, name = "") {
  const isTables = Array.isArray(value) && value.some((one) => one !== null && typeof one === "object");
  if (isTables) return value.flatMap((one, at) => flat(one, `${name}[${at}]`));
  if (value !== null && typeof value === "object" && !Array.isArray(value)) return Object.entries(value).flatMap(([key, one]) => flat(one, name ? `${name}.${key}` : key));
  return [[name, written(value)]];
}

export function settings(address) {
  const matched = { title: "By the setting of", kind: "name", text: (row) => row.match ?? "–" };
  const keys = new Keys(address === undefined ? "Address settings" : `Settings of ${address}`, [KEY, VALUE, matched, SOURCE], "settings");
  const wanted = input({ name: "address", value: address ?? "", placeholder: "orders.eu" });
  const form = make("form", { class: "asks" }, make("label", { class: "wide" }, "The address, which need not be there", wanted), make("button", { type: "submit" }, "Show"), make("div", { class: "buttons" }, ...settingButtons(address ?? "")));
  form.addEventListener("submit", (event) => { event.preventDefault(); if (wanted.value) location.hash = `#settings/${encodeURIComponent(wanted.value)}`; });
  keys.elements.splice(1, 0, make("section", { class: "panel" }, form));
  const { elements, panels, problem } = keys;
  return {
    title: "Address settings", elements, panels, problem,
    load: (signal) => (address === undefined ? { settings: {} } : ask(`settings?${query({ address })}`, undefined, signal)),
    show(found) {
      keys.all = Object.entries(found.settings).map(([name, one]) => ({ name, value: written(one.value), match: one.match, source: one.source, isSet: one.match !== null }));
      keys.draw();
      for (const panel of panels) panel.hidden = address === undefined;
    },
  };
}
