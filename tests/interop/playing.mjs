// What the players share: waiting with an end to it, and frames in the order in which they came.
const WITHIN = 10_000; // ms for anything that is on its way

export function within(promise, step) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${step} took more than ${WITHIN} ms`)), WITHIN);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export class Inbox {
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

export async function take(inbox, count) {
  const frames = [];
  while (frames.length < count) frames.push(await inbox.take(`message ${frames.length + 1} of ${count}`));
  return frames;
}

export const bodies = (frames) => frames.map((frame) => frame.body);

// The part that each client plays. `connect` gives a client; `publish`, `subscribe`, `ack` and `leave` wait
// for receipts; `colour` is the value of a header.
export async function play({ connect, publish, subscribe, ack, leave, version, colour = "a:b\nc\\d" }, queue) {
  const first = await within(connect(), "connect");
  for (const body of ["one", "two: grün", "three"]) await publish(first, queue, body, { colour });
  const frames = await take(await subscribe(first, queue, "client-individual"), 3);
  const spoken = version(first, frames);
  await ack(first, frames[1]);
  await leave(first);
  const second = await within(connect(), "connect again");
  const again = await take(await subscribe(second, queue, "auto"), 2);
  await leave(second);
  return {
    version: spoken,
    bodies: bodies(frames),
    colour: frames[0].headers.colour,
    destination: frames[0].headers.destination,
    again: again.map((frame) => [frame.body, frame.headers.redelivered]),
    ...(await transactions({ connect, publish, subscribe, leave }, queue)),
  };
}

async function transactions({ connect, publish, subscribe, leave }, queue) {
  const client = await within(connect(), "connect for transactions");
  const inbox = await subscribe(client, queue, "auto");
  const dropped = client.begin();
  await publish(client, queue, "never", { transaction: dropped.id });
  dropped.abort();
  const kept = client.begin();
  for (const body of ["first", "second"]) await publish(client, queue, body, { transaction: kept.id });
  await publish(client, queue, "outside");
  const before = await take(inbox, 1);
  kept.commit();
  const after = await take(inbox, 2);
  await leave(client);
  return { before: bodies(before), after: bodies(after) };
}
