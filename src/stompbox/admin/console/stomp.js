// STOMP 1.2 for the playground: frames written as octets, and read from whatever pieces come.

const ESCAPES = { "\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c" };
const MEANT = { "\\\\": "\\", "\\r": "\r", "\\n": "\n", "\\c": ":" };
const [NUL, LF, CR] = [0, 10, 13];
const BARE = new Set(["CONNECT", "CONNECTED"]); // STOMP 1.2, Value Encoding: nothing is escaped in these

const escaped = (text) => text.replace(/[\\\r\n:]/g, (one) => ESCAPES[one]);
const unescaped = (text) => text.replace(/\\./g, (one) => MEANT[one] ?? one);

/** The frame as text, for a WebSocket. */
export function encode(command, headers, body = "") {
  const said = BARE.has(command) ? (text) => text : escaped;
  const length = body ? { "content-length": String(new TextEncoder().encode(body).length) } : {};
  const lines = Object.entries({ ...headers, ...length }).map(([name, value]) => `${said(name)}:${said(String(value))}\n`);
  return `${command}\n${lines.join("")}\n${body}\0`;
}

export class Decoder {
  constructor() { this.rest = new Uint8Array(); }

  /** The frames that are whole now: {command, headers, body}, where `body` is octets. */
  receive(data) {
    const came = typeof data === "string" ? new TextEncoder().encode(data) : new Uint8Array(data);
    const all = new Uint8Array(this.rest.length + came.length);
    all.set(this.rest);
    all.set(came, this.rest.length);
    const found = [];
    let at = 0;
    for (;;) {
      while (all[at] === LF || all[at] === CR) at++; // heart-beats
      const frame = read(all, at);
      if (!frame) break;
      found.push(frame);
      at = frame.end;
    }
    this.rest = all.slice(at);
    return found;
  }
}

/** The frame that begins there; null while it is not whole. */
function read(all, start) {
  const lines = [];
  let at = start;
  for (;;) {
    const end = all.indexOf(LF, at);
    if (end < 0) return null;
    const line = new TextDecoder().decode(all.subarray(at, end)).replace(/\r$/, "");
    at = end + 1;
    if (!line) break;
    lines.push(line);
  }
  const [command, ...rest] = lines;
  const meant = BARE.has(command) ? (text) => text : unescaped;
  const headers = {};
  for (const line of rest) {
    const colon = line.indexOf(":");
    const name = meant(line.slice(0, colon));
    if (!(name in headers)) headers[name] = meant(line.slice(colon + 1)); // STOMP 1.2, Repeated Header Entries: the first one counts
  }
  const length = Number(headers["content-length"] ?? NaN);
  const stop = Number.isNaN(length) ? all.indexOf(NUL, at) : at + length;
  if (stop < 0 || stop >= all.length) return null;
  return { command, headers, body: all.slice(at, stop), end: stop + 1 };
}
