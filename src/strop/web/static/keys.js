// Keys that work on every page: "/" goes to the search field, "?" shows the help, "j" and "k"
// move through whatever list is marked with data-list. Typing in a field is left alone.

const typing = (target) => target.closest("input, textarea, select, [contenteditable=true], .cm-editor");

function move(list, by) {
  const items = [...list.querySelectorAll("[data-item]")].filter((item) => item.offsetParent !== null);
  if (!items.length) return;
  const at = items.indexOf(document.activeElement.closest("[data-item]"));
  const next = items[Math.min(Math.max(at + by, 0), items.length - 1)];
  next.focus();
  next.scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (event.key === "/") {
    const field = document.querySelector("[data-search] input, input[data-search]");
    if (field) {
      event.preventDefault();
      field.focus();
      field.select();
    }
  } else if (event.key === "?") {
    document.querySelector("[data-help]")?.click();
  } else if (event.key === "j" || event.key === "k") {
    const list = document.querySelector("[data-list]");
    if (list) move(list, event.key === "j" ? 1 : -1);
  }
});

// Where the places do not fit beside each other, the present one is moved into sight.
addEventListener("load", () => {
  const place = document.querySelector(".s-nav [aria-current]");
  if (place) place.parentElement.scrollLeft = place.offsetLeft - place.parentElement.offsetLeft - 24;
});

// What a page shows stands in its address: back and forward build it again from there.
let shown = location.pathname + location.search;
for (const name of ["pushState", "replaceState"]) {
  const change = history[name].bind(history);
  history[name] = (...values) => {
    change(...values);
    shown = location.pathname + location.search;
  };
}
addEventListener("popstate", () => {
  if (location.pathname + location.search !== shown) location.reload();
});

// Times are shown as "3 min ago", with the exact one on hover, and grow older by themselves.
const steps = [
  [60, "s"],
  [60, "min"],
  [24, "h"],
  [Infinity, "d"],
];

export function ago(seconds, now = Date.now() / 1000) {
  let value = Math.max(0, now - seconds);
  if (value < 5) return "just now";
  for (const [size, unit] of steps) {
    if (value < size) return `${Math.floor(value)} ${unit} ago`;
    value /= size;
  }
}

function age() {
  if (document.hidden) return;
  for (const element of document.querySelectorAll("time[data-since]")) {
    const seconds = Number(element.dataset.since);
    const text = ago(seconds);
    if (element.textContent !== text) element.textContent = text;
    if (!element.title) element.title = new Date(seconds * 1000).toLocaleString();
  }
}

setInterval(age, 5000);
new MutationObserver(age).observe(document.documentElement, { childList: true, subtree: true });
