// The console beyond forms and links: it folds the navigation, copies a text, signs in by a link, and follows a swarm.
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

// On narrow screens, a button unfolds the navigation. Without a script, the navigation is always there.
const menu = document.querySelector("[data-menu]");
if (menu) {
  const navigation = document.getElementById("navigation");
  navigation.classList.add("folds");
  menu.hidden = false;
  menu.addEventListener("click", () => {
    menu.setAttribute("aria-expanded", navigation.classList.toggle("open"));
  });
}

// The button works only with a script, so the script shows it.
for (const button of document.querySelectorAll("button[data-copy]")) button.hidden = false;

// A link of `weir console` has its code in the fragment, which browsers do not send to servers and proxies.
const link = document.querySelector("[data-link]");
if (link && location.hash.length > 1) {
  link.open = true;
  link.querySelector("#code").value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  link.querySelector("form").requestSubmit();
}

// So has the link of an invitation. The person joins by a click.
const joining = document.querySelector("[data-fragment]");
if (joining && location.hash.length > 1) {
  joining.value = location.hash.slice(1);
  history.replaceState(null, "", location.pathname + location.search);
  joining.focus();
}

const followed = document.querySelector("[data-follow]");
if (followed) {
  const path = followed.dataset.follow;
  const panel = document.querySelector("[data-said]");
  const said = panel.querySelector("pre");
  const events = new EventSource(`${path}/events`);
  // Many events within a short time cause one update of the page.
  let wanted = null;
  const look = () => {
    clearTimeout(wanted);
    wanted = setTimeout(() => htmx.ajax("GET", `${path}/state`, { target: "#state", swap: "outerHTML" }), 150);
  };
  for (const name of ["agent_start", "agent_waiting", "tool_call", "agent_done"]) {
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
  // The last event: load the final page.
  events.addEventListener("swarm_done", () => {
    events.close();
    location.reload();
  });
}
