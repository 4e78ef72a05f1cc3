// Users, permissions and settings of addresses, as they are changed while the broker runs. What the configuration file says is changed there:
// the broker refuses it here, and says where that is.

import { ask } from "./asking.js";
import { Wrong, confirm, doing } from "./dialogs.js";
import { count, plural } from "./figures.js";

const KEPT = "It counts at once, for those who are connected too, and is kept in the data folder.";
const words = (text) => text.split(/[\s,]+/).filter((word) => word);

/** What is said of a change, with what a start would warn about. */
const said = (text, answer) => [text, ...answer.warnings, ...(answer.is_done ? [] : ["Addresses that are there obey it soon"])].join(". ");

// ---- Users ----

const GROUPS = { name: "groups", label: "Groups, with blanks or commas between them", placeholder: "admins" };

export const addUser = () => doing("Add a user…", () => confirm({
  title: "Add a user", verb: "Add", text: `${KEPT} The first user closes the broker to everybody without a login.`,
  fields: [{ name: "name", label: "Name" }, { name: "password", label: "Passcode; empty: by a client certificate alone", type: "password" }, GROUPS],
  act: async ({ name, password, groups }) => said(`User ${name} is there`, await ask("users/create", { name, groups: words(groups), ...(password ? { password } : {}) })),
}));

export const userActions = (shown) => [
  doing("Change…", () => confirm({
    title: `Change ${shown.row.name}`, verb: "Change", text: `${KEPT} With another passcode, connections that logged in with the old one end.`,
    fields: [{ name: "password", label: "New passcode; empty: as it is", type: "password" }, { ...GROUPS, value: shown.row.groups.join(", ") }],
    act: async ({ password, groups }) => said(`User ${shown.row.name} is changed`, await ask("users/change", { name: shown.row.name, groups: words(groups), ...(password ? { password } : {}) })),
  })),
  doing("Delete…", () => confirm({
    title: `Delete user ${shown.row.name}?`, verb: "Delete the user", isDanger: true, text: "Its connections end, and it cannot log in any more.",
    act: async () => said(`User ${shown.row.name} is gone`, await ask("users/delete", { name: shown.row.name })),
  })),
];

// ---- Permissions ----

const hostOf = (text) => (text ? { virtual_host: text } : {});

function setPermission({ match = "", grants = {}, virtual_host: host = "" } = {}) {
  confirm({
    title: match ? `Change the permission of ${match}` : "Set a permission", verb: "Set", text: `${KEPT} The first permission of all takes from every user what it does not name.`,
    fields: [
      { name: "match", label: "Addresses: a name, or a pattern with * and #", value: match, placeholder: "orders.#" },
      { name: "host", label: "Virtual host; empty: the broker's own", value: host ?? "" },
      { name: "grants", label: "A right and its groups in each line", rows: 6, value: Object.entries(grants).map(([right, groups]) => `${right}: ${groups.join(", ")}`).join("\n"), placeholder: "send: shops\nconsume: workers, admins" },
    ],
    act: async (values) => {
      const found = Object.fromEntries(pairs(values.grants, "the rights").map(([right, groups]) => [right, words(groups)]));
      return said(`The permission of ${values.match} is set`, await ask("permissions/set", { match: values.match, grants: found, ...hostOf(values.host) }));
    },
  });
}

export const addPermission = () => doing("Set a permission…", () => setPermission());

export const permissionActions = (shown) => [
  doing("Change…", () => setPermission(shown.row)),
  doing("Delete…", () => confirm({
    title: `Delete the permission of ${shown.row.match}?`, verb: "Delete the permission", isDanger: true, text: "The next one that matches decides about its addresses; where there is none at all, every known user may do everything.",
    act: async () => said(`The permission of ${shown.row.match} is gone`, await ask("permissions/delete", { match: shown.row.match, ...hostOf(shown.row.virtual_host) })),
  })),
];

// ---- Settings of addresses ----

export const settingButtons = (address) => [
  doing("Change settings…", () => confirm({
    title: "Change settings of addresses", verb: "Change", text: `${KEPT} Other settings that were changed for the same addresses stay.`,
    fields: [
      { name: "match", label: "Addresses: a name, or a pattern with * and #", value: address, placeholder: "orders.#" },
      { name: "settings", label: "A key and its value in each line; null: what was changed is taken away", rows: 5, placeholder: "max-delivery-attempts: 3\nmax-size-bytes: 64MiB" },
    ],
    act: async (values) => {
      const found = Object.fromEntries(pairs(values.settings, "the settings").map(([key, text]) => [key, valueOf(text)]));
      if (!Object.keys(found).length) throw new Wrong("There is no setting to be changed.");
      return said(`Settings of ${values.match} are changed`, await ask("settings/set", { match: values.match, settings: found }));
    },
  })),
  doing("Take changes away…", () => confirm({
    title: "Take away what was changed?", verb: "Take them away", isDanger: true, fields: [{ name: "match", label: "Addresses, as they were named", value: address }],
    text: "All settings that were changed at run time for these addresses are as the configuration, or the default, says again.",
    act: async ({ match }) => said(`What was changed of ${match} is taken away`, await ask("settings/delete", { match })),
  })),
];

// ---- Definitions, all at once ----

/** Reads a file that was chosen into the text below it. */
async function takeFile({ target }) {
  const text = target.closest("dialog").querySelector("textarea");
  if (target.files.length) text.value = await target.files[0].text();
}

const counted = (answer) => `${plural(answer.users, "user")}, ${plural(answer.permissions, "permission")} and ${plural(answer.address_settings, "table")} of settings would be defined, ${answer.addresses === 1 ? "1 address" : `${count(answer.addresses)} addresses`} and ${plural(answer.queues, "queue")} made.`;

export const importDefinitions = () => doing("Import definitions…", () => confirm({
  title: "Import definitions", verb: "Show what would change", isWide: true, text: "What an export has, as TOML. What is there by the same name is replaced. Nothing changes yet.",
  fields: [
    { name: "file", label: "A file", type: "file", onchange: takeFile },
    { name: "toml", label: "Definitions", rows: 12, placeholder: "[[permission]]\nmatch = \"orders.#\"\nsend = [\"shops\"]" },
    { name: "rest", label: "What was defined at run time and is not named", choices: [["", "stays"], ["goes", "goes"]] },
  ],
  act: async ({ toml, rest }) => {
    if (!toml.trim()) throw new Wrong("There are no definitions.");
    const order = { toml, is_replacing: rest === "goes" };
    reviewed(order, await ask("definitions", { ...order, is_dry_run: true }));
    return null;
  },
}));

/** The second question: what the first one has found out. */
function reviewed(order, found) {
  const gone = order.is_replacing ? "Users, permissions and settings that were defined at run time and are not named go." : "Nothing that is there by another name goes.";
  confirm({
    title: "Import these definitions?", verb: "Import", isDanger: order.is_replacing, text: [counted(found), gone, ...found.warnings].join(" "),
    act: async () => said("The definitions are imported", await ask("definitions", order)),
  });
}

/** [name, text] of lines "name: text". */
function pairs(text, what) {
  return text.split("\n").map((line, at) => [line, at + 1]).filter(([line]) => line.trim()).map(([line, number]) => {
    const colon = line.indexOf(":");
    if (colon < 1) throw new Wrong(`Line ${number} of ${what} is “${line.slice(0, 60)}”; it should be a name, a colon and a value.`);
    return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
  });
}

/** A number, true, false, null or a list where it is written so; else a text. */
function valueOf(text) {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
