// Numbers, octets, times and rates, as they are written.


export const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
export const tenth = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
export const clock = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
export const count = (value) => whole.format(value);
export const plural = (value, name) => `${count(value)} ${name}${value === 1 ? "" : "s"}`;
export const rate = (value) => (value === null ? "–" : (value > 0 && value < 10 ? tenth : whole).format(value));
export const exact = (row, value) => (row.is_estimate ? "≈ " : "") + count(value);

export function bytes(value) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (value >= 1024 && at < units.length - 1) [value, at] = [value / 1024, at + 1];
  return `${(value < 10 && at ? tenth : whole).format(value)} ${units[at]}`;
}

export function span(ms) {
  if (ms === null) return "?";
  const seconds = Math.round(ms / 1000);
  if (seconds < 1) return `${Math.max(0, Math.round(ms))} ms`;
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6000) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)} h ${Math.floor(seconds / 60) % 60} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor(seconds / 3600) % 24} h`;
}

export const ago = (then, now) => (then === null ? "not since the start" : `${span(Math.max(0, now - then))} ago`);

export function short(value) {
  for (const [size, name] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) if (value >= size) return `${tenth.format(value / size)} ${name}`;
  return tenth.format(value);
}

/** Rates from what was counted in successive answers. `now` is the broker's time, so that a slow network changes nothing. */
export class Rates {
  constructor() { this.before = new Map(); }

  /** Per second since the answer before; null for the first one, and where counting began anew. */
  of(key, value, now, kind = "") {
    const last = this.before.get(key);
    if (last && last.now === now) return last.rate;
    const goesOn = last && last.kind === kind && value >= last.value && now > last.now;
    const found = goesOn ? ((value - last.value) * 1000) / (now - last.now) : null;
    this.before.delete(key); // behind all others: the first ones are those that were not seen for longest
    this.before.set(key, { value, now, kind, rate: found });
    if (this.before.size > 2000) this.before.delete(this.before.keys().next().value);
    return found;
  }
}
