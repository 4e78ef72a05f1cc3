// What the broker remembers, drawn: plots of ten minutes or a day, and small ones for rows of tables.
//
// Nothing is measured here: a page that was loaded again shows what the one before has shown.

import { ask, lookAgain, query } from "./asking.js";
import { attribute, make, tell } from "./elements.js";
import { clock, rate, short, span } from "./figures.js";

const [HIGH, LEFT, FOOT, HEAD] = [190, 62, 20, 8]; // of a plot
const SPANS = [["10m", "10 minutes"], ["24h", "24 hours"]];
const UNKNOWN = -1;

/** The broker's history, of one address or of all: asked for once for all plots of a view. */
export class Past {
  constructor(address = null) {
    Object.assign(this, { address, span: SPANS[0][0], found: null, askedFor: "", plots: [] });
    this.buttons = SPANS.map(([name, text]) => make("button", { type: "button", onclick: () => this.choose(name) }, text));
    this.choice = make("span", { class: "choice push", role: "group", "aria-label": "How far back" }, ...this.buttons);
    this.press();
  }

  press() {
    SPANS.forEach(([name], at) => attribute(this.buttons[at], "aria-pressed", String(name === this.span)));
  }

  choose(name) {
    this.span = name;
    this.press();
    lookAgain();
  }

  /** Asks again when there is a new step. A day's has one in a minute. */
  async load(signal) {
    const isOld = this.askedFor !== this.span || this.span === SPANS[0][0] || Date.now() - this.at > this.found.step;
    if (isOld) {
      const wanted = this.span;
      this.found = await ask(`history?${query({ span: wanted, address: this.address })}`, undefined, signal);
      [this.askedFor, this.at] = [wanted, Date.now()];
    }
    return this.found;
  }
}

/** `lines`: {series, kind, label, isCount}; what is counted is shown per second. */
export class Plot {
  constructor(title, lines, choice = null) {
    Object.assign(this, { title, lines, at: null, points: [], reach: 60000, end: 0 });
    this.drawing = make("svg", { class: "chart", role: "img", tabindex: 0 });
    this.values = lines.map(() => make("b"));
    this.when = make("span");
    const key = make("div", { class: "key" }, ...lines.map((line, at) => make("span", { class: line.kind }, make("i"), `${line.label} `, this.values[at])), this.when);
    this.element = make("section", { class: "panel" }, make("div", { class: "head" }, make("h2", {}, title), choice), key, this.drawing);
    this.drawing.addEventListener("pointermove", (event) => this.look(this.nearest(event.offsetX)));
    this.drawing.addEventListener("pointerleave", () => this.look(null));
    this.drawing.addEventListener("blur", () => this.look(null));
    this.drawing.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !this.points.length) return;
    event.preventDefault();
    this.look(Math.min(this.points.length - 1, Math.max(0, (this.at ?? this.points.length) + step)));
  }

  look(at) {
    this.at = at;
    this.draw();
  }

  show(past) {
    const steps = Math.max(0, ...this.lines.map((line) => past.series[line.series]?.length ?? 0));
    const value = (line, at) => {
      const found = past.series[line.series]?.[at] ?? UNKNOWN;
      return found === UNKNOWN ? null : line.isCount ? (found * 1000) / past.step : found;
    };
    this.points = Array.from({ length: steps }, (_, at) => ({ now: past.until - (steps - 1 - at) * past.step, values: this.lines.map((line) => value(line, at)) }));
    this.end = past.until;
    this.reach = Math.max(60000, past.step * (steps - 1));
    if (this.at !== null) this.at = Math.min(this.at, steps - 1);
    this.draw();
  }

  x(point) {
    const wide = this.drawing.clientWidth || 900;
    return LEFT + (wide - LEFT) * (1 - (this.end - point.now) / this.reach);
  }

  nearest(x) {
    let best = null;
    this.points.forEach((point, at) => { if (best === null || Math.abs(this.x(point) - x) < Math.abs(this.x(this.points[best]) - x)) best = at; });
    return best;
  }

  draw() {
    const wide = this.drawing.clientWidth || 900;
    const [top, step] = scale(Math.max(1, ...this.points.flatMap((point) => point.values.map((value) => value ?? 0))));
    const y = (value) => HEAD + (HIGH - FOOT - HEAD) * (1 - value / top);
    const marks = this.axes(wide, top, step, y);
    this.lines.forEach((line, index) => marks.push(...this.line(line, index, y)));
    const near = this.points[this.at ?? this.points.length - 1];
    if (this.at !== null && near) marks.push(make("line", { class: "cross", x1: this.x(near), x2: this.x(near), y1: 0, y2: HIGH - FOOT }));
    const said = this.lines.map((line, index) => rate(near?.values[index] ?? null) + (line.isCount ? "/s" : ""));
    said.forEach((text, index) => tell(this.values[index], text));
    tell(this.when, near && this.at !== null ? clock.format(near.now) : "");
    const when = this.at !== null && near ? `, ${clock.format(near.now)}` : "";
    attribute(this.drawing, "aria-label", `${this.title}: ${this.lines.map((line, index) => `${said[index].replace("/s", "")} ${line.label}`).join(", ")}${when}`);
    attribute(this.drawing, "viewBox", `0 0 ${wide} ${HIGH}`);
    this.drawing.replaceChildren(...marks);
  }

  axes(wide, top, step, y) {
    const marks = [];
    for (let value = 0; value <= top; value += step) {
      marks.push(make("line", { class: "grid", x1: LEFT, x2: wide, y1: y(value), y2: y(value) }));
      marks.push(make("text", { x: LEFT - 8, y: y(value) + 4, "text-anchor": "end" }, short(value)));
    }
    const parts = wide < 500 ? 2 : 4; // so many texts have room
    for (let back = 0; back <= parts; back++) {
      const text = back ? `−${span((this.reach * back) / parts)}` : "now";
      const anchor = back === 0 ? "end" : back === parts ? "start" : "middle";
      marks.push(make("text", { x: LEFT + (wide - LEFT) * (1 - back / parts), y: HIGH - 4, "text-anchor": anchor }, text));
    }
    return marks;
  }

  /** A line is broken where nothing is known. */
  line(line, index, y) {
    const stretches = [[]];
    for (const point of this.points) {
      if (point.values[index] === null) stretches.push([]);
      else stretches.at(-1).push(`${this.x(point).toFixed(1)},${y(point.values[index]).toFixed(1)}`);
    }
    const drawn = stretches.filter((stretch) => stretch.length);
    const fills = index ? [] : drawn.map((stretch) => make("polygon", { class: line.kind, points: `${stretch[0].split(",")[0]},${y(0)} ${stretch.join(" ")} ${stretch.at(-1).split(",")[0]},${y(0)}` }));
    return [...fills, ...drawn.map((stretch) => make("polyline", { class: line.kind, points: stretch.join(" ") }))];
  }
}

/** A round number at or above `most`, and the step of the lines up to it. */
function scale(most) {
  const power = 10 ** Math.floor(Math.log10(most));
  const step = [0.2, 0.5, 1, 2].map((part) => part * power).find((part) => most / part <= 5);
  return [Math.ceil(most / step) * step, step];
}

// ---- Small ones ----

const ACTIVITY_EVERY = 20000; // ms: so long is a step

/** What was sent to the busiest addresses, for rows. */
export const activity = {
  found: { addresses: {}, step: ACTIVITY_EVERY },
  at: 0,
  async load(signal) {
    if (Date.now() - this.at < ACTIVITY_EVERY) return;
    this.found = await ask("activity", undefined, signal);
    this.at = Date.now();
  },
};

const [WIDE, LOW] = [96, 22];

/** Draws into a cell what was sent to an address; nothing where that is not measured. */
export function spark(cell, name) {
  const values = activity.found.addresses[name] ?? [];
  const now = values.join();
  if (cell.drawnFor === now) return;
  cell.drawnFor = now;
  const most = Math.max(...values, 1);
  const x = (at) => (values.length > 1 ? (WIDE * at) / (values.length - 1) : WIDE);
  const points = values.map((value, at) => `${x(at).toFixed(1)},${(LOW - 2 - ((LOW - 4) * Math.max(0, value)) / most).toFixed(1)}`).join(" ");
  const peak = rate((Math.max(...values, 0) * 1000) / activity.found.step);
  cell.replaceChildren(...(values.length > 1 ? [make("svg", { class: "spark", viewBox: `0 0 ${WIDE} ${LOW}`, role: "img", "aria-label": `At most ${peak} messages a second in the last ten minutes` }, make("polyline", { class: "in", points }))] : []));
}
