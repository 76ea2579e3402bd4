// What pages do beyond forms and links: copying a text, and following a swarm.
"use strict";

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-copy]");
  if (!button) return;
  const text = document.getElementById(button.dataset.copy).textContent;
  const said = button.textContent;
  const say = (words) => {
    button.textContent = words;
    setTimeout(() => { button.textContent = said; }, 1500);
  };
  navigator.clipboard.writeText(text).then(() => say("Copied"), () => say("Not copied"));
});

// Without a script there is nothing to press.
for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;

const followed = document.querySelector("[data-follow]");
if (followed) {
  const path = followed.dataset.follow;
  const panel = document.querySelector("[data-said]");
  const said = panel.querySelector("pre");
  const events = new EventSource(`${path}/events`);
  // Many events at once are one look at what has changed.
  let wanted = null;
  const look = () => {
    clearTimeout(wanted);
    wanted = setTimeout(() => htmx.ajax("GET", `${path}/state`, { target: "#state", swap: "outerHTML" }), 150);
  };
  for (const name of ["agent_start", "tool_call", "agent_done"]) {
    events.addEventListener(name, () => {
      if (name !== "tool_call") said.textContent = "";
      panel.hidden = !said.textContent;
      look();
    });
  }
  events.addEventListener("agent_delta", (event) => {
    said.textContent += JSON.parse(event.data).text;
    panel.hidden = false;
    said.scrollTop = said.scrollHeight;
  });
  // The last one: the page as it stays.
  events.addEventListener("swarm_done", () => {
    events.close();
    location.reload();
  });
}
