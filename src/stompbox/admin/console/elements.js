// Elements of the page, and what they show.
//
// Names of addresses, users and clients come from strangers. All of them go into the page as text (`textContent`); the page's policy
// refuses markup from a string.


/** An element. `given`: its attributes and properties; on… are listeners. Children are elements or text. */
export function make(tag, given = {}, ...children) {
  const made = tag === "svg" || SVG.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}
const SVG = new Set(["polyline", "polygon", "line", "text"]);

export function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function attribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}


/** The rows of a list of facts: [name, text or element]. */
export const facts = (rows) => rows.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]);

/** Draws an element again only when what it depends on has changed. */
export function drawn(cell, depends, draw) {
  const now = JSON.stringify(depends);
  if (cell.drawnFor === now) return;
  cell.drawnFor = now;
  cell.replaceChildren(...draw());
}

export function badge(element, text) {
  tell(element, text);
  attribute(element, "data-state", text);
}

export const mark = (text) => make("span", { class: "badge", "data-state": text }, text);

let saying = 0;

/** Says what was done, for eight seconds. */
export function say(text) {
  clearTimeout(saying);
  tell(document.getElementById("said"), text);
  saying = setTimeout(() => tell(document.getElementById("said"), ""), 8000);
}
