// The playground: a STOMP client over the broker's own WebSocket, whose frames can be seen. It stays while other sections are looked at.

import { ask } from "./asking.js";
import { Wrong, doing, input } from "./dialogs.js";
import { badge, make, tell } from "./elements.js";
import { clock, count } from "./figures.js";
import { hex, indented } from "./messages.js";
import { headersOf } from "./sending.js";
import { Decoder, encode } from "./stomp.js";

const KEPT = 200; // frames that are shown
const BEAT = 60000; // ms: a page in the background is woken once a minute
const MOST = 4000; // characters of a body that is shown
const PROTOCOLS = ["v12.stomp"];

let made = null;

export function playground() {
  made ??= new Playground();
  const { elements, panels, problem } = made;
  return { elements, panels, problem, load: (signal) => made.load(signal), show: () => null };
}

const labelled = (text, element, kind = "") => make("label", { class: kind }, text, element);

class Playground {
  constructor() {
    Object.assign(this, { socket: null, urls: null, number: 0, subscriptions: new Map(), beat: 0, isOpen: false });
    this.problem = make("p", { class: "empty", role: "status" });
    this.state = make("span", { class: "state", "data-state": "closed" }, "closed");
    this.wrong = make("p", { class: "wrong", role: "alert" });
    this.frames = make("div", { class: "frames", role: "log", "aria-label": "Frames", tabindex: 0 });
    this.held = make("div", { class: "held" });
    this.panels = [this.connecting(), make("div", { class: "pair" }, this.subscribing(), this.sending()), this.log()];
    this.elements = [make("div", { class: "head" }, make("h1", {}, "Playground"), this.state), make("p", { class: "soft" }, "A STOMP 1.2 client in this page, over WebSocket. What it does is real: what is sent is sent."), this.problem, this.wrong, ...this.panels];
    this.tell();
  }

  async load(signal) {
    if (this.urls) return;
    const { urls } = await ask("websockets", undefined, signal);
    this.urls = urls;
    this.url.replaceChildren(...urls.map((each) => make("option", { value: each }, each)));
    if (!urls.length) tell(this.wrong, "No listener can be reached from this page: by TLS there must be one with TLS, and a page cannot name an IPv6 address.");
  }

  // What is on the screen

  form(title, fields, buttons, submit) {
    const form = make("form", { class: "asks panel" }, make("h2", {}, title), ...fields, make("div", { class: "buttons" }, ...buttons));
    form.addEventListener("submit", (event) => { event.preventDefault(); this.attempt(submit); });
    return form;
  }

  connecting() {
    this.url = input({ name: "url", choices: [] });
    this.login = input({ name: "login" });
    this.passcode = input({ name: "passcode", type: "password" });
    this.passcode.setAttribute("autocomplete", "off");
    this.host = input({ name: "host", placeholder: "as in the URL" });
    this.begin = make("button", { type: "submit", class: "main" }, "Connect");
    this.end = doing("Disconnect", () => this.attempt(() => this.send("DISCONNECT", { receipt: "goodbye" })));
    const fields = [labelled("Listener", this.url, "wide"), labelled("Login", this.login), labelled("Passcode", this.passcode), labelled("Virtual host", this.host)];
    return this.form("Connection", fields, [this.begin, this.end], () => this.connect());
  }

  subscribing() {
    this.from = input({ name: "destination", value: "/topic/playground" });
    this.ack = input({ name: "ack", choices: [["auto", "auto"], ["client", "client"], ["client-individual", "client-individual"]], value: "auto" });
    this.selector = input({ name: "selector", placeholder: "none" });
    this.subscribe = make("button", { type: "submit" }, "Subscribe");
    const form = this.form("Subscribe", [labelled("From the destination", this.from, "wide"), labelled("Acknowledged", this.ack), labelled("By the selector", this.selector)], [this.subscribe], () => this.doSubscribe());
    form.append(this.held);
    return form;
  }

  sending() {
    this.to = input({ name: "destination", value: "/topic/playground" });
    this.headers = input({ name: "headers", rows: 2, placeholder: "name: value" });
    this.body = input({ name: "body", rows: 3, value: "Hello" });
    this.post = make("button", { type: "submit" }, "Send");
    return this.form("Send", [labelled("To the destination", this.to, "wide"), labelled("Headers, one a line", this.headers, "wide"), labelled("Body", this.body, "wide")], [this.post], () => this.doSend());
  }

  log() {
    this.total = make("span", { class: "soft" });
    const clear = doing("Clear", () => { this.frames.replaceChildren(); this.tell(); });
    return make("section", { class: "panel" }, make("div", { class: "head" }, make("h2", {}, "Frames"), this.total, make("span", { class: "push" }, clear)), this.frames);
  }

  tell() {
    badge(this.state, this.isOpen ? "connected" : this.socket ? "connecting" : "closed");
    this.begin.disabled = this.socket !== null;
    for (const button of [this.end, this.subscribe, this.post]) button.disabled = !this.isOpen;
    tell(this.total, count(this.frames.childElementCount));
    this.held.replaceChildren(...[...this.subscriptions].map(([id, destination]) => doing(`Unsubscribe ${id} from ${destination}`, () => this.attempt(() => this.unsubscribe(id)))));
  }

  /** Does something that may be refused here. */
  attempt(act) {
    tell(this.wrong, "");
    try {
      act();
    } catch (error) {
      if (!(error instanceof Wrong)) throw error;
      tell(this.wrong, error.message);
    }
    this.tell();
  }

  // What it does

  connect() {
    if (!this.url.value) throw new Wrong("There is no listener to connect to.");
    const socket = (this.socket = new WebSocket(this.url.value, PROTOCOLS));
    const decoder = new Decoder();
    socket.binaryType = "arraybuffer";
    const host = this.host.value || new URL(this.url.value).hostname;
    const login = this.login.value ? { login: this.login.value, passcode: this.passcode.value } : {};
    socket.addEventListener("open", () => this.send("CONNECT", { "accept-version": "1.2", host, "heart-beat": `${BEAT},0`, ...login }));
    socket.addEventListener("message", (event) => { for (const frame of decoder.receive(event.data)) this.came(frame); });
    socket.addEventListener("close", (event) => this.closed(socket, event));
  }

  closed(socket, event) {
    if (socket !== this.socket) return;
    const why = this.isOpen || this.isRefused ? `code ${event.code}${event.reason ? `: ${event.reason}` : ""}` : "it was never open. The broker may be away, or the listener's allowedOrigins may not have this page";
    if (!this.isLeaving) tell(this.wrong, `The connection is closed, ${why}. Connect begins again.`);
    clearInterval(this.beat);
    Object.assign(this, { socket: null, isOpen: false, isLeaving: false, isRefused: false });
    this.subscriptions.clear();
    this.tell();
  }

  send(command, headers, body = "") {
    this.socket.send(encode(command, headers, body));
    const shown = "passcode" in headers ? { ...headers, passcode: "****" } : headers;
    this.note("sent", command, shown, new TextEncoder().encode(body));
  }

  doSubscribe() {
    if (!this.from.value) throw new Wrong("The destination to subscribe to is missing.");
    const id = String(this.number++);
    const selector = this.selector.value ? { selector: this.selector.value } : {};
    this.send("SUBSCRIBE", { id, destination: this.from.value, ack: this.ack.value, ...selector });
    this.subscriptions.set(id, this.from.value);
  }

  unsubscribe(id) {
    this.send("UNSUBSCRIBE", { id });
    this.subscriptions.delete(id);
  }

  doSend() {
    if (!this.to.value) throw new Wrong("The destination to send to is missing.");
    this.send("SEND", { destination: this.to.value, ...headersOf(this.headers.value) }, this.body.value);
  }

  // What comes

  came({ command, headers, body }) {
    this.note("came", command, headers, body);
    if (command === "CONNECTED") {
      this.isOpen = true;
      const asked = Number((headers["heart-beat"] ?? "0,0").split(",")[1]);
      if (asked) this.beat = setInterval(() => this.socket?.send("\n"), Math.max(BEAT, asked) / 2);
    }
    if (command === "ERROR") this.isRefused = true;
    if (headers["receipt-id"] === "goodbye") this.isLeaving = true;
    this.tell();
  }

  note(way, command, headers, octets) {
    const answers = command === "MESSAGE" && headers.ack ? ["ACK", "NACK"].map((word) => this.answer(word, headers.ack)) : [];
    const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`).join("\n");
    const entry = make(
      "article", { class: `frame ${way}` },
      make("div", { class: "head" }, make("h3", {}, command), make("span", { class: "soft" }, `${way === "sent" ? "sent" : "came"}, ${clock.format(Date.now())}`), ...answers),
      make("pre", {}, lines), octets.length ? make("pre", { class: "body" }, readable(octets)) : null,
    );
    const isAtEnd = this.frames.scrollTop + this.frames.clientHeight >= this.frames.scrollHeight - 4;
    this.frames.append(entry);
    while (this.frames.childElementCount > KEPT) this.frames.firstChild.remove();
    if (isAtEnd) this.frames.scrollTop = this.frames.scrollHeight;
  }

  answer(word, id) {
    const button = doing(word, () => this.attempt(() => {
      if (!this.isOpen) throw new Wrong("The connection that this came on is closed.");
      this.send(word, { id });
      for (const each of button.parentElement.querySelectorAll("button")) each.disabled = true;
    }));
    return button;
  }
}

function readable(octets) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(octets);
  } catch {
    return hex(octets.subarray(0, 1024));
  }
  const found = text.length < MOST && "{[".includes(text.trimStart()[0]) ? (indented(text) ?? text) : text;
  return found.length > MOST ? `${found.slice(0, MOST)} … (${count(found.length)} characters)` : found;
}
