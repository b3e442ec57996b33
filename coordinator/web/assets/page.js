// Keeps the live parts of the page as the server has them now. The server writes all markup; this
// only puts newer parts where older ones are, and leaves alone what somebody is using.
"use strict";
(() => {
  const PERIOD_MS = 2000;
  const SLOWEST_MS = 30000;
  const status = document.getElementById("live-status");
  const button = document.getElementById("live-toggle");
  let paused = false;
  let failures = 0;
  let timer = 0;

  function say(text) {
    if (status.textContent !== text) status.textContent = text;
  }

  // Ends what was scheduled, too.
  function schedule() {
    clearTimeout(timer);
    if (paused || document.hidden) return;
    timer = setTimeout(load, Math.min(PERIOD_MS * 2 ** failures, SLOWEST_MS));
  }

  function load() {
    const request = new XMLHttpRequest();
    request.open("GET", location.pathname + location.search);
    request.responseType = "document";
    request.timeout = 10000;
    request.onload = () => {
      if (request.status === 200 && request.response) {
        failures = 0;
        if (!paused) update(request.response);
        say(paused ? "Paused" : "Live");
      } else if (request.status === 401 || request.status === 404) {
        // Logged out, or the job is gone: the page that says so.
        location.reload();
        return;
      } else {
        fail("The coordinator answered " + request.status);
      }
      schedule();
    };
    request.onerror = request.ontimeout = () => {
      fail("No answer");
      schedule();
    };
    request.send();
  }

  function fail(what) {
    if (failures === 0) {
      say(what + " since " + new Date().toLocaleTimeString() + "; trying again");
    }
    failures = Math.min(failures + 1, 5);
  }

  const liveParts = (page) => [...page.querySelectorAll("[data-live]")];

  function update(page) {
    const older = liveParts(document);
    const newer = liveParts(page);
    const same = older.map((part) => part.id).join() === newer.map((part) => part.id).join();
    if (same) {
      older.forEach((part, i) => replace(part, newer[i]));
    } else {
      replace(document.getElementById("main"), page.getElementById("main"));
    }
    document.title = page.title;
  }

  function inUse(part) {
    const selection = getSelection();
    const selected = selection && !selection.isCollapsed && part.contains(selection.anchorNode);
    return selected || part.querySelector(":active") !== null;
  }

  const FOCUSABLE = "a[href], button, input, select, [tabindex]";

  function replace(part, newer) {
    if (part.isEqualNode(newer) || inUse(part)) return;
    const stops = [...part.querySelectorAll(FOCUSABLE)];
    const focus = stops.indexOf(document.activeElement);
    const address = focus < 0 ? null : stops[focus].getAttribute("href");
    const scrolls = [...part.querySelectorAll(".scroll")].map((box) => box.scrollLeft);
    const placed = document.importNode(newer, true);
    part.replaceWith(placed);
    [...placed.querySelectorAll(".scroll")].forEach((box, i) => { box.scrollLeft = scrolls[i] || 0; });
    if (focus >= 0) {
      const next = [...placed.querySelectorAll(FOCUSABLE)];
      const target = next.find((stop) => address && stop.getAttribute("href") === address) || next[focus];
      if (target) target.focus({ preventScroll: true });
    }
  }

  button.hidden = false;
  button.addEventListener("click", () => {
    paused = !paused;
    button.textContent = paused ? "Resume" : "Pause";
    say(paused ? "Paused" : "Live");
    if (paused) {
      schedule();
    } else {
      load();
    }
  });
  document.addEventListener("visibilitychange", schedule);
  say("Live");
  schedule();
})();
