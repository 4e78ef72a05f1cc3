// Sending a message: a form, and what is wrong with it before the broker is asked.

import { ask } from "./asking.js";
import { Wrong, confirm } from "./dialogs.js";

const KINDS = [["text", "text"], ["json", "JSON, which is checked"], ["hex", "octets, as hex digits"]];
const TYPES = { text: "text/plain", json: "application/json", hex: "application/octet-stream" };

export function send({ destination = "" } = {}) {
  confirm({
    title: "Send a message", verb: "Send", isWide: true, text: "As a client with your login would send it: the answer comes when it is stored.",
    fields: [
      { name: "destination", label: "Destination: /queue/NAME, /topic/NAME or another", value: destination, placeholder: "/queue/orders" },
      { name: "kind", label: "The body is", choices: KINDS, value: "text" },
      { name: "type", label: "Type (content-type); empty: what fits the body", placeholder: "text/plain" },
      { name: "headers", label: "More headers, one a line", rows: 3, placeholder: "priority: 7\ncorrelation-id: 42" },
      { name: "body", label: "Body", rows: 8 },
    ],
    act: async (values) => {
      if (!values.destination) throw new Wrong("The destination is missing.");
      const headers = { ...headersOf(values.headers), "content-type": values.type || TYPES[values.kind] };
      await ask("messages/send", { destination: values.destination, headers, ...bodyOf(values) });
      return `Sent to ${values.destination}`;
    },
  });
}

/** Headers by name, of lines "name: value". */
export function headersOf(text) {
  const found = {};
  text.split("\n").forEach((line, at) => {
    if (!line.trim()) return;
    const colon = line.indexOf(":");
    if (colon < 1) throw new Wrong(`Line ${at + 1} of the headers is “${line.slice(0, 60)}”; it should be a name, a colon and a value.`);
    const name = line.slice(0, colon).trim();
    if (name in found) throw new Wrong(`Line ${at + 1} of the headers has ${name} once more.`);
    found[name] = line.slice(colon + 1).trim();
  });
  return found;
}

function bodyOf({ kind, body }) {
  if (kind === "hex") return { body_base64: btoa(String.fromCharCode(...octetsOf(body))) };
  if (kind === "json") {
    try {
      JSON.parse(body);
    } catch (error) {
      throw new Wrong(`The body is no JSON: ${error.message}`);
    }
  }
  return { body };
}

function octetsOf(text) {
  const digits = text.replace(/\s+/g, "");
  const wrong = digits.search(/[^0-9a-fA-F]/);
  if (wrong >= 0) throw new Wrong(`The body is no hex: “${digits[wrong]}” is no digit of it.`);
  if (digits.length % 2) throw new Wrong("The body is no hex: it has an odd number of digits.");
  return Array.from({ length: digits.length / 2 }, (_, at) => parseInt(digits.slice(2 * at, 2 * at + 2), 16));
}
