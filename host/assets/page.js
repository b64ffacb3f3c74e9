// Keys of the tree, the replay slider, and copying: all that HTML and htmx do not do by themselves.
"use strict";

// The tree: one line is in the tab order, arrows move (the pattern of the ARIA practices guide).
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
  const group = item.querySelector(':scope > [role="group"]');
  if (open) htmx.trigger(group, "load-kids");
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
      () => (document.getElementById("said").textContent = "Copied."),
      () => (document.getElementById("said").textContent = "The browser refuses to copy."),
    );
  }
});

// A line that got its first child can be opened from then on; one line is always in the tab order.
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

// What an action said goes away with the next request, click or key.
for (const event of ["htmx:before:request", "pointerdown", "keydown"]) {
  document.addEventListener(event, () => (document.getElementById("said").textContent = ""));
}
// An input that was accepted leaves its form empty.
document.addEventListener("htmx:after:request", (event) => {
  const form = event.target.closest("form[data-clear]");
  if (form && event.detail.ctx.response.status < 400) form.reset();
});

// Replay: the slider asks for the record that it names, the latest one last.
document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches('textarea[name="text"]') && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    event.target.form.requestSubmit();
  }
});
