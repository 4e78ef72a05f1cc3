// Questions to the API, and why one had no answer.

export class Refusal extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
  }
}

/** The broker did not answer, or not whole. */
export class Away extends Error {}

/** Why a question had no answer, for the reader. */
export const why = (error) => (error instanceof Refusal ? `${error.message} (${error.code})` : "The broker does not answer.");

export async function ask(path, body, signal) {
  const given = { cache: "no-store", credentials: "same-origin", redirect: "error", signal };
  if (body !== undefined) Object.assign(given, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  let [answer, content] = [];
  try {
    answer = await fetch(path.startsWith("/") ? path : `/api/v1/${path}`, given);
    content = await answer.json();
  } catch (error) {
    throw new Away(String(error));
  }
  if (!answer.ok && !content.reasons) throw new Refusal(answer.status, content.error ?? { code: "refused", message: `status ${answer.status}` });
  return content;
}

export function query(given) {
  return new URLSearchParams(Object.entries(given).filter(([, value]) => value !== "" && value !== null)).toString();
}

/** Looks at once at what is on the screen, and not at the next time (console.js). */
export const lookAgain = () => dispatchEvent(new Event("look"));
