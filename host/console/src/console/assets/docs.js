// The API's documentation: it searches the page, and sends a reader's own requests.
"use strict";

const search = document.getElementById("search");
const words = document.getElementById("words");
const parts = [...document.querySelectorAll("[data-found]")];
const groups = [...document.querySelectorAll("[data-group]")];
/** The text of each part, read at the first search. */
let texts = null;

/** Links to the first parts that the search has found. */
const MOST_HITS = 12;

const showFound = () => {
  texts ??= parts.map((part) => `${part.id} ${part.textContent}`.toLowerCase());
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = parts.filter((part, index) => {
    const isFound = wanted.every((word) => texts[index].includes(word));
    part.hidden = !isFound;
    return isFound;
  });
  for (const group of groups) group.hidden = !group.querySelector("[data-found]:not([hidden])");
  const isAll = wanted.length === 0;
  const count = (number, name) => `${number} ${name}${number === 1 ? "" : "s"}`;
  const schemas = found.filter((part) => part.id.startsWith("schema-")).length;
  document.getElementById("found").textContent = isAll
    ? ""
    : `${count(found.length - schemas, "operation")} and ${count(schemas, "schema")}`;
  // Those with a word in their own title come first.
  const isTitled = (part) => wanted.some((word) => part.querySelector("h3").textContent.toLowerCase().includes(word));
  const hits = isAll ? [] : [...found.filter(isTitled), ...found.filter((part) => !isTitled(part))];
  document.getElementById("hits").replaceChildren(...hits.slice(0, MOST_HITS).map((part) => {
    const item = document.createElement("li");
    const link = document.createElement("a");
    link.href = `#${part.id}`;
    link.textContent = part.querySelector("h3").textContent;
    item.append(link);
    return item;
  }));
};

/** Shows a part that a link leads to, even if the search has hidden it. */
const showTarget = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target?.hidden) return;
  words.value = "";
  showFound();
  target.scrollIntoView();
};

if (search) {
  search.hidden = false;
  words.addEventListener("input", showFound);
  window.addEventListener("hashchange", showTarget);
  // Browsers keep the text of a field when they load a page again.
  if (words.value) showFound();
}

/** Returns the body of a form, or undefined. */
const bodyOf = (form, headers) => {
  const chosen = form.querySelector("[data-body]:not([hidden])");
  if (!chosen) return undefined;
  const text = chosen.querySelector("textarea");
  const fields = [...chosen.querySelectorAll("[data-name]")];
  if (fields.length > 0) {
    // The browser writes the header, with the boundary of the parts.
    const body = new FormData();
    for (const field of fields) {
      if (field.type === "file") for (const file of field.files) body.append(field.dataset.name, file);
      else if (field.value) body.append(field.dataset.name, field.value);
    }
    return body;
  }
  if (text && !text.value.trim()) return undefined;
  headers.set("content-type", chosen.dataset.body);
  return text ? text.value : chosen.querySelector("input").files[0];
};

/** Returns the address and the headers of a form's request. */
const addressOf = (form) => {
  const headers = new Headers();
  const query = new URLSearchParams();
  let path = form.dataset.path;
  for (const field of form.querySelectorAll("[data-in]")) {
    const { in: place, name } = field.dataset;
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(field.value));
    else if (!field.value) continue;
    else if (place === "query") query.append(name, field.value);
    else if (place === "header") headers.set(name, field.value);
  }
  const wanted = form.dataset.proofs.split(" ");
  for (const { dataset, value } of document.querySelectorAll("[data-proof]")) {
    if (value && wanted.includes(dataset.proof)) headers.set(dataset.header, dataset.prefix + value);
  }
  return { address: query.size ? `${path}?${query}` : path, headers };
};

/** Shows a response as it comes. */
const showBody = async (response, shown) => {
  const kind = response.headers.get("content-type") ?? "";
  if (!/json|text|xml/.test(kind)) {
    const bytes = await response.blob();
    shown.textContent = bytes.size === 0 ? "" : `${bytes.size} bytes of ${kind}`;
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    shown.textContent += value;
  }
  if (!kind.startsWith("application/json")) return;
  // A number in JSON may have more digits than one of JavaScript; such a body stays as it came.
  const text = shown.textContent;
  const pretty = JSON.stringify(JSON.parse(text), null, 2);
  if (pretty.replaceAll(/\s/g, "").length === text.replaceAll(/\s/g, "").length) shown.textContent = pretty;
};

const send = async (form, signal, result) => {
  const { address, headers } = addressOf(form);
  const body = bodyOf(form, headers);
  const status = result.querySelector("[data-status]");
  const shown = result.querySelector("pre");
  shown.textContent = "";
  status.textContent = "weir is working on it …";
  result.hidden = false;
  const began = performance.now();
  try {
    // A session of the console is no proof for the API, so cookies stay away.
    const response = await fetch(address, { method: form.dataset.method, headers, body, signal, credentials: "omit" });
    status.textContent = `Status ${response.status}, after ${Math.round(performance.now() - began)} ms`;
    await showBody(response, shown);
  } catch (error) {
    status.textContent = error.name === "AbortError" ? "You stopped the request." : `The request failed: ${error.message}`;
  }
};

for (const trial of document.querySelectorAll("[data-try]")) {
  trial.hidden = false;
  const form = trial.querySelector("form");
  const stop = trial.querySelector("[data-stop]");
  const result = trial.querySelector("[data-result]");
  const kind = trial.querySelector("[data-kind]");
  const chooseBody = () => {
    for (const body of trial.querySelectorAll("[data-body]")) body.hidden = body.dataset.body !== kind.value;
  };
  if (kind) {
    kind.addEventListener("change", chooseBody);
    chooseBody();
  }
  let running = null;
  stop.addEventListener("click", () => running?.abort());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (running) return;
    running = new AbortController();
    stop.hidden = false;
    await send(form, running.signal, result);
    running = null;
    stop.hidden = true;
  });
}
const proofs = document.getElementById("proofs");
if (proofs) proofs.hidden = false;
