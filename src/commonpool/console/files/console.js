// What a page does by itself: it stays fresh while somebody looks, says the reader's time zone, and hears keys.
"use strict";

const POLL_MS = 5000; // where events are refused
const LEAST_MS = 4000; // between two refreshes, however much happens
const MOST_MS = 30000; // without an event: ages and clocks go on
const RETRY_MS = 60000;

// -- fresh figures ---------------------------------------------------------------------------------------------------

const live = document.getElementById("live");
const fresh = document.getElementById("fresh");
let last = Date.now();
let wanted = false;
let polling = true;
let source = null;

function say(state) {
  if (fresh) fresh.textContent = fresh.dataset[state];
}

function refresh() {
  if (!live || document.hidden) return;
  wanted = false;
  last = Date.now();
  htmx.trigger(live, "tick");
}

function due() {
  const waited = Date.now() - last;
  if (waited >= (wanted ? LEAST_MS : polling ? POLL_MS : MOST_MS)) refresh();
}

function listen() {
  if (!live || source || document.hidden) return;
  source = new EventSource(live.dataset.live);
  source.onopen = () => { polling = false; say("live"); };
  const heard = () => { wanted = true; };
  for (const kind of ["message", "changed", "decision"]) source.addEventListener(kind, heard);
  source.addEventListener("over", () => { // the session does not count any more
    location.href = `/login?next=${encodeURIComponent(location.pathname)}`;
  });
  source.onerror = () => {
    polling = true;
    say("polled");
    if (source && source.readyState === EventSource.CLOSED) { // refused, or not there
      source = null;
      setTimeout(listen, RETRY_MS);
    }
  };
}

function hush() {
  if (source) source.close();
  source = null;
  polling = true;
}

if (live) {
  say("polled");
  listen();
  setInterval(due, 500);
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { hush(); say("paused"); } else { say("polled"); listen(); refresh(); }
  });
  const stale = document.getElementById("stale");
  for (const kind of ["htmx:error", "htmx:response:error"]) document.addEventListener(kind, () => { stale.hidden = false; });
  document.addEventListener("htmx:after:swap", () => { stale.hidden = true; document.dispatchEvent(new Event("swapped")); });
}

// -- the reader's zone -----------------------------------------------------------------------------------------------

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone && zone !== document.body.dataset.zone) {
  document.cookie = `commonpool-zone=${zone}; path=/; max-age=31536000; samesite=strict`;
  if (live) live.addEventListener("htmx:after:init", refresh, { once: true });
  else if (document.cookie.includes("commonpool-zone=") && !sessionStorage.getItem("zone")) {
    sessionStorage.setItem("zone", zone); // once: the server may not know it
    location.reload();
  }
}

// -- menu, questions, keys -------------------------------------------------------------------------------------------

const menuButton = document.getElementById("menu-button");
const menu = document.getElementById("menu");
menuButton.hidden = !menu;
menuButton.addEventListener("click", () => {
  menuButton.setAttribute("aria-expanded", String(menu.classList.toggle("open")));
});

document.addEventListener("submit", (event) => {
  const question = event.submitter?.dataset.confirm ?? event.target.dataset.confirm;
  if (question && !confirm(question)) event.preventDefault();
});

const help = document.getElementById("help");
const keysOn = document.getElementById("keys-on");
document.getElementById("help-button").addEventListener("click", () => help.showModal());
keysOn.checked = localStorage.getItem("keys") !== "off";
keysOn.addEventListener("change", () => localStorage.setItem("keys", keysOn.checked ? "on" : "off"));

let went = 0;
document.addEventListener("keydown", (event) => {
  if (!keysOn.checked || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  if (event.target.closest("input, textarea, select")) return;
  if (Date.now() - went < 1500) {
    went = 0;
    const link = document.querySelector(`[data-key="${CSS.escape(event.key)}"]`);
    if (link) link.click();
    return;
  }
  if (event.key === "g") went = Date.now();
  else if (event.key === "?") help.showModal();
  else if (event.key === "r" && live) refresh();
  else if (event.key === "/") {
    const field = document.querySelector(".filter input, .filter select");
    if (field) { event.preventDefault(); field.focus(); }
  }
});
