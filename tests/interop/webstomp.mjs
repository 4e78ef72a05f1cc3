// Plays webstomp-client against a broker over WebSocket: node webstomp.mjs URL QUEUE
// Prints one line of JSON with what it saw; test_javascript.py says what is right.
import webstomp from "webstomp-client";

import { Inbox, play, within } from "./playing.mjs";

const [url, queue] = process.argv.slice(2);
const errors = [];
let receipts = 0;

function connect() {
  return new Promise((resolve, reject) => {
    const client = webstomp.client(url, { debug: false, heartbeat: false, protocols: webstomp.VERSIONS.supportedProtocols() });
    client.waiting = new Map();
    client.onreceipt = (frame) => client.waiting.get(frame.headers["receipt-id"])?.();
    const connected = (frame) => {
      client.spoken = frame.headers.version;
      resolve(client);
    };
    const failed = (frame) => {
      errors.push(frame.headers?.message ?? String(frame.reason));
      reject(new Error(errors.at(-1)));
    };
    client.connect("guest", "guest", connected, failed);
  });
}

// Runs a frame with a receipt and waits for it.
function confirmed(client, step, write) {
  const receipt = `r${++receipts}`;
  const came = new Promise((resolve) => client.waiting.set(receipt, resolve));
  write({ receipt });
  return within(came, step);
}

async function subscribe(client, destination, ack) {
  const inbox = new Inbox();
  await confirmed(client, "subscribe", (receipt) => client.subscribe(destination, (frame) => inbox.put(frame), { ack, ...receipt }));
  return inbox;
}

const saw = await play({
  connect,
  publish: (client, destination, body, headers = {}) =>
    confirmed(client, `receipt of ${body}`, (receipt) => client.send(destination, body, { ...headers, ...receipt })),
  subscribe,
  ack: (client, frame) => confirmed(client, "ack", (receipt) => frame.ack(receipt)),
  leave: (client) => within(new Promise((resolve) => client.disconnect(resolve)), "disconnect"),
  version: (client) => client.spoken,
  colour: "red", // it writes headers as they are, without STOMP's escapes
}, queue);
console.log(JSON.stringify({ ...saw, errors }));
