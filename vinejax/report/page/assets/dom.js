"use strict";
// Elements are made by el() and filled with text nodes only: nothing from a run becomes markup.

const byId = (id) => document.getElementById(id);
const about = JSON.parse(byId("about").textContent);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "onclick" || name === "onchange") node.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) node.style.setProperty(name, value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// The text of a packed block: base64, then gzip.
async function unpacked(id) {
  const packed = atob(byId(id).textContent), bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i); // much faster than from()
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const blocks = new Map();
function block(id) {
  if (!blocks.has(id)) blocks.set(id, unpacked(id).then(JSON.parse));
  return blocks.get(id);
}

// Buttons of which one is pressed; calls `chosen` with its value.
function choice(holder, options, current, chosen) {
  const buttons = options.map(([value, title]) =>
    el("button", { type: "button", "data-value": value, "aria-pressed": value === current,
      onclick: () => {
        for (const other of buttons) other.setAttribute("aria-pressed", other.dataset.value === value);
        chosen(value);
      } }, title));
  holder.replaceChildren(...buttons);
}

// What the browser makes of a colour variable in the theme that is on.
function colour(name) {
  const probe = el("span", { "--probe": `var(${name})` });
  probe.style.color = "var(--probe)";
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const signed = (x, digits = 2) => (x > 0 ? "+" : x < 0 ? "−" : "±") + Math.abs(x).toFixed(digits);
const plural = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

function remembered(key) {
  try { return localStorage.getItem(`vinejax-${key}`); } catch { return null; }
}

function remember(key, value) {
  try { localStorage.setItem(`vinejax-${key}`, value); } catch { /* a page on disk may have no store */ }
}

// Changes the theme and tells those who draw with colours of their own.
const onTheme = [];
function theme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  for (const redraw of onTheme) redraw();
}

// On paper colours are light and widths are those of a sheet, whatever the screen is.
const onPrint = [];
const onPaper = () => "print" in document.documentElement.dataset;
function printing(on) {
  if (on === onPaper()) return;
  if (on) document.documentElement.dataset.print = "";
  else delete document.documentElement.dataset.print;
  if (on) onPrint.forEach((draw) => draw());
  onTheme.forEach((redraw) => redraw());
}

addEventListener("beforeprint", () => printing(true));
addEventListener("afterprint", () => printing(false));
matchMedia("print").addEventListener("change", (event) => printing(event.matches));

function showThemes() {
  const current = remembered("theme") ?? "auto";
  choice(byId("themes"), [["auto", "Auto"], ["light", "Light"], ["dark", "Dark"]], current, (name) => {
    remember("theme", name);
    theme(name);
  });
  theme(current);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => onTheme.forEach((redraw) => redraw()));
}
