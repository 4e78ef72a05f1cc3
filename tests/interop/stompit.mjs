// Plays stompit against a broker over TCP: node stompit.mjs URL QUEUE
// Prints one line of JSON with what it saw; test_javascript.py says what is right.
import { promisify } from "node:util";

import stompit from "stompit";

import { Inbox, play, within } from "./playing.mjs";

const [url, queue] = process.argv.slice(2);
const { hostname, port } = new URL(url);
const errors = [];

async function connect() {
  const connectHeaders = { host: "/", login: "guest", passcode: "guest" };
  const client = await promisify(stompit.connect)({ host: hostname, port: Number(port), connectHeaders });
  client.on("error", (error) => errors.push(error.message));
  return client;
}

// A body is a stream, its receipt comes when that has ended.
function publish(client, destination, body, headers = {}) {
  const sent = new Promise((resolve) => client.send({ destination, ...headers }, { onReceipt: resolve }).end(body));
  return within(sent, `receipt of ${body}`);
}

async function subscribe(client, destination, ack) {
  const inbox = new Inbox();
  client.subscribe({ destination, ack }, (error, message) => {
    if (error) return errors.push(error.message);
    message.readString("utf-8", (fault, body) => {
      if (fault) return errors.push(fault.message);
      inbox.put({ body, headers: message.headers, message });
    });
  });
  return inbox;
}

const saw = await play({
  connect,
  publish,
  subscribe,
  ack: (client, { message }) => within(new Promise((resolve) => client.ack(message, {}, { onReceipt: resolve })), "ack"),
  leave: (client) => within(promisify(client.disconnect.bind(client))(), "disconnect"),
  version: (_, frames) => ("ack" in frames[0].headers ? "1.2" : "older"), // it does not say which it speaks, but 1.2 alone has that header
}, queue);
console.log(JSON.stringify({ ...saw, errors }));
