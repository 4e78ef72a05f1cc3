// Questions to the reader.

import { ask, lookAgain, why } from "./asking.js";
import { make, say, tell } from "./elements.js";

/** What the reader has written wrong, before the broker is asked. */
export class Wrong extends Error {}

/** `fields`: [{name, label, value, type, placeholder, rows, choices, onchange}]; `rows`: of a larger text, `choices`: [value, text]; `act(values)` does it and returns what is said then, or null where it has asked something else instead. The one thing that is lost stands in `text`. */
export function confirm({ title, text, verb, isDanger = false, isWide = false, fields = [], act }) {
  const dialog = document.getElementById("dialog");
  const wrong = make("p", { class: "wrong", role: "alert" });
  const inputs = fields.map(input);
  const go = make("button", { type: "button", class: isDanger ? "danger" : "main" }, verb);
  const stay = make("button", { type: "button", onclick: () => dialog.close() }, "Cancel");
  go.addEventListener("click", async () => {
    go.disabled = true;
    tell(wrong, "");
    try {
      const told = await act(Object.fromEntries(inputs.map((input) => [input.name, input.value])));
      if (told !== null) {
        say(told);
        dialog.close();
        lookAgain();
      }
    } catch (error) {
      tell(wrong, error instanceof Wrong ? error.message : why(error));
    }
    go.disabled = false;
  });
  const labels = fields.map((field, at) => make("label", {}, field.label, inputs[at]));
  dialog.onkeydown = (event) => { if (event.key === "Enter" && (event.target.tagName === "INPUT" || event.ctrlKey)) go.click(); };
  const heading = make("h2", { id: "dialog-title" }, title);
  dialog.className = isWide ? "wide" : "";
  dialog.replaceChildren(heading, make("p", {}, text), ...labels, wrong, make("div", { class: "buttons" }, stay, go));
  dialog.showModal();
  (inputs.find((one) => !one.value && one.tagName === "INPUT") ?? inputs[0] ?? stay).focus();
}

export function input({ name, type = "text", value = "", placeholder = "", rows = 0, choices = null, onchange = null }) {
  if (choices) return make("select", { name }, ...choices.map(([each, text]) => make("option", { value: each, selected: each === value }, text)));
  if (rows) return make("textarea", { name, rows, placeholder, spellcheck: "false" }, value);
  return make("input", { type, name, value, placeholder, autocomplete: "off", onchange });
}

export async function act(path, body, said) {
  try {
    await ask(path, body);
    say(said);
  } catch (error) {
    say(why(error));
  }
  lookAgain();
}

export const doing = (text, onclick, given = {}) => make("button", { type: "button", onclick, ...given }, text);
