// Conveniences that no page needs: copying a text.
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
