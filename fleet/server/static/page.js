// SPDX-License-Identifier: Apache-2.0
"use strict";

// Live: the service says that something changed, and the page is asked for again. What
// a person is typing into stays, since it is outside of what is replaced.
(() => {
  const lost = document.getElementById("lost");
  let asking = false, again = false;

  async function refresh() {
    if (asking) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "error" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live"), here = document.getElementById("live");
      if (answer.ok && fresh && here) {
        const focused = document.activeElement, inside = here.contains(focused);
        const same = inside && (focused.getAttribute("href") || focused.dataset.copy);
        here.replaceChildren(...fresh.childNodes);
        if (same) {
          for (const e of here.querySelectorAll("a, button")) {
            if (e.getAttribute("href") === same || e.dataset.copy === same) { e.focus({ preventScroll: true }); break; }
          }
        }
        document.title = page.title;
        lost.hidden = true;
      }
    } catch { lost.hidden = false; }
    asking = false;
    if (again) { again = false; setTimeout(refresh, 1000); }
  }

  if (document.querySelector("main.login") === null) {
    const events = new EventSource("/v1/events");
    events.addEventListener("change", refresh);
    events.addEventListener("open", () => { if (!lost.hidden) refresh(); lost.hidden = true; });
    events.addEventListener("error", () => { lost.hidden = false; });
    setInterval(refresh, 60000); // silence is a condition, too, and comes without an event
  }

  document.addEventListener("click", async (e) => {
    const button = e.target.closest("button.copy");
    if (!button) return;
    const says = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch { // without TLS browsers have no clipboard: select the text instead
      const code = button.parentElement.querySelector("code");
      if (code) getSelection().selectAllChildren(code);
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = says; }, 1500);
  });

  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || e.target.closest("input, select, textarea")) return;
    if (e.key === "/") {
      e.preventDefault();
      const search = document.querySelector("input[type=search]");
      if (search) search.focus(); else location.href = "/nodes#search";
    }
  });
  if (location.hash === "#search") document.querySelector("input[type=search]")?.focus();
})();
