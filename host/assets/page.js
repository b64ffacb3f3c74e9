// What HTML and htmx do not do by themselves: keyboard control of trees and forms, copying, the state of the
// connection, and scrolling with an answer.
"use strict";

// The tree follows the pattern of the ARIA practices guide: one line is in the tab order, and arrow keys move.
const items = (tree) => [...tree.querySelectorAll('[role="treeitem"]')].filter((item) => item.offsetParent !== null);

function focusItem(item) {
  if (!item) return;
  for (const other of item.closest('[role="tree"]').querySelectorAll('[role="treeitem"][tabindex="0"]')) {
    other.tabIndex = -1;
  }
  item.tabIndex = 0;
  item.focus();
}

function setOpen(item, open) {
  if (!item.hasAttribute("aria-expanded")) return;
  item.setAttribute("aria-expanded", String(open));
  // Not with attributes of the group: htmx would process each of thousands of lines.
  const group = item.querySelector(':scope > [role="group"]');
  if (!open || group.childElementCount > 0) return;
  const path = `/s/${item.id.slice(2)}/kids?level=${item.getAttribute("aria-level")}`;
  htmx.ajax("GET", path, { source: group, target: group, swap: "innerHTML" });
}

document.addEventListener("keydown", (event) => {
  const item = event.target.closest('[role="treeitem"]');
  if (!item || event.target !== item || event.altKey || event.ctrlKey || event.metaKey) return;
  const tree = item.closest('[role="tree"]');
  const all = items(tree);
  const at = all.indexOf(item);
  const open = item.getAttribute("aria-expanded");
  const keys = {
    ArrowDown: () => focusItem(all[at + 1]),
    ArrowUp: () => focusItem(all[at - 1]),
    Home: () => focusItem(all[0]),
    End: () => focusItem(all[all.length - 1]),
    ArrowRight: () => (open === "false" ? setOpen(item, true) : open === "true" && focusItem(all[at + 1])),
    ArrowLeft: () =>
      open === "true" ? setOpen(item, false) : focusItem(item.parentElement.closest('[role="treeitem"]')),
    Enter: () => item.querySelector("a").click(),
    " ": () => setOpen(item, open !== "true"),
  };
  if (!keys[event.key]) return;
  event.preventDefault();
  keys[event.key]();
});

document.addEventListener("click", (event) => {
  const twist = event.target.closest(".twist");
  if (twist) {
    const item = twist.closest('[role="treeitem"]');
    setOpen(item, item.getAttribute("aria-expanded") !== "true");
  }
  const copy = event.target.closest("[data-copy]");
  if (copy) {
    const text = document.getElementById(copy.dataset.copy).textContent;
    navigator.clipboard.writeText(text).then(
      () => say("Copied."),
      () => say("The browser refuses to copy."),
    );
  }
});

// A line can be opened once it has a child. One line is always in the tab order.
function tidy() {
  for (const twist of document.querySelectorAll('[role="treeitem"] > .row > .twist')) {
    const item = twist.closest('[role="treeitem"]');
    const parent = twist.dataset.kids !== "0";
    if (parent && !item.hasAttribute("aria-expanded")) {
      item.setAttribute("aria-expanded", String(item.querySelector(':scope > [role="group"]').childElementCount > 0));
    }
    if (!parent) item.removeAttribute("aria-expanded");
  }
  for (const tree of document.querySelectorAll('[role="tree"]')) {
    if (!tree.querySelector('[role="treeitem"][tabindex="0"]')) {
      const first = tree.querySelector('[role="treeitem"]');
      if (first) first.tabIndex = 0;
    }
  }
}
document.addEventListener("DOMContentLoaded", tidy);
document.addEventListener("htmx:after:swap", tidy);

// The time until a waiting call is denied, by the host's clock.
const ahead = Number(document.body?.dataset.now || Date.now()) - Date.now();
function countDown() {
  for (const left of document.querySelectorAll("[data-until]")) {
    const seconds = Math.max(0, Math.round((Number(left.dataset.until) - Date.now() - ahead) / 1000));
    const minutes = Math.floor(seconds / 60);
    const text = seconds === 0 ? "(passed)" : `(${minutes > 0 ? `${minutes} min ` : ""}${seconds % 60} s left)`;
    if (left.textContent !== text) left.textContent = text;
  }
}
document.addEventListener("DOMContentLoaded", countDown);
setInterval(countDown, 1000);

function say(text) {
  document.getElementById("said").textContent = text;
}
// Removes the result of an action at the next request, click or key.
document.addEventListener("htmx:before:request", (event) => event.detail.ctx.request.method === "GET" || say(""));
for (const event of ["pointerdown", "keydown"]) document.addEventListener(event, () => say(""));

// Shows when a part of the view has been out of date for more than a second.
const failed = new Map();
let lostAt = 0;
function lostText() {
  // Forgets a part that was replaced.
  for (const source of failed.keys()) if (!source.isConnected) failed.delete(source);
  return [...failed.values()].at(-1) ?? "";
}
function showLost() {
  const shown = document.getElementById("lost");
  const text = lostText();
  // Only the first failure starts the timer; later ones must not extend it.
  if (text && !shown.textContent) {
    lostAt ||= setTimeout(() => {
      lostAt = 0;
      shown.textContent = lostText();
    }, 1000);
    return;
  }
  clearTimeout(lostAt);
  lostAt = 0;
  if (shown.textContent !== text) shown.textContent = text;
}
function found(source) {
  failed.delete(source);
  showLost();
}
// Reports a part that cannot be loaded; `status` is missing without a response.
function lost(source, status) {
  const texts = {
    401: "The login has ended: open a new login link in this browser. `subtend token login` makes one, on the machine of the host.",
    403: "The host refuses this page's requests, as another site may have sent them. Open the page under the address that the host printed.",
    404: "This session does not exist any more.",
    410: "This session is deleted.",
    421: "The host does not know the address of this page: open the one that it printed, or start it with --allow-host.",
    429: "Too many views of this host are open: close some. This view is not up to date.",
  };
  const isLive = source.matches?.('[hx-sse\\:connect], [hx-trigger^="every"]');
  if (!isLive) return say(texts[status] ?? "The host does not answer: try again.");
  failed.delete(source);
  failed.set(source, texts[status] ?? "The host does not answer: this view is not up to date. It connects again by itself.");
  showLost();
}
// Retries unless the session is gone: a login or an address may become valid again.
const isGone = (status) => status === 404 || status === 410;
document.addEventListener("htmx:sse:after:connection", (event) => {
  found(event.target);
  // A browser has only six connections to a host, so the extension closes the streams of hidden tabs. A tab may also be
  // hidden when it is opened.
  queueMicrotask(() => document.hidden && document.dispatchEvent(new Event("visibilitychange")));
});
document.addEventListener("htmx:sse:error", (event) => {
  const { connection, status } = event.detail;
  if (connection && isGone(status)) connection.config.reconnect = false;
  lost(event.target, status);
});
document.addEventListener("htmx:after:request", (event) => {
  const { request, response, sourceElement } = event.detail.ctx;
  const { status } = response;
  if (request.method !== "GET") return;
  if (status < 400) return found(sourceElement);
  // Keeps a part unchanged if it cannot be loaded.
  if ([401, 403, 421, 429].includes(status) || status >= 500 || sourceElement.matches("[hx-sse\\:connect]")) {
    event.preventDefault();
    lost(sourceElement, status);
  }
});
document.addEventListener("htmx:error", (event) => {
  const ctx = event.detail.ctx;
  if (!ctx || ctx.response) return;
  if (ctx.request.method === "GET") return lost(ctx.sourceElement);
  say("The host does not answer: check whether this has taken effect before you try again.");
});
// The extension reconnects only streams that were open before.
document.addEventListener("htmx:finally:request", (event) => {
  const { sourceElement, response } = event.detail.ctx;
  const stream = sourceElement.getAttribute("hx-sse:connect");
  if (!stream || response?.status < 400 || isGone(response?.status)) return;
  setTimeout(() => htmx.ajax("GET", stream, { source: sourceElement }), 3000);
});

// True if the view has scrolled without the user since the last sample of the cards.
let hasScrolled = false;

// Keeps the end in view while an answer grows, if the user has scrolled to the end.
let atEnd = false;
let scrolledBefore = 0;
const page = document.documentElement;
document.addEventListener("htmx:sse:before:message", () => {
  scrolledBefore = window.scrollY;
  atEnd = window.scrollY > 0 && window.innerHeight + window.scrollY >= page.scrollHeight - 100;
});
document.addEventListener("htmx:sse:after:message", () => {
  if (atEnd && document.getElementById("streaming")) window.scrollTo({ top: page.scrollHeight, behavior: "instant" });
  hasScrolled ||= window.scrollY !== scrolledBefore;
});

// A click answers a call only where its card has been for a second: after a change, it was meant for another one.
let places = new Map();
let height = 0;
const isNear = (one, other) => Math.abs(one.left - other.left) < 1 && Math.abs(one.top - other.top) < 1;
function noteCards() {
  const now = performance.now();
  // The browser scrolls when a page becomes too short.
  const isAtEnd = window.scrollY > 0 && window.scrollY + window.innerHeight >= page.scrollHeight - 1;
  hasScrolled ||= page.scrollHeight < height && isAtEnd;
  height = page.scrollHeight;
  const next = new Map();
  for (const card of document.querySelectorAll("article[data-ask]")) {
    const { left, top } = card.querySelector(":scope > form").getBoundingClientRect();
    const place = { screen: { left, top }, page: { left: left + window.scrollX, top: top + window.scrollY }, since: now };
    const before = places.get(card.id);
    const onScreen = before && isNear(before.screen, place.screen);
    const onPage = before && isNear(before.page, place.page);
    // A change of the page may leave the card where it is on the screen, and the user may scroll it.
    if (onScreen || (onPage && !hasScrolled)) place.since = before.since;
    // Keeps the first place, so that small steps add up.
    if (onScreen) place.screen = before.screen;
    if (onPage) place.page = before.page;
    next.set(card.id, place);
  }
  places = next;
  hasScrolled = false;
}
document.addEventListener("DOMContentLoaded", noteCards);
setInterval(noteCards, 100);
function isInPlace(card) {
  noteCards();
  return performance.now() - places.get(card.id).since >= 1000;
}
document.addEventListener(
  "click",
  (event) => {
    const card = event.target.closest("article[data-ask]");
    if (!card || !event.target.closest("button")) return;
    let answers = false;
    try {
      answers = isInPlace(card);
    } finally {
      if (!answers) {
        event.preventDefault();
        event.stopImmediatePropagation();
        say("This call has just moved here: read it, then answer it.");
      }
    }
  },
  true,
);
// Prevents a second answer to an approval.
document.addEventListener("htmx:after:request", (event) => {
  const { sourceElement, response } = event.detail.ctx;
  if (response.status >= 400) return;
  for (const button of sourceElement.closest("article[data-ask]")?.querySelectorAll("button") ?? []) button.disabled = true;
});

// Clears the form of an accepted input, unless the user has typed more meanwhile.
const sent = new WeakMap();
document.addEventListener("htmx:before:request", (event) => {
  const form = event.detail.ctx.sourceElement.closest("form[data-clear]");
  if (form) sent.set(form, form.elements.text?.value);
});
document.addEventListener("htmx:after:request", (event) => {
  const { sourceElement, response } = event.detail.ctx;
  const form = sourceElement.closest("form[data-clear]");
  if (form && response.status < 400 && form.elements.text?.value === sent.get(form)) form.reset();
});

// Prevents sending a form again before its response has arrived.
document.addEventListener(
  "submit",
  (event) => {
    if (!event.target.classList.contains("htmx-request")) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    say("The request before has no answer yet: send this again when it has.");
  },
  true,
);

// Ctrl+Enter sends; Escape closes a confirmation.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches('textarea[name="text"]') && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
  const sure = event.key === "Escape" && event.target.closest("details.sure[open]");
  if (sure) {
    sure.open = false;
    sure.querySelector("summary").focus();
  }
});
