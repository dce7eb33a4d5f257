// Records of a topic: searched on the server within a budget that the page shows, or live.
import { Failed, html, address, bytes, count, counted, param, part, session, setParams, signal, time, useEffect, useMemo, useRef, useState, visible, ask } from "./base.js";
import { Act, Table, copy, save, csv, say } from "./parts.js";

const FILTERS = [["text", "Text", "in key or value"], ["regex", "Regex", "RE2"], ["json", "JSON path", "$.user.id == 42"], ["key", "Key", "the whole key"], ["header", "Header", "name or name=value"]];
const ASKED = ["from", "until", "partition", "limit", "max_records", "max_bytes", "max_seconds", "isolation", ...FILTERS.map((one) => one[0])];
const ENDED = {
  limit: "found the number of records you asked for", end: "read to the end", records: "the budget of records is used up", bytes: "the budget of bytes is used up",
  seconds: "the budget of seconds is used up", answer: "the answer has reached its largest size",
};
const LIVE_ROWS = 2000;
const COLUMNS = [
  { key: "timestamp", label: "Time", width: "196px", mono: true, show: (row) => time(row.timestamp), title: (row) => row.timestamp_type ?? "" },
  { key: "partition", label: "Part.", width: "56px", number: true }, { key: "offset", label: "Offset", width: "96px", number: true, show: (row) => count(row.offset) },
  { key: "key", label: "Key", width: "18%", mono: true, sort: false, show: (row) => line(row.key), title: () => "" },
  { key: "value", label: "Value", mono: true, least: 240, sort: false, show: (row) => line(row.value), title: () => "" },
  { key: "size", label: "Size", width: "76px", number: true, show: (row) => bytes(row.value?.bytes ?? 0), title: (row) => counted(row.value?.bytes ?? 0, "byte") },
];

// The answer of a search. While the search runs, `tell` gets what has been read so far.
async function askRecords(path, signal, tell) {
  const answer = await fetch(`/api/v1${path}`, { signal, headers: { Accept: "text/event-stream" } }).catch((lost) => { if (lost.name === "AbortError") throw lost; });
  if (!answer || answer.status === 401) return ask(path, "GET", undefined, signal);        // `ask` opens the login, or reports that nothing answers
  if (!answer.ok) throw new Failed(answer.status, await answer.json());
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = "";;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("The search has ended without an answer.");
    text += value;
    for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
      const [, name, data] = text.slice(0, end).match(/^event: (.*)\ndata: (.*)$/s), said = JSON.parse(data);
      text = text.slice(end + 2);
      if (name === "result") return said;
      if (name === "failed") throw new Error(said.message);
      tell(said);
    }
  }
}

const line = (data) => (data ? visible(data.text.slice(0, 300)) : html`<span class="soft">null</span>`);

function queryOf() {
  const query = new URLSearchParams();
  for (const name of ASKED) if (param(name)) query.set(name, param(name));
  return query;
}

export function Records({ name, partitions }) {
  const base = `/topics/${part(name)}`;
  const [found, setFound] = useState(null), [busy, setBusy] = useState(null), [round, setRound] = useState(0);
  const live = param("live") === "1", chosen = param("record");
  const asked = queryOf().toString();
  useEffect(() => {
    if (live) return undefined;
    const search = { abort: new AbortController(), began: Date.now() };
    setBusy(search);
    askRecords(`${base}/records?${asked}`, search.abort.signal, (told) => { search.told = told; }).then(setFound, (failed) => {
      if (failed.name !== "AbortError") setFound({ message: failed.message, error: true });
      else if (search.stopped) setFound({ rows: [], stopped: true });       // the previous rows belong to another search
    }).finally(() => setBusy((now) => (now === search ? null : now)));
    return () => search.abort.abort();
  }, [asked, live, round]);
  useTail(live, `${base}/live?${asked}`, setFound);
  const rows = found?.rows ?? (found?.error ? [] : undefined);
  const record = rows?.find((row) => row.id === chosen);
  const columns = useMemo(() => columnsFor(rows ?? [], narrow.value), [rows, narrow.value]);
  const searching = busy && !live;
  return html`<${Query} partitions=${partitions} busy=${searching ? busy : null} live=${live} again=${() => setRound((now) => now + 1)} />
    ${found?.error && !searching && html`<p class="note bad" role="alert">${visible(found.message)}</p>`}
    <div class="bar">${searching ? html`<${Searching} search=${busy} />` : html`<span class="soft" role="status">${status(found, live)}</span>`}
      ${!searching && found?.ended && found.ended !== "end" && param("from", "newest") !== "newest" && html`<button onClick=${() => setParams({ from: found.next }, false)}>Continue from there</button>`}
      <span class="push"></span>
      <${Send} name=${name} base=${base} label="Produce" />
      ${!searching && rows?.length > 0 && html`<${Save} name=${name} rows=${rows} />`}</div>
    <div class=${`${record ? "split" : ""} ${searching ? "stale" : ""}`} aria-busy=${searching ? "true" : "false"}><div><${Table} rows=${rows} columns=${columns} id="id" label="Records" search=${false} sort="-timestamp" chosen=${chosen}
      open=${(row) => setParams({ record: row.id === chosen ? "" : row.id })} /></div>
      ${record && html`<${Detail} row=${record} name=${name} base=${base} />`}</div>`;
}

const NARROW = matchMedia("(max-width: 760px)"), narrow = signal(NARROW.matches);
NARROW.addEventListener("change", () => { narrow.value = NARROW.matches; });

// The key's column is as wide as the longest key, so that values get the rest. In a narrow window, the time is short, and key and value are next to it.
function columnsFor(rows, slim) {
  const longest = Math.max(8, ...rows.map((row) => Math.min(row.key?.text.length ?? 4, slim ? 12 : 30)));
  const columns = COLUMNS.map((column) => (column.key === "key" ? { ...column, width: `${Math.round(longest * 7.4) + 20}px` } : column));
  if (!slim) return columns;
  const [at, partition, offset, key, value, size] = columns;
  const short = { ...at, width: "124px", show: (row) => time(row.timestamp).replace(/^\d+-|\.\d+$/g, ""), title: (row) => `${time(row.timestamp)} ${at.title(row)}` };
  return [short, key, value, partition, offset, size];
}

function Searching({ search }) {
  const [now, setNow] = useState(search.began);
  useEffect(() => {
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 500);
    return () => clearInterval(timer);
  }, [search]);
  const { records = 0, bytes: read = 0 } = search.told ?? {};
  return html`<span class="soft"><span role="status">Searching …</span> ${records > 0 && `Looked at ${counted(records, "record")}, ${bytes(read)}; `}${
    Math.max(0, Math.round((now - search.began) / 1000))} of at most ${param("max_seconds", "10")} s</span>`;
}

function Save({ name, rows }) {
  const lines = (made) => rows.map(made).join("\n") + "\n";
  return html`<button title="One record a line: key and value as text, the time in milliseconds"
      onClick=${() => save(`${name}.jsonl`, lines((row) => JSON.stringify(flat(name, row))), "application/jsonl")}>JSON Lines</button>
    <button title="One record a line, for people to read: JSON values as JSON, the time as a date"
      onClick=${() => save(`${name}-readable.jsonl`, lines((row) => readable(name, row)), "application/jsonl")}>Readable JSON</button>
    <button onClick=${() => save(`${name}.csv`, csv(rows.map((row) => flat(name, row)), ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]), "text/csv")}>CSV</button>`;
}

function useTail(live, path, setFound) {
  const rows = useRef([]);
  useEffect(() => {
    if (!live) return undefined;
    rows.current = [];
    setFound({ rows: [], live: { scanned: 0, found: 0 } });
    const source = new EventSource(`/api/v1${path}`);
    source.addEventListener("records", (event) => {
      const news = JSON.parse(event.data);
      rows.current = [...news.rows.reverse(), ...rows.current].slice(0, LIVE_ROWS);
      setFound({ rows: rows.current, live: news });
    });
    source.addEventListener("failed", (event) => { setFound({ error: true, message: JSON.parse(event.data).message }); source.close(); });
    source.onerror = () => { if (source.readyState === 2) setFound({ error: true, message: "The live view has ended; switch it on again." }); };
    return () => source.close();
  }, [live, path]);
}

function status(found, live) {
  if (live) return `Live: looked at ${counted(found?.live?.scanned ?? 0, "new record")}, found ${count(found?.live?.found ?? 0)}; this page keeps the newest ${count(LIVE_ROWS)}`;
  if (found?.stopped) return "Stopped.";
  if (!found?.scanned) return "";
  const { scanned, budget } = found;
  return `${counted(found.rows.length, "record")}; ${ENDED[found.ended] ?? found.ended}. Looked at ${count(scanned.records)} of at most ${counted(budget.records, "record")}, `
    + `${bytes(scanned.bytes)} of ${bytes(budget.bytes)}, ${scanned.seconds} of ${budget.seconds} s.`
    + (scanned.outside ? ` ${counted(scanned.outside, "record is", "records are")} outside the chosen time.` : "");
}

const local = (ms) => { const at = new Date(ms); return Number.isNaN(at.getTime()) ? "" : new Date(ms - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19); };

// The parameters `from` and `until` in the address for each choice of "From".
function rangeOf(kind) {
  const day = (ago) => { const at = new Date(); return new Date(at.getFullYear(), at.getMonth(), at.getDate() - ago).getTime(); };
  switch (kind) {
    case "offset": return { from: "offset:0", until: "" };
    case "time": case "hour": return { from: `time:${Date.now() - 3600000}`, until: "" };
    case "today": return { from: `time:${day(0)}`, until: "" };
    case "yesterday": return { from: `time:${day(1)}`, until: day(0) };
    default: return { from: kind === "newest" ? "" : kind, until: "" };
  }
}
const FROM = [["newest", "newest"], ["oldest", "oldest"], ["offset", "offset"], ["time", "time"], ["hour", "the last hour"], ["today", "today"], ["yesterday", "yesterday"]];
const BUDGET = [["max_records", "records", 100000], ["max_mib", "MiB", 64], ["max_seconds", "seconds", 10]];

function Query({ partitions, busy, live, again }) {
  // Values that are typed but not searched for yet. Without them, each record that arrives would draw the form with the old values again.
  const typed = useRef({}), path = address.value.path, form = useRef(null);
  const [changed, setChanged] = useState(false);
  if (typed.current.path !== path) typed.current = { path };
  const known = (name) => (name === "max_mib" ? (param("max_bytes") ? String(Number(param("max_bytes")) / 1048576) : "") : param(name));
  const value = (name, now = known(name)) => typed.current[name] ?? now;
  const start = param("from", "newest"), kind = start.split(":")[0], until = param("until");
  // Searches with the values of all fields, so that the rows match the fields above them.
  const search = (others = {}) => {
    const given = new FormData(form.current), get = (name) => given.get(name) ?? "";
    const values = Object.fromEntries(["limit", "max_records", "max_seconds", "partition", ...FILTERS.map((one) => one[0])].map((one) => [one, get(one)]));
    if (get("offset")) values.from = `offset:${get("offset")}`;
    if (get("time") && get("time") !== local(Number(start.slice(5)))) values.from = `time:${new Date(get("time")).getTime()}`;
    if (given.has("until")) values.until = get("until") === "" ? "" : get("until") === local(Number(until)) ? until : new Date(get("until")).getTime();
    typed.current = { path };
    setChanged(false);
    setParams({ ...values, max_bytes: get("max_mib") ? Number(get("max_mib")) * 1048576 : "", record: "", ...others }, false);
    again();
  };
  const noted = ({ target }) => {
    if (!target.name) return;
    typed.current[target.name] = target.value;
    setChanged(true);
  };
  return html`<form ref=${form} onSubmit=${(event) => { event.preventDefault(); search(); }} onInput=${noted} key=${path}><div class="bar">
      <label>From <select value=${kind} onChange=${(event) => search(rangeOf(event.target.value))} aria-label="Where to begin">
        ${FROM.map(([id, label]) => html`<option value=${id}>${label}</option>`)}
        ${kind === "at" && html`<option value="at">where the search ended</option>`}</select></label>
      ${kind === "offset" && html`<input name="offset" type="number" min="0" aria-label="Offset" value=${value("offset", start.slice(7))} />`}
      ${kind === "time" && html`<input name="time" type="datetime-local" step="1" aria-label="Time" value=${value("time", local(Number(start.slice(5)) || Date.now()))} />`}
      ${(kind === "time" || until) && html`<label>until <input name="until" type="datetime-local" step="1" title="Only records before this time" value=${value("until", until ? local(Number(until)) : "")} /></label>`}
      <label>Partitions <input name="partition" size="7" placeholder=${`0–${partitions - 1}`} pattern="[0-9,]*" value=${value("partition")} /></label>
      ${FILTERS.map(([id, label, help]) => html`<label>${label} <input name=${id} size="12" class=${id === "text" ? "find" : ""} placeholder=${help} value=${value(id)} /></label>`)}
    </div><div class="bar">
      <label>Show <input name="limit" type="number" min="1" max="5000" placeholder="100" value=${value("limit")} /></label>
      <label><input type="checkbox" checked=${param("isolation") === "read_committed"} onChange=${(event) => search({ isolation: event.target.checked ? "read_committed" : "" })} /> committed only</label>
      <label><input type="checkbox" checked=${live} onChange=${(event) => search({ live: event.target.checked ? "1" : "" })} /> live</label>
      <details><summary>Budget: ${BUDGET.map(([name, label, usual]) => `${count(Number(known(name) || usual))} ${label}`).join(", ")}</summary><div class="bar">
        ${BUDGET.map(([name, label, usual]) => html`<label><input name=${name} type="number" min="1" max=${name === "max_seconds" ? 300 : undefined} placeholder=${usual} value=${value(name)} /> ${label}</label>`)}</div></details>
      <button class="main" type="submit">Search</button>
      ${busy && html`<button type="button" onClick=${() => { busy.stopped = true; busy.abort.abort(); }}>Stop</button>`}
      ${changed && html`<span class="soft" role="status">Changed: press Enter to search.</span>`}</div></form>`;
}

const textOf = (data) => (data === null ? null : data.text);
const flat = (topic, row) => ({ topic, partition: row.partition, offset: row.offset, timestamp: row.timestamp, key: textOf(row.key), value: textOf(row.value),
  headers: row.headers.map((one) => [one.name, textOf(one.value)]) });

function pretty(data) {
  if (data.cut || !["json", "avro", "protobuf"].includes(data.kind)) return data.text;
  if (/\d{16}/.test(data.text)) return data.text;       // JavaScript would round such a number
  try { return JSON.stringify(JSON.parse(data.text), null, 2); } catch { return data.text; }
}

const json = (text) => { try { JSON.parse(text); return true; } catch { return false; } };

// A key or value as JSON: text that is JSON stays as it is, any other text becomes a JSON string. The text is not parsed and written anew, since JavaScript would round large numbers.
function documentOf(data) {
  if (!data) return "null";
  const whole = !data.cut && ["json", "avro", "protobuf"].includes(data.kind) && json(data.text);
  return whole ? data.text.replace(/[\r\n]+/g, " ") : JSON.stringify(data.text);
}

// A record as one line of JSON that people can read.
function readable(topic, row) {
  const known = row.timestamp !== null && row.timestamp >= 0 && !Number.isNaN(new Date(row.timestamp).getTime());
  const headers = row.headers.map((one) => `{"name": ${JSON.stringify(one.name)}, "value": ${JSON.stringify(textOf(one.value))}}`);
  const cut = row.key?.cut || row.value?.cut || row.header_count > row.headers.length ? `, "incomplete": true` : "";
  return `{"topic": ${JSON.stringify(topic)}, "partition": ${row.partition}, "offset": ${row.offset}, "time": ${known ? JSON.stringify(new Date(row.timestamp).toISOString()) : "null"}, `
    + `"key": ${documentOf(row.key)}, "value": ${documentOf(row.value)}, "headers": [${headers.join(", ")}]${cut}}`;
}

function Part({ label, data, href }) {
  if (!data) return html`<h2>${label}</h2><p class="soft">null</p>`;
  return html`<h2>${label} <span class="soft">${data.kind}${data.schema === undefined ? "" : ` of schema ${data.schema}`}, ${bytes(data.bytes)}${data.cut ? ", only the beginning" : ""}</span>
      <button class="plain" onClick=${() => copy(data.text)}>copy</button> <a href=${href} download>download</a></h2>
    ${data.problem && html`<p class="note">${visible(data.problem)}</p>`}
    <pre tabindex="0">${visible(pretty(data), true)}</pre>`;
}

function Detail({ row, name, base }) {
  const at = `/api/v1${base}/partitions/${row.partition}/records/${row.offset}`;
  return html`<section class="record" aria-label="Record"><div class="bar"><b>${visible(name)}-${row.partition} @ ${count(row.offset)}</b>
      <span class="push"></span><${Send} name=${name} base=${base} label="Send again" row=${row} />
      <button title="The whole record: JSON values as JSON, the time as a date" onClick=${() => copy(readable(name, row))}>Copy as JSON</button>
      <button onClick=${() => copy(location.href)}>Copy link</button><button aria-label="Close" onClick=${() => setParams({ record: "" })}>✕</button></div>
    <div class="soft">${time(row.timestamp)} ${row.timestamp_type ?? ""}</div>
    <${Part} label="Key" data=${row.key} href=${`${at}?part=key`} /><${Part} label="Value" data=${row.value} href=${at} />
    <h2>Headers <span class="soft">${count(row.header_count)}${row.header_count > row.headers.length ? `, the first ${row.headers.length}` : ""}</span></h2>
    ${row.headers.length > 0 && html`<pre tabindex="0">${row.headers.map((one) => `${visible(one.name)}: ${one.value ? visible(one.value.text) : "null"}`).join("\n")}</pre>`}</section>`;
}

const Send = ({ name, base, label, row }) => {
  const whole = !row || [row.key, row.value].every((data) => !data || (!["hex", "avro", "protobuf"].includes(data.kind) && !data.cut));
  if (!whole || !session.value?.changes_allowed) return null;
  return html`<${Act} label=${label} title=${`Produce into ${name}`} verb="Send" fields=${[
    { name: "key", label: row?.key?.text === "" ? "Key" : "Key; empty for null", value: row?.key?.text ?? "" }, { name: "value", label: row && !row.value ? "Value; empty for null" : "Value", kind: "text", value: row?.value?.text ?? "" },
    { name: "headers", label: "Headers, one NAME: VALUE per line", kind: "text", rows: 2, value: row?.headers.map((one) => `${one.name}: ${one.value?.text ?? ""}`).join("\n") ?? "" },
    { name: "partition", label: "Partition; empty: by key", kind: "number", value: "" }]}
    send=${async (values) => {
      const headers = values.headers.split("\n").filter(Boolean).map((text) => ({ name: text.split(":")[0].trim(), value: text.slice(text.indexOf(":") + 1).trim() }));
      const done = await ask(`${base}/records`, "POST", { key: values.key === "" && row?.key?.text !== "" ? null : values.key,
        value: values.value === "" && row && !row.value ? null : values.value, headers,
        partition: values.partition === "" ? -1 : Number(values.partition) });
      return `Written to partition ${done.partition} at offset ${done.offset}.`;
    }} />`;
};
