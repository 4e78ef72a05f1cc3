// The console: which section is looked at, and when the broker is asked. It asks the API every two seconds for what is looked at.
//
// A view is {elements, panels, problem, load(signal), show(found)}: `panels` of its elements are hidden until there is something to show,
// and while there is a `problem`.

import { addresses } from "./addresses.js";
import { Away, Refusal, ask } from "./asking.js";
import { cluster } from "./cluster.js";
import { configuration, fronts, listeners, permissions, settings, users } from "./configuration.js";
import { closed, connections } from "./connections.js";
import { attribute, badge, drawn, make, tell } from "./elements.js";
import { clock, span } from "./figures.js";
import { groups } from "./groups.js";
import { overview } from "./overview.js";
import { pipelines } from "./pipelines.js";
import { playground } from "./playground.js";
import { queue } from "./queues.js";

const EVERY = 2000; // ms between two questions
const WITHIN = 15000; // ms until a broker that does not answer counts as away
const VIEWS = { overview, addresses, queues: queue, connections, closed, groups, pipelines, playground, cluster, configuration, users, permissions, listeners, settings, fronts };
const PART_OF = { queues: "addresses", closed: "connections", users: "configuration", permissions: "configuration", listeners: "configuration", settings: "configuration", fronts: "configuration" };

const page = document.getElementById("main");
const state = { view: null, reasons: [], mayNot: "", timer: 0, asking: null, version: "", awaySince: 0, refused: false, status: null, hasSession: false };

async function poll() {
  clearTimeout(state.timer);
  state.asking?.abort();
  state.asking = null;
  if (document.hidden || state.refused) return;
  const asking = (state.asking = new AbortController());
  const late = setTimeout(() => asking.abort("late"), WITHIN);
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
    const found = await view.load(signal, state);
    if (view !== state.view || signal.aborted) return;
    tell(view.problem, "");
    for (const panel of view.panels) panel.hidden = false;
    view.show(found);
  } catch (error) {
    if (!(error instanceof Refusal) || error.status === 401 || error.status === 429) throw error;
    tell(view.problem, `${error.message} (${error.code})${error.more ?? ""}`);
    for (const panel of view.panels) panel.hidden = true;
  }
}

/** How the broker is, for the head of the page. Who may not see it learns only whether it is ready. */
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
  const place = found?.cluster ?? null;
  const follows = place?.role === "follower";
  badge(document.getElementById("state"), isReady ? (follows ? "follows" : "ready") : "not ready");
  document.getElementById("cluster-link").hidden = !place;
  if (follows && !location.hash) location.replace("#cluster"); // what the overview shows is the leader's
  tell(document.getElementById("version"), found ? `${found.version}, up for ${span(found.uptime)}` : "");
  state.reasons = health.reasons;
  state.status = found;
  if (found) state.version ||= found.version;
}

function answered() {
  state.awaySince = 0;
  document.body.classList.remove("is-away");
  const isOther = state.status && state.status.version !== state.version;
  const told = state.reasons.length ? `The broker is not ready: ${state.reasons.map((reason) => `${reason.message} (${reason.code})`).join("; ")}` : "";
  const place = state.status?.cluster;
  if (!told && place?.role === "follower") return follower(place);
  notice(told || (isOther ? `The broker is version ${state.status.version} now, and this page is of ${state.version}. Load it again.` : ""), true);
}

function failed(error) {
  if (error instanceof Refusal && (error.status === 401 || error.status === 429)) {
    if (error.code === "login-required") return logIn();
    state.refused = true; // asking on would only count as more failed logins
    badge(document.getElementById("state"), "refused");
    notice(`${error.message} (${error.code}). Load the page again to log in.`);
    return;
  }
  if (!(error instanceof Away)) {
    notice(`The console has a fault: ${error}. Load the page again.`);
    throw error; // into the browser's log
  }
  state.awaySince ||= Date.now();
  document.body.classList.add("is-away");
  badge(document.getElementById("state"), "away");
  notice(`The broker has not answered since ${clock.format(state.awaySince)}. What is shown is from before; the console goes on asking.`);
}

/** The log-in page, which leads back to this section; it says so when a session has ended. */
function logIn() {
  if (state.hasSession) sessionStorage.setItem("ended", "yes");
  location.replace(`/login${location.hash}`);
}

/** This node follows: what it cannot tell, the leader's console does. */
function follower({ node, leader, leader_admin: admin }) {
  const shown = document.getElementById("notice");
  shown.classList.add("mild");
  shown.hidden = false;
  drawn(shown, [node, leader, admin], () => [
    `Node ${node} follows. Queues, messages and all changes are the leader's${leader ? `, node ${leader}` : ", and it knows of none"}. `,
    ...(admin ? [make("a", { href: admin }, `Console of node ${leader}`)] : []),
  ]);
}

function notice(text, isMild = false) {
  const shown = document.getElementById("notice");
  shown.drawnFor = null; // by another text
  shown.classList.toggle("mild", isMild);
  shown.hidden = !text;
  tell(shown, text);
}

// ---- Where the reader is ----

function go() {
  const [tab, ...rest] = location.hash.slice(1).split("/");
  const name = Object.hasOwn(VIEWS, tab) ? tab : "overview";
  let given;
  try {
    given = rest.length ? decodeURIComponent(rest.join("/")) : undefined;
  } catch {
    given = rest.join("/"); // a link that somebody has cut
  }
  document.getElementById("dialog").close();
  state.view = VIEWS[name](given);
  const part = `#${PART_OF[name] ?? name}`;
  for (const link of document.querySelectorAll("header nav a")) attribute(link, "aria-current", link.hash === part ? "page" : null);
  for (const panel of state.view.panels) panel.hidden = true;
  page.replaceChildren(...state.view.elements);
  document.title = `${given ?? state.view.title ?? document.querySelector("header nav a[aria-current]").textContent} · Stompbox`;
  poll();
}

addEventListener("hashchange", () => { go(); page.focus(); });
addEventListener("look", poll);
document.addEventListener("visibilitychange", poll);
if (!document.body.classList.contains("is-old")) { // oldbrowser.js has said so
  document.body.classList.add("is-begun");
  go();
  greet();
}

// ---- Who is there ----

async function greet() {
  const found = await ask("session").catch(() => null);
  const leave = document.getElementById("leave");
  if (!found?.is_session) return;
  state.hasSession = true;
  leave.textContent = `Log out ${found.user}`;
  leave.hidden = false;
  leave.addEventListener("click", async () => {
    state.hasSession = false;
    await ask("session/end", {}).catch(() => null);
    location.replace("/login");
  });
}

