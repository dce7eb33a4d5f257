// Records of a topic: searched on the server within a budget that the page shows, or live.
import { html, address, bytes, count, counted, param, part, session, setParams, time, useEffect, useRef, useState, visible, ask } from "./base.js";
import { Act, Table, copy, save, csv, say } from "./parts.js";

const FILTERS = [["text", "Text", "in key or value"], ["regex", "Regex", "RE2"], ["json", "JSON path", "$.user.id == 42"], ["key", "Key", "the whole key"], ["header", "Header", "name or name=value"]];
const ASKED = ["from", "partition", "limit", "max_records", "max_bytes", "max_seconds", "isolation", ...FILTERS.map((one) => one[0])];
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

const line = (data) => (data ? visible(data.text.slice(0, 300)) : html`<span class="soft">null</span>`);

function queryOf() {
  const query = new URLSearchParams();
  for (const name of ASKED) if (param(name)) query.set(name, param(name));
  return query;
}

export function Records({ name, partitions }) {
  const base = `/topics/${part(name)}`;
  const [found, setFound] = useState(null), [busy, setBusy] = useState(null);
  const live = param("live") === "1", chosen = param("record");
  const asked = queryOf().toString();
  useEffect(() => {
    if (live) return undefined;
    const abort = new AbortController();
    setBusy(abort);
    ask(`${base}/records?${asked}`, "GET", undefined, abort.signal).then(setFound, (failed) => {
      if (failed.name !== "AbortError") setFound({ message: failed.message, error: true });
    }).finally(() => setBusy((now) => (now === abort ? null : now)));
    return () => abort.abort();
  }, [asked, live]);
  useTail(live, `${base}/live?${asked}`, setFound);
  const rows = found?.rows ?? (found?.error ? [] : undefined);
  const record = rows?.find((row) => row.id === chosen);
  return html`<${Query} partitions=${partitions} busy=${busy} live=${live} />
    ${found?.error && html`<p class="note bad" role="alert">${visible(found.message)}</p>`}
    <div class="bar"><span class="soft" role="status">${status(found, busy, live)}</span>
      ${found?.ended && found.ended !== "end" && param("from", "newest") !== "newest" && html`<button onClick=${() => setParams({ from: found.next }, false)}>Continue from there</button>`}
      <span class="push"></span>
      <${Send} name=${name} base=${base} label="Produce" />
      ${rows?.length > 0 && html`<button onClick=${() => save(`${name}.jsonl`, rows.map((row) => JSON.stringify(flat(name, row))).join("\n") + "\n", "application/jsonl")}>JSON Lines</button>
        <button onClick=${() => save(`${name}.csv`, csv(rows.map((row) => flat(name, row)), ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]), "text/csv")}>CSV</button>`}</div>
    <div class=${record ? "split" : ""}><div><${Table} rows=${rows} columns=${COLUMNS} id="id" label="Records" search=${false} sort="-timestamp" chosen=${chosen}
      open=${(row) => setParams({ record: row.id === chosen ? "" : row.id })} /></div>
      ${record && html`<${Detail} row=${record} name=${name} base=${base} />`}</div>`;
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

function status(found, busy, live) {
  if (live) return `Live: looked at ${counted(found?.live?.scanned ?? 0, "new record")}, found ${count(found?.live?.found ?? 0)}; this page keeps the newest ${count(LIVE_ROWS)}`;
  if (busy) return "Searching …";
  if (!found?.scanned) return "";
  const { scanned, budget } = found;
  return `${counted(found.rows.length, "record")}; ${ENDED[found.ended] ?? found.ended}. Looked at ${count(scanned.records)} of at most ${counted(budget.records, "record")}, `
    + `${bytes(scanned.bytes)} of ${bytes(budget.bytes)}, ${scanned.seconds} of ${budget.seconds} s.`;
}

function Query({ partitions, busy, live }) {
  // What is typed and not searched for yet. Records that arrive meanwhile draw the form again, which would put the old values back.
  const typed = useRef({}), path = address.value.path;
  if (typed.current.path !== path) typed.current = { path };
  const value = (name, known = param(name)) => typed.current[name] ?? known;
  const start = param("from", "newest");
  const kind = start.split(":")[0];
  const choose = (event) => {
    const now = { time: `time:${Date.now() - 3600000}`, offset: "offset:0" }[event.target.value] ?? event.target.value;
    setParams({ from: now === "newest" ? "" : now, record: "" }, false);
  };
  const local = (ms) => { const at = new Date(ms); return new Date(ms - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19); };
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    typed.current = { path };
    const values = Object.fromEntries(["limit", "max_records", "max_seconds", "partition", ...FILTERS.map((one) => one[0])].map((one) => [one, form.get(one) ?? ""]));
    const mega = form.get("max_mib");
    if (form.get("offset")) values.from = `offset:${form.get("offset")}`;
    if (form.get("time")) values.from = `time:${new Date(form.get("time")).getTime()}`;
    setParams({ ...values, max_bytes: mega ? Number(mega) * 1048576 : "", record: "" }, false);
  };
  return html`<form onSubmit=${submit} onInput=${({ target }) => { if (target.name) typed.current[target.name] = target.value; }} key=${path}><div class="bar">
      <label>From <select value=${kind} onChange=${choose} aria-label="Where to begin">
        <option value="newest">newest</option><option value="oldest">oldest</option><option value="offset">offset</option><option value="time">time</option>
        ${kind === "at" && html`<option value="at">where the search ended</option>`}</select></label>
      ${kind === "offset" && html`<input name="offset" type="number" min="0" aria-label="Offset" value=${value("offset", start.slice(7))} />`}
      ${kind === "time" && html`<input name="time" type="datetime-local" step="1" aria-label="Time" value=${value("time", local(Number(start.slice(5)) || Date.now()))} />`}
      <label>Partitions <input name="partition" size="7" placeholder=${`0–${partitions - 1}`} pattern="[0-9,]*" value=${value("partition")} /></label>
      ${FILTERS.map(([id, label, help]) => html`<label>${label} <input name=${id} size="12" class=${id === "text" ? "find" : ""} placeholder=${help} value=${value(id)} /></label>`)}
    </div><div class="bar">
      <label>Show <input name="limit" type="number" min="1" max="5000" placeholder="100" value=${value("limit")} /></label>
      <span class="soft">Budget:</span>
      <label><input name="max_records" type="number" min="1" placeholder="100000" value=${value("max_records")} /> records</label>
      <label><input name="max_mib" type="number" min="1" placeholder="64" value=${value("max_mib", param("max_bytes") ? Number(param("max_bytes")) / 1048576 : "")} /> MiB</label>
      <label><input name="max_seconds" type="number" min="1" max="300" placeholder="10" value=${value("max_seconds")} /> seconds</label>
      <label><input type="checkbox" checked=${param("isolation") === "read_committed"} onChange=${(event) => setParams({ isolation: event.target.checked ? "read_committed" : "" }, false)} /> committed only</label>
      <label><input type="checkbox" checked=${live} onChange=${(event) => setParams({ live: event.target.checked ? "1" : "", record: "" }, false)} /> live</label>
      ${busy ? html`<button type="button" onClick=${() => busy.abort()}>Stop</button>` : html`<button class="main" type="submit">Search</button>`}</div></form>`;
}

const textOf = (data) => (data === null ? null : data.text);
const flat = (topic, row) => ({ topic, partition: row.partition, offset: row.offset, timestamp: row.timestamp, key: textOf(row.key), value: textOf(row.value),
  headers: row.headers.map((one) => [one.name, textOf(one.value)]) });

function pretty(data) {
  if (data.cut || !["json", "avro", "protobuf"].includes(data.kind)) return data.text;
  if (/\d{16}/.test(data.text)) return data.text;       // JavaScript would round such a number
  try { return JSON.stringify(JSON.parse(data.text), null, 2); } catch { return data.text; }
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
    { name: "key", label: "Key; empty for null", value: row?.key?.text ?? "" }, { name: "value", label: "Value", kind: "text", value: row?.value?.text ?? "" },
    { name: "headers", label: "Headers, one NAME: VALUE per line", kind: "text", rows: 2, value: row?.headers.map((one) => `${one.name}: ${one.value?.text ?? ""}`).join("\n") ?? "" },
    { name: "partition", label: "Partition; empty: by key", kind: "number", value: "" }]}
    send=${async (values) => {
      const headers = values.headers.split("\n").filter(Boolean).map((text) => ({ name: text.split(":")[0].trim(), value: text.slice(text.indexOf(":") + 1).trim() }));
      const done = await ask(`${base}/records`, "POST", { key: values.key === "" ? null : values.key, value: values.value, headers,
        partition: values.partition === "" ? -1 : Number(values.partition) });
      return `Written to partition ${done.partition} at offset ${done.offset}.`;
    }} />`;
};
