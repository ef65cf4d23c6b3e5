// Replaces the parts of the page that changed. Without it the page shows what it showed when it was opened.
"use strict";
const every = Number(document.currentScript.dataset.every) * 1000;

async function refresh() {
  if (document.hidden) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const part of document.querySelectorAll("[data-live]")) {
    // A page that says what is wrong has no other parts: what they said may not hold any more.
    const next = page.getElementById(part.id) ?? document.createElement("div");
    if (next.innerHTML !== part.innerHTML && !part.contains(document.activeElement)) {
      const open = [...part.querySelectorAll("details")].map((each) => each.open);
      part.replaceChildren(...next.childNodes);
      part.querySelectorAll("details").forEach((each, n) => { each.open = open[n] ?? each.open; });
    }
  }
}

setInterval(() => refresh().catch(() => {
  for (const part of document.querySelectorAll("[data-live]")) part.replaceChildren();
  document.getElementById("state").textContent = "rabbit-chx ui does not answer any more: start it again";
}), every);
