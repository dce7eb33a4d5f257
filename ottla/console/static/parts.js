// Components that pages share: a table of any length, graphs, dialogs, tiles.
import { Component, h, html, useEffect, useMemo, useRef, useState, address, ask, counted, go, param, setParams, session, signal, toast, useLive,
  refresh, visible, Failed } from "./base.js";
import uPlot from "./vendor/uplot.mjs";

const ROW = 28, STEP = 2, EXTRA = 2, HEIGHT_MIN = 600;

// Columns: { key, label, width, least, number, show(row), title(row), href(row), sort }. The address holds the sort order and the search.
// A `width` in px is fixed. Each other column gets at least `least` px, and a share of the room that is left; a `width` in % is this share.
// No column is narrower than its heading. If the window has too little room, all but the first column scroll sideways.
const LEAST = 120, LEAST_OF_NAMES = 160;
const pen = document.createElement("canvas").getContext("2d"), headings = new Map();
function headingWidth(label) {
  if (!headings.has(label)) {
    pen.font = `600 13px ${getComputedStyle(document.body).fontFamily}`;
    headings.set(label, Math.ceil(pen.measureText(`${label} ↓`).width) + 18);
  }
  return headings.get(label);
}

function leastOf({ label, width = "", least }, place) {
  return Math.max(headingWidth(label), width.endsWith("px") ? parseInt(width, 10) : least ?? (place ? LEAST : LEAST_OF_NAMES));
}

function widthsOf(columns, least, room) {
  const free = columns.filter((column) => !column.width).length;
  const percent = columns.map(({ width = "" }) => (width.endsWith("%") ? parseInt(width, 10) : 0));
  const rest = Math.max(100 - percent.reduce((a, b) => a + b, 0), 10) / free;
  const shares = columns.map((column, place) => (column.width ? percent[place] : rest));
  const left = Math.max(0, room - least.reduce((a, b) => a + b, 0)), all = shares.reduce((a, b) => a + b, 0);
  return least.map((width, place) => width + (all ? Math.floor(left * shares[place] / all) : 0));
}

export function Table({ rows, columns, id, label, open, search = true, chosen, sort: usual, tools, name = "" }) {
  const [step, setStep] = useState(0);          // the scroll position, in steps of STEP rows
  const [{ height, width }, setSize] = useState({ height: 0, width: 0 });
  const box = useRef(null);
  const q = param(name + "q"), sort = param(name + "sort", usual ?? columns[0].key);
  const view = `${q}\n${sort}`, [held, hold] = useState([-1, view]);        // a new search or sort order deselects the row
  const cursor = held[1] === view ? held[0] : -1, setCursor = (next) => hold([next, view]);
  const shown = useMemo(() => sorted(filtered(rows ?? [], columns, q), columns, sort), [rows, q, sort, columns.length]);
  useEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setSize(entry.contentRect));
    watcher.observe(box.current);
    return () => watcher.disconnect();
  }, []);
  const least = columns.map(leastOf), wide = least.reduce((a, b) => a + b, 0), widths = widthsOf(columns, least, width);
  const linked = columns.find((column) => column.href);
  const opened = open ?? (linked && ((row) => { const to = linked.href(row); if (to) go(to); }));
  const most = Math.ceil(Math.max(height, HEIGHT_MIN) / ROW) + STEP + 2 * EXTRA;
  const first = Math.max(0, Math.min(step * STEP - EXTRA, shown.length - most));
  const last = Math.min(shown.length, first + most);
  const slot = useSlots(first, last, most);
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, j: 1, k: -1, PageDown: 20, PageUp: -20, Home: -Infinity, End: Infinity }[event.key];
    if (step) {
      event.preventDefault();
      const next = Math.min(Math.max(cursor + step, 0), shown.length - 1);
      setCursor(next);
      const element = box.current, y = next * ROW;
      if (y < element.scrollTop) element.scrollTop = y;
      if (y > element.scrollTop + element.clientHeight - 3 * ROW) element.scrollTop = y - element.clientHeight + 3 * ROW;
    } else if (event.key === "Enter" && event.target === box.current && shown[cursor]) {
      event.preventDefault();
      if (opened) opened(shown[cursor]); else box.current.querySelector("tr.chosen :is(a, button)")?.focus();
    }
  };
  return html`
    ${(search || tools) && html`<div class="bar">
      ${search && html`<input type="search" class="find" placeholder="Search ( / )" aria-label=${`Search ${label}`} value=${q}
        onInput=${(event) => setParams({ [name + "q"]: event.target.value })} />`}
      <span class="soft" role="status">${rows ? (shown.length === rows.length ? `${rows.length}` : `${shown.length} of ${rows.length}`) : "…"}</span>
      ${tools}</div>`}
    <div class=${wide > width ? "scroll wide" : "scroll"} ref=${box} tabindex="0" role="region" aria-label=${label} onKeyDown=${keys}
      onScroll=${() => setStep(Math.floor(box.current.scrollTop / (STEP * ROW)))}>
      <table aria-rowcount=${shown.length} style=${{ minWidth: `${wide}px` }}>
        <colgroup>${widths.map((one) => html`<col style=${{ width: `${one}px` }} />`)}</colgroup>
        <thead><tr>${columns.map((column) => html`<${Head} column=${column} sort=${sort} name=${name} />`)}</tr></thead>
        <tbody>
          ${first > 0 && html`<tr class="space" aria-hidden="true"><td colspan=${columns.length} style=${{ height: `${first * ROW}px` }}></td></tr>`}
          ${shown.slice(first, last).map((row, place) => html`<${Row} key=${slot(first + place)} row=${row} columns=${columns} open=${opened}
            index=${first + place + 1} chosen=${chosen === row[id] || cursor === first + place} />`)}
          ${last < shown.length && html`<tr class="space" aria-hidden="true">
            <td colspan=${columns.length} style=${{ height: `${(shown.length - last) * ROW}px` }}></td></tr>`}
          ${!shown.length && html`<tr><td colspan=${columns.length} class="soft">${rows ? (q ? "Nothing matches the search." : "Nothing here.") : "Loading …"}</td></tr>`}
        </tbody>
      </table></div>`;
}

function Head({ column, sort, name }) {
  const down = sort === `-${column.key}`, up = sort === column.key;
  const next = column.number ? (down ? column.key : `-${column.key}`) : (up ? `-${column.key}` : column.key);
  if (column.sort === false) return html`<th scope="col" class=${column.number ? "number" : ""}><span>${column.label}</span></th>`;
  return html`<th scope="col" class=${column.number ? "number" : ""} aria-sort=${down ? "descending" : up ? "ascending" : "none"}>
    <button onClick=${() => setParams({ [name + "sort"]: next })}>${column.label}${down ? " ↓" : up ? " ↑" : ""}</button></th>`;
}

// Reuses elements: a row that scrolls into view gets the element of a row that scrolled out of view; all other rows keep their elements.
// When all rows change at once, each element gets the new row at its position, so that no element has to move.
function useSlots(first, last, most) {
  const now = useRef({ first: 0, last: 0, base: 0 }).current;
  if (first >= now.last || last <= now.first) now.base += first - now.first;
  Object.assign(now, { first, last });
  return (index) => (((index - now.base) % most) + most) % most;
}

// Scrolling renders the list again; this skips unchanged rows.
class Row extends Component {
  shouldComponentUpdate(next, state) {
    return state !== this.state || Object.keys(next).some((name) => next[name] !== this.props[name]);
  }

  render({ row, columns, open, index, chosen }) {
    return h("tr", { class: `row${open ? " opens" : ""}${chosen ? " chosen" : ""}`, "aria-rowindex": index,
      onClick: open ? (event) => { if (!event.target.closest("a,button")) open(row); } : undefined }, columns.map((column) => cell(row, column)));
  }
}

// A plain function, because components or templates would be too slow: one frame needs hundreds of cells.
function cell(row, column) {
  const value = row[column.key];
  const plain = value === null || value === undefined ? "–" : visible(String(value));
  const said = column.show ? column.show(row) : plain;
  const title = column.title ? column.title(row) : typeof said === "string" && typeof value !== "number" ? said
    : typeof value === "string" || typeof value === "number" ? plain : undefined;
  const href = column.href?.(row);
  return h("td", { class: `${column.number ? "number" : ""}${column.mono ? " mono" : ""}`, title }, href ? h("a", { href }, said) : said);
}

const texts = new WeakMap();                    // the searchable text of each row; built once, not at every keystroke
function textOf(row, columns) {
  if (!texts.has(row)) texts.set(row, columns.map((column) => JSON.stringify(row[column.key]) ?? "").join(" ").toLowerCase());
  return texts.get(row);
}

function filtered(rows, columns, q) {
  const words = q.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => { const text = textOf(row, columns); return words.every((word) => text.includes(word)); });
}

function sorted(rows, columns, sort) {
  const down = sort.startsWith("-"), key = down ? sort.slice(1) : sort;
  if (!columns.some((column) => column.key === key)) return rows;
  const sign = down ? -1 : 1;
  return [...rows].sort((a, b) => sign * compared(a[key], b[key]));
}

const collator = new Intl.Collator("en", { numeric: true });       // localeCompare would create a collator for each comparison
function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return -1;
  if (b === null || b === undefined) return 1;
  if (typeof a === "number" && typeof b === "number") return a - b;
  return collator.compare(String(a), String(b));
}

export const State = ({ value, good = [], bad = [] }) =>
  html`<span class=${`state ${good.includes(value) ? "good" : bad.includes(value) ? "bad" : ""}`}>${value}</span>`;

export const Tiles = ({ values }) => html`<dl class="tiles">${values.filter(Boolean).map(([label, said, title]) => html`
  <div class="tile" title=${title}><dt>${label}</dt><dd>${said}</dd></div>`)}</dl>`;

export const Tabs = ({ tabs }) => html`<div class="tabs" role="navigation" aria-label="Parts of this page">${tabs.map(([label, href]) => html`
  <a href=${href} aria-current=${address.value.path === href ? "page" : undefined}>${label}</a>`)}</div>`;

export const Page = ({ title, children, actions, above }) => {
  useEffect(() => { document.title = `${title} · Ottla console`; }, [title]);
  return html`<header class="page">${above}<h1>${visible(title)}</h1><span class="push"></span>${actions}</header>${children}`;
};

export const Problem = ({ of }) => (of?.error ? html`<p class="note" role="status">${visible(of.message)}</p>` : null);

// Names the fields that a page shows as "–" because they are still being read.
const FIELDS = { records: "records", records_per_second: "rates", bytes: "sizes", lag: "lag" };
export const Reading = ({ of }) => (of?.pending?.length
  ? html`<p class="soft" role="status">Still being read: ${of.pending.map((one) => FIELDS[one]).join(", ")}.</p>` : null);

// -- Graphs of the history. --
const RANGES = [["15 min", "900"], ["1 h", "3600"], ["6 h", "21600"], ["1 d", "86400"], ["1 w", "604800"]];
export const Range = () => html`<label>Range <select value=${param("range", "3600")}
  onChange=${(event) => setParams({ range: event.target.value === "3600" ? "" : event.target.value })}>
  ${RANGES.map(([label, value]) => html`<option value=${value}>${label}</option>`)}</select></label>`;

export function Graph({ kind, name = "", measure, label, show, rate = false }) {
  const seconds = param("range", "3600");
  const query = new URLSearchParams({ kind, name, measure, seconds });
  const found = useLive(`/history?${query}`);
  const points = useMemo(() => pointsOf(found?.points ?? [], rate), [found, rate]);
  const last = points[1].at(-1);
  return html`<section class="graph" aria-label=${label}><p class="caption">${label}<b>${points[0].length ? show(last) : ""}</b></p>
    ${points[0].length > 1 ? html`<${Plot} points=${points} show=${show} label=${label} seconds=${Number(seconds)} />`
      : html`<div class="empty">${found ? "The graph appears once two points are recorded; there is one every 10 s." : "Loading …"}</div>`}</section>`;
}

function pointsOf(points, rate) {
  const times = points.map((point) => point[0]), values = points.map((point) => point[1]);
  if (!rate) return [times, values];
  return [times.slice(1), values.slice(1).map((value, place) => Math.max(0, (value - values[place]) / (times[place + 1] - times[place])))];
}

function clock(at, seconds) {
  const date = new Date(at * 1000), two = (value) => String(value).padStart(2, "0");
  return seconds > 86400 ? `${two(date.getMonth() + 1)}-${two(date.getDate())}` : `${two(date.getHours())}:${two(date.getMinutes())}`;
}

function Plot({ points, show, label, seconds }) {
  const box = useRef(null), plot = useRef(null);
  const theme = themeNow.value;
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = { stroke: color("--soft"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const size = () => ({ width: box.current.clientWidth, height: 136 });
    plot.current = new uPlot({
      ...size(), legend: { show: false }, padding: [6, 20, 0, 0], cursor: { y: false, drag: { x: false } },
      scales: { x: { range: () => [Date.now() / 1000 - seconds, Date.now() / 1000] }, y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, space: 60, size: 24, values: (_, ticks) => ticks.map((one) => clock(one, seconds)) }, { ...axis, size: 58, space: 28, values: (_, ticks) => ticks.map(show) }],
      series: [{}, { label, stroke: color("--accent"), width: 1.5, fill: color("--accent-back"), points: { show: false } }],
    }, points, box.current);
    const watcher = new ResizeObserver(() => plot.current?.setSize(size()));
    watcher.observe(box.current);
    return () => { watcher.disconnect(); plot.current.destroy(); plot.current = null; };
  }, [theme, seconds, label]);
  useEffect(() => { plot.current?.setData(points); }, [points]);
  return html`<div class="plot" ref=${box} role="img" aria-label=${`${label}: ${show(points[1].at(-1))} now, at most ${show(Math.max(...points[1]))}`}></div>`;
}

// -- Themes. --
const system = matchMedia("(prefers-color-scheme: dark)");
const remembered = (() => { try { return localStorage.getItem("theme"); } catch { return null; } })();
export const themeChosen = signal(remembered ?? "system");
export const themeNow = signal("light");
export function useTheme(choice) {
  themeChosen.value = choice;
  try { localStorage.setItem("theme", choice); } catch { /* not kept */ }
  applyTheme();
}
export function applyTheme() {
  const now = themeChosen.value === "system" ? (system.matches ? "dark" : "light") : themeChosen.value;
  document.documentElement.dataset.theme = now;
  themeNow.value = now;
}
system.addEventListener("change", applyTheme);

// -- Dialogs. `confirm` is a name that the user has to type. --
export const dialog = signal(null);
export const showDialog = (content) => { dialog.value = content; };
export const closeDialog = () => { dialog.value = null; };

export function Dialogs() {
  const box = useRef(null), shown = useRef(null), content = dialog.value;
  useEffect(() => {
    if (content) shown.current = content;
    if (content && !box.current.open) box.current.showModal();
    if (!content && box.current.open) box.current.close();
  }, [content]);
  // The browser reports with a delay that a dialog was closed. By then, `dialog` may already have the next dialog, which must stay.
  const closed = () => { if (!box.current.open && dialog.value === shown.current) closeDialog(); };
  return html`<dialog ref=${box} aria-label=${content?.title ?? "Dialog"} onClose=${closed}>
    ${content && html`<${Action} key=${content.title} ...${content} />`}</dialog>`;
}

// A form that makes one request: fields [{ name, label, kind, value, choices, help }], send(values) returns the message to show.
// Without `send`, the dialog can only be closed.
function Action({ title, text, fields = [], confirm, verb = "Do it", danger = false, send, preview, body }) {
  const [values, setValues] = useState(Object.fromEntries(fields.map((one) => [one.name, one.value ?? ""])));
  const [typed, setTyped] = useState("");
  const [state, setState] = useState({});
  const form = useRef(null);
  useEffect(() => { if (state.preview) form.current.querySelector("[name=confirm], [type=submit]").focus(); }, [state.preview]);
  const set = (name, value) => { setValues((old) => ({ ...old, [name]: value })); if (preview) setState({}); };
  const act = async (work, done) => {
    setState((old) => ({ ...old, busy: true, error: null }));
    try { done(await work(values)); } catch (failed) { setState((old) => ({ ...old, busy: false, error: failed.message })); }
  };
  const ready = !confirm || typed === confirm;
  const submit = (event) => {
    event.preventDefault();
    if (state.busy) return;
    if (!send) closeDialog();
    else if (preview && !state.preview) act(preview, (found) => setState({ preview: found }));
    else if (ready) act(send, (said) => { closeDialog(); say(said ?? "Done."); refresh(); });
  };
  const asking = preview && !state.preview;
  return html`<form ref=${form} onSubmit=${submit}><h2>${title}</h2>${text && html`<p class="soft">${text}</p>`}
    ${fields.map((one) => html`<${Field} field=${one} value=${values[one.name]} set=${(value) => set(one.name, value)} />`)}
    ${body}
    ${state.preview}
    ${confirm && !asking && html`<label class="block">To confirm, type <b>${visible(confirm)}</b>
      <input name="confirm" autocomplete="off" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>`}
    ${state.error && html`<p class="note bad" role="alert">${visible(state.error)}</p>`}
    <div class="bar">${send && html`<button type="button" onClick=${closeDialog}>Cancel</button>`}
      <button type="submit" class=${danger && !asking ? "danger" : "main"} disabled=${!asking && !ready} aria-busy=${state.busy ? "true" : undefined}>${asking ? "Show what will change" : verb}</button></div></form>`;
}

function Field({ field, value, set }) {
  const change = (event) => set(field.kind === "check" ? event.target.checked : event.target.value);
  if (field.choices) {
    return html`<label class="block">${field.label}<select name=${field.name} value=${value} onChange=${change}>
      ${field.choices.map((one) => html`<option value=${one}>${one}</option>`)}</select></label>`;
  }
  if (field.kind === "text") {
    return html`<label class="block">${field.label}<textarea name=${field.name} rows=${field.rows ?? 6} class="mono" value=${value} onInput=${change}></textarea></label>`;
  }
  if (field.kind === "file") {
    return html`<label class="block">${field.label}<input type="file" name=${field.name}
      onChange=${async (event) => set(await (event.target.files[0]?.text() ?? ""))} /></label>`;
  }
  return html`<label class="block">${field.label}<input name=${field.name} type=${field.kind ?? "text"} value=${value} autocomplete="off"
    placeholder=${field.help ?? ""} onInput=${change} /></label>`;
}

export function say(text, bad = false) {
  toast.value = { text, bad };
  setTimeout(() => { if (toast.value?.text === text) toast.value = null; }, 6000);
}

export const Toast = () => html`<div role="status" aria-live="polite">${toast.value && html`
  <p class=${`note toast ${toast.value.bad ? "bad" : "good"}`}>${visible(toast.value.text)}</p>`}</div>`;

// A button that changes the cluster; a read-only console does not show it.
export const Act = ({ label, danger, plain, ...rest }) => (session.value?.changes_allowed
  ? html`<button class=${`${danger ? "danger" : ""} ${plain ? "plain" : ""}`} onClick=${() => showDialog({ danger, ...rest })}>${label}</button>` : null);

export async function copy(text) {
  try { await navigator.clipboard.writeText(text); say("Copied."); } catch { say("The browser does not allow copying.", true); }
}

export function save(name, text, kind) {
  const url = URL.createObjectURL(new Blob([text], { type: kind }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const quoted = (value) => {
  const text = value === null || value === undefined ? "" : typeof value === "object" ? JSON.stringify(value) : String(value);
  return /[",\r\n]/.test(text) || /^[=+\-@\t]/.test(text) ? `"${(/^[=+@\t]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"` : text;
};
export const csv = (rows, columns) => [columns.join(","), ...rows.map((row) => columns.map((name) => quoted(row[name])).join(","))].join("\r\n") + "\r\n";

// For a list that is checked in parts: how much is left.
export const Left = ({ of, what }) => (of?.left > 0 ? html`<p class="note" role="status">${of.of - of.left} of ${counted(of.of, what)} checked so far; the others follow.</p>` : null);

export const Export = ({ rows, name }) => (rows?.length ? html`
  <button class="plain push" onClick=${() => save(`${name}.csv`, csv(rows, Object.keys(rows[0])), "text/csv")}>CSV</button>
  <button class="plain" onClick=${() => save(`${name}.jsonl`, rows.map((row) => JSON.stringify(row)).join("\n") + "\n", "application/jsonl")}>JSON Lines</button>` : null);

export { Failed, ask, go };
