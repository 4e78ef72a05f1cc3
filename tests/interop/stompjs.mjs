// Plays @stomp/stompjs against a broker over WebSocket: node stompjs.mjs URL QUEUE
// Prints one line of JSON with what it saw; test_stompjs.py says what is right. A step that takes too long is an error with its name.
import { Client, Versions } from "@stomp/stompjs";

const WITHIN = 10_000; // ms for anything that is on its way
const [url, queue] = process.argv.slice(2);

function within(promise, step) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${step} took more than ${WITHIN} ms`)), WITHIN);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

class Inbox {
  #frames = [];
  #waiting = [];

  put(frame) {
    const next = this.#waiting.shift();
    if (next) next(frame);
    else this.#frames.push(frame);
  }

  take(step) {
    const frame = this.#frames.shift();
    return frame ? Promise.resolve(frame) : within(new Promise((resolve) => this.#waiting.push(resolve)), step);
  }
}

const errors = [];
let receipts = 0;

function connect() {
  return new Promise((resolve, reject) => {
    const client = new Client({
      brokerURL: url,
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
      onWebSocketError: () => reject(new Error(`no WebSocket at ${url}`)),
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

const publish = (client, body, headers = {}) =>
  confirmed(client, `receipt of ${body}`, (receipt) => client.publish({ destination: queue, body, headers: { ...headers, ...receipt } }));

async function subscribe(client, ack) {
  const inbox = new Inbox();
  await confirmed(client, "subscribe", (receipt) => client.subscribe(queue, (frame) => inbox.put(frame), { ack, ...receipt }));
  return inbox;
}

async function take(inbox, count) {
  const frames = [];
  while (frames.length < count) frames.push(await inbox.take(`message ${frames.length + 1} of ${count}`));
  return frames;
}

const bodies = (frames) => frames.map((frame) => frame.body);

async function individualAcks() {
  const first = await within(connect(), "connect");
  const version = first.connectedVersion;
  for (const body of ["one", "two: grün", "three"]) await publish(first, body, { colour: "a:b\nc\\d" });
  const frames = await take(await subscribe(first, "client-individual"), 3);
  await confirmed(first, "ack", (receipt) => frames[1].ack(receipt));
  await within(first.deactivate(), "disconnect"); // DISCONNECT with a receipt, then the close
  const second = await within(connect(), "connect again");
  const again = await take(await subscribe(second, "auto"), 2);
  await within(second.deactivate(), "disconnect again");
  return {
    version,
    bodies: bodies(frames),
    colour: frames[0].headers.colour,
    destination: frames[0].headers.destination,
    again: again.map((frame) => [frame.body, frame.headers.redelivered]),
  };
}

async function transactions() {
  const client = await within(connect(), "connect for transactions");
  const inbox = await subscribe(client, "auto");
  const dropped = client.begin();
  client.publish({ destination: queue, body: "never", headers: { transaction: dropped.id } });
  dropped.abort();
  const kept = client.begin();
  client.publish({ destination: queue, body: "first", headers: { transaction: kept.id } });
  client.publish({ destination: queue, body: "second", headers: { transaction: kept.id } });
  await publish(client, "outside");
  const before = await take(inbox, 1);
  kept.commit();
  const after = await take(inbox, 2);
  await within(client.deactivate(), "disconnect after transactions");
  return { before: bodies(before), after: bodies(after) };
}

const saw = { ...(await individualAcks()), ...(await transactions()), errors };
console.log(JSON.stringify(saw));
