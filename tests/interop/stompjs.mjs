// Plays @stomp/stompjs against a broker, over WebSocket or, with its TCP wrapper, over TCP: node stompjs.mjs URL QUEUE
// Prints one line of JSON with what it saw; test_javascript.py says what is right. A step that takes too long is an error with its name.
import { Client, Versions } from "@stomp/stompjs";
import { TCPWrapper } from "@stomp/tcp-wrapper";

import { Inbox, play, within } from "./playing.mjs";

const [url, queue] = process.argv.slice(2);
const { protocol, hostname, port } = new URL(url);
const errors = [];
let receipts = 0;

const way = protocol === "tcp:" ? { webSocketFactory: () => new TCPWrapper(hostname, Number(port)) } : { brokerURL: url };

function connect() {
  return new Promise((resolve, reject) => {
    const client = new Client({
      ...way,
      connectHeaders: { login: "guest", passcode: "guest" },
      stompVersions: new Versions([Versions.V1_2]),
      reconnectDelay: 0,
      heartbeatIncoming: 0,
      heartbeatOutgoing: 0,
      onConnect: () => resolve(client),
      onStompError: (frame) => {
        errors.push(frame.headers.message ?? frame.body);
        reject(new Error(frame.body));
      },
      onWebSocketError: () => reject(new Error(`no connection to ${url}`)),
    });
    client.activate();
  });
}

// Runs a frame with a receipt and waits for it.
function confirmed(client, step, write) {
  const receipt = `r${++receipts}`;
  const came = new Promise((resolve) => client.watchForReceipt(receipt, resolve));
  write({ receipt });
  return within(came, step);
}

const publish = (client, destination, body, headers = {}) =>
  confirmed(client, `receipt of ${body}`, (receipt) => client.publish({ destination, body, headers: { ...headers, ...receipt } }));

async function subscribe(client, destination, ack) {
  const inbox = new Inbox();
  await confirmed(client, "subscribe", (receipt) => client.subscribe(destination, (frame) => inbox.put(frame), { ack, ...receipt }));
  return inbox;
}

const saw = await play({
  connect,
  publish,
  subscribe,
  ack: (client, frame) => confirmed(client, "ack", (receipt) => frame.ack(receipt)),
  leave: (client) => within(client.deactivate(), "disconnect"), // DISCONNECT with a receipt, then the close
  version: (client) => client.connectedVersion,
}, queue);
console.log(JSON.stringify({ ...saw, errors }));
