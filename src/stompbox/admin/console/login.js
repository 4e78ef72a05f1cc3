// The log-in page: asks for a session, and goes on to the console.

const field = (id) => document.getElementById(id);

function told(text) {
  field("problem").textContent = text;
  field("problem").hidden = !text;
}

async function begin() {
  const answer = await fetch("/api/v1/session/start", {
    method: "POST", cache: "no-store", credentials: "same-origin", redirect: "error",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ login: field("name").value, passcode: field("passcode").value }),
  });
  if (answer.ok) return location.replace(`/${location.hash}`);
  const problem = await answer.json();
  if (problem.code === "no-users") return location.replace(`/${location.hash}`);
  told(`${problem.detail} (${problem.code})`);
  field("passcode").value = "";
  field("passcode").focus();
}

if (sessionStorage.getItem("ended")) {
  sessionStorage.removeItem("ended");
  told("The session has ended. Log in again, and the page goes on where it was.");
}

field("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  told("");
  field("go").disabled = true;
  try {
    await begin();
  } catch {
    told("The broker does not answer.");
  } finally {
    field("go").disabled = false;
  }
});
