// SPDX-License-Identifier: Apache-2.0
"use strict";

// Live: the service says that something changed, and the page is asked for again. What
// a person is typing into stays, since it is outside of what is replaced.
(() => {
  const lost = document.getElementById("lost"), login = document.querySelector("main.login");
  let asking = false, again = false, pressed = false;

  // What a person selects, presses or chooses from stays under the hand.
  function busy() {
    const chosen = getSelection(), here = document.getElementById("live"), on = document.activeElement;
    return pressed || !chosen.isCollapsed && here.contains(chosen.anchorNode) || here.contains(on) && on.matches("input, select");
  }

  // Times are in UTC. Where the browser's clock shows another one, that stands beside it: of how long
  // ago something was in its title, since that is the same everywhere.
  function local(root) {
    for (const t of root.querySelectorAll("time[datetime]")) {
      const at = new Date(t.dateTime);
      if (isNaN(at) || at.getTimezoneOffset() === 0) continue;
      const clock = t.className === "clock";
      const here = at.toLocaleString(undefined, clock ? { weekday: "short", hour: "2-digit", minute: "2-digit" } : { dateStyle: "medium", timeStyle: "short" }) + " here";
      if (t.title && !clock) { t.title += ", " + here; continue; }
      const beside = document.createElement("span");
      beside.className = "here";
      beside.textContent = " (" + here + ")";
      t.append(beside);
    }
  }

  async function refresh() {
    if (asking || busy()) { again = true; return; }
    asking = true;
    try {
      const answer = await fetch(location.href, { headers: { Accept: "text/html" }, redirect: "manual" });
      if (answer.type === "opaqueredirect") { location.reload(); return; } // to log in, and back here
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("live"), here = document.getElementById("live");
      if (busy()) {
        again = true;
      } else if (fresh && here) {
        const focused = document.activeElement, inside = here.contains(focused);
        const same = inside && (focused.getAttribute("href") || focused.dataset.copy);
        local(fresh);
        here.replaceChildren(...fresh.childNodes);
        if (same) {
          for (const e of here.querySelectorAll("a, button")) {
            if (e.getAttribute("href") === same || e.dataset.copy === same) { e.focus({ preventScroll: true }); break; }
          }
        }
        document.title = page.title;
        lost.hidden = events.readyState === EventSource.OPEN;
      } else {
        lost.hidden = false;
      }
    } catch { lost.hidden = false; }
    asking = false;
    if (again && !busy()) { again = false; setTimeout(refresh, 1000); }
  }

  local(document);

  let events;
  function listen() {
    events = new EventSource("/v1/events");
    events.addEventListener("change", refresh);
    events.addEventListener("open", () => { if (!lost.hidden) refresh(); lost.hidden = true; });
    events.addEventListener("error", () => {
      lost.hidden = false;
      if (events.readyState !== EventSource.CLOSED) return; // the browser tries again by itself
      setTimeout(() => { listen(); refresh(); }, 5000);
    });
  }

  if (login === null) {
    listen();
    setInterval(refresh, 60000); // silence is a condition, too, and comes without an event
    const released = () => { pressed = false; if (again && !busy()) { again = false; setTimeout(refresh, 300); } };
    document.addEventListener("pointerdown", () => { pressed = true; });
    for (const end of ["pointerup", "pointercancel", "focusout"]) document.addEventListener(end, released);
    document.addEventListener("selectionchange", () => { if (!pressed) released(); });
  } else if (!login.querySelector("[role=alert]")) {
    // A link on another site's page leads here without the cookie; from here it is sent.
    fetch("/v1/slots", { redirect: "error" }).then((answer) => {
      if (answer.ok) location.replace(login.querySelector("input[name=to]").value);
    }).catch(() => {}); // then a token is asked for
  }

  document.addEventListener("click", async (e) => {
    const button = e.target.closest("button.copy");
    if (!button) return;
    const says = button.textContent;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = "Copied";
    } catch { // without TLS browsers have no clipboard for scripts; the older way they have
      const text = document.createElement("textarea");
      text.value = button.dataset.copy;
      document.body.append(text);
      text.select();
      button.textContent = document.execCommand("copy") ? "Copied" : "Not copied";
      text.remove();
      button.focus();
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
