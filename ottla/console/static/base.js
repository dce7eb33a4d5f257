// Shared by all pages: elements, the address, the server, formats.
import { h, Component, Fragment, render } from "./vendor/preact.mjs";
import htm from "./vendor/htm.mjs";
import { signal, computed, effect, batch } from "./vendor/signals.mjs";
import { useEffect, useMemo, useRef, useState } from "./vendor/hooks.mjs";

export const html = htm.bind(h);
export { Component, Fragment, batch, computed, effect, h, render, signal, useEffect, useMemo, useRef, useState };

// -- The address bar holds all state: the path names the page, the query says how to show it. --
const read = () => ({ path: location.pathname, query: new URLSearchParams(location.search) });
export const address = signal(read());
addEventListener("popstate", () => { address.value = read(); });

export function go(to, replace = false) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  address.value = read();
}

export const param = (name, otherwise = "") => address.value.query.get(name) ?? otherwise;

export function setParams(values, replace = true) {
  const query = new URLSearchParams(address.value.query);
  for (const [name, value] of Object.entries(values)) {
    if (value === "" || value === null || value === undefined || value === false) query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  go(address.value.path + (text ? "?" + text : ""), replace);
}

// A name as one part of a path; `~` keeps browsers from taking "." and ".." for folders.
export const part = (name) => encodeURIComponent((/^(~.*|\.{0,2})$/s.test(name) ? "~" : "") + name);
export const nameOf = (text) => decodeURIComponent(text).replace(/^~/, "");

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const other = event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey;
  if (!link || other || link.target || link.download || link.origin !== location.origin) return;
  if (link.pathname.startsWith("/api/")) return;
  event.preventDefault();
  if (link.hash) { document.getElementById(link.hash.slice(1))?.focus(); return; }
  go(link.pathname + link.search);
  scrollTo(0, 0);
});

// -- The server. --
export const session = signal(null);
export const toast = signal(null);
const API = "/api/v1";

export class Failed extends Error {
  constructor(status, said) { super(said.message); this.status = status; this.code = said.error; }
}

export async function ask(path, method = "GET", body = undefined, abort = undefined) {
  const sent = body === undefined && method === "GET" ? {} : {
    headers: { "Content-Type": "application/json" }, body: JSON.stringify(body ?? {}),
  };
  let answer;
  try {
    answer = await fetch(API + path, { method, ...sent, signal: abort });
  } catch (lost) {
    if (lost.name === "AbortError") throw lost;
    throw new Failed(0, { error: "UNREACHABLE", message: "The console does not answer." });
  }
  const found = await answer.json().catch(() => ({ message: `The answer (${answer.status}) is not JSON.` }));
  if (answer.status === 401 && session.value?.logged_in) session.value = { ...session.value, logged_in: false };
  if (!answer.ok) throw new Failed(answer.status, found);
  return found;
}

export async function readSession() { session.value = await ask("/session"); }

// -- One stream for everything live: pages name the paths that they show. --
const wanted = new Map();
const values = new Map();
export const streamState = signal("off");
let source = null, opened = "", timer = 0;

export function valueOf(path) {
  if (!values.has(path)) values.set(path, signal(undefined));
  return values.get(path);
}

function apply({ path, value, changed, removed }) {
  const kept = valueOf(path);
  if (!changed) { kept.value = value.error ? { ...value, rows: [] } : value; return; }     // after an error, a table shows no rows instead of "Loading …"
  const key = value.key;
  const news = new Map(changed.map((row) => [row[key], row]));
  const gone = new Set(removed);
  const rows = [];
  for (const row of kept.value?.rows ?? []) {
    if (gone.has(row[key])) continue;
    rows.push(news.get(row[key]) ?? row);
    news.delete(row[key]);
  }
  kept.value = { ...value, rows: [...rows, ...news.values()] };
}

function reopen() {
  const paths = [...wanted.keys()].sort().slice(0, 8);
  const query = paths.map((path) => "path=" + encodeURIComponent(path)).join("&");
  if (query === opened && source && source.readyState !== 2) return;
  source?.close();
  source = null;
  opened = query;
  if (!query) { streamState.value = "off"; return; }
  source = new EventSource(`${API}/stream?${query}`);
  const mine = source;
  source.addEventListener("change", (event) => { streamState.value = "live"; apply(JSON.parse(event.data)); });
  source.addEventListener("end", () => { mine.close(); readSession().catch(() => {}); later(); });
  source.onerror = () => { streamState.value = "lost"; if (mine.readyState === 2) later(); };
}

function later() { setTimeout(() => { if (source?.readyState === 2) { opened = ""; reopen(); } }, 2000); }
const soon = () => { clearTimeout(timer); timer = setTimeout(reopen, 30); };

export function useLive(...paths) {
  const named = paths.join("\n");
  useEffect(() => {
    for (const path of paths) wanted.set(path, (wanted.get(path) ?? 0) + 1);
    soon();
    return () => {
      for (const path of paths) {
        const left = wanted.get(path) - 1;
        if (left) wanted.set(path, left); else wanted.delete(path);
      }
      soon();
    };
  }, [named]);
  const found = paths.map((path) => valueOf(path).value);
  return paths.length === 1 ? found[0] : found;
}

export function refresh() { opened = ""; reopen(); }

// -- Formats; tooltips (title) show exact values. --
const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let size = count, unit = 0;
  while (size >= 1024 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return `${size >= 100 || unit === 0 ? Math.round(size) : size.toFixed(1)} ${UNITS[unit]}`;
}
const plain = new Intl.NumberFormat("en"), compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
export const count = (value) => (value === null || value === undefined ? "–" : plain.format(value));
// "1 record", "2 records"; `many` is needed if the plural is not `one` plus s.
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;
export function short(value) {
  if (value === null || value === undefined) return "–";
  if (Math.abs(value) < 10000) return plain.format(Math.round(value * 10) / 10);
  return compact.format(value);
}
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.round(seconds);            // before choosing the unit: otherwise 59.6 s would become "60 s"
  if (whole < 60) return `${seconds < 9.95 ? Math.round(seconds * 10) / 10 : whole} s`;
  if (whole < 3600) return units(whole, 60, "min", 1, "s");
  if (whole < 86400) return units(whole, 3600, "h", 60, "min");
  return units(whole, 86400, "d", 3600, "h");
}
function units(seconds, large, name, small, rest) {
  const left = Math.floor((seconds % large) / small);
  return `${Math.floor(seconds / large)} ${name}${left ? ` ${left} ${rest}` : ""}`;
}
export function time(ms) {
  if (ms === null || ms === undefined || ms < 0) return "–";
  const at = new Date(ms);
  if (Number.isNaN(at.getTime())) return String(ms);
  const two = (value, width = 2) => String(value).padStart(width, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:`
    + `${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}
// Shows control characters, and characters that change the direction of text, as symbols.
export const visible = (text, lines = false) => text.replace(
  /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (found) => {
    if (lines && (found === "\n" || found === "\t")) return found;
    const code = found.codePointAt(0);
    if (code < 32) return String.fromCodePoint(0x2400 + code);
    return code === 127 ? "␡" : `⟨U+${code.toString(16).toUpperCase().padStart(4, "0")}⟩`;
  });
