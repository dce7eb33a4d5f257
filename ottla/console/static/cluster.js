// Overview and brokers.
import { html, bytes, count, counted, duration, param, part, setParams, short, time, useLive, useMemo, visible, ask } from "./base.js";
import { Act, Export, Graph, Page, Problem, Range, State, Table, Tabs, Tiles } from "./parts.js";

const BROKERS = [
  { key: "broker", label: "Broker", width: "74px", href: (row) => `/brokers/${row.broker}` },
  { key: "address", label: "Address", least: 136 },
  { key: "state", label: "State", width: "130px", show: (row) => html`<${State} value=${row.state} good=${["up"]} bad=${["fenced"]} /> ${row.controller ? html`<span class="soft">controller</span>` : ""}` },
  { key: "uptime_seconds", label: "Uptime", width: "98px", number: true, show: (row) => duration(row.uptime_seconds) },
  { key: "leaders", label: "Leaders", width: "76px", number: true, show: (row) => count(row.leaders) },
  { key: "replicas", label: "Replicas", width: "80px", number: true, show: (row) => count(row.replicas) },
  { key: "connections", label: "Connections", width: "104px", number: true, show: (row) => count(row.connections) },
  { key: "bytes", label: "Size", width: "82px", number: true, show: (row) => bytes(row.bytes) },
  { key: "free_bytes", label: "Disk free", width: "90px", number: true, show: (row) => bytes(row.free_bytes) },
  { key: "rack", label: "Rack", width: "64px" },
  { key: "version", label: "Version", width: "72px" },
];

const LABELS = {
  topics: "Topics", partitions: "Partitions", records: "Records", bytes: "Size", records_per_second: "Records/s", groups: "Groups", lag: "Lag",
};
const target = (what) => {
  const [kind, ...rest] = what.split("/");
  if (kind === "transaction") return `/transactions?q=${encodeURIComponent(rest.join("/"))}`;
  return `/${kind}s/${part(rest.join("/"))}`;
};

export function Overview() {
  const found = useLive("/overview");
  const all = found?.error ? {} : found ?? {};
  const waits = (key) => !found || found.pending?.includes(key);
  const told = (key, show, title) => [LABELS[key], waits(key) ? "…" : show(all[key]), waits(key) ? "still being read" : title?.(all[key])];
  return html`<${Page} title="Overview" above=${null} actions=${html`<${Range} />`}>
    <${Problem} of=${found} />
    <${Tiles} values=${[
      ["Brokers", all.brokers ? `${all.brokers.filter((one) => one.state === "up").length} of ${all.brokers.length}` : "–"],
      told("topics", count, () => `and ${counted(all.internal_topics, "internal one")}`), told("partitions", short, () => `and ${counted(all.internal_partitions, "internal one")}`),
      told("records", short, count), told("bytes", bytes, () => "one replica of each partition"),
      told("records_per_second", short), told("groups", count), told("lag", short, count),
    ]} />
    <h2>What needs attention</h2>
    ${all.problems?.length > 0 && html`<ul class="problems">${all.problems.map((one) => html`<li key=${one.id}>
      <span class=${`state ${{ critical: "bad", warning: "warn" }[one.severity] ?? ""}`}>${one.severity}</span> ${visible(one.why)}${" "}
      ${one.since_ms && html`<span class="soft">Since ${time(one.since_ms).slice(0, -4)}.</span> `}<a href=${target(one.what)}>show</a></li>`)}</ul>`}
    ${waits("problems") ? html`<p class="soft">Loading …</p>`
      : all.problems?.length === 0 && html`<p class="soft">Nothing: every partition has a leader, and all replicas are in sync.</p>`}
    ${all.authorizer === false && html`<p class="soft">The brokers have no authorizer: every client that can connect may do everything.</p>`}
    ${(all.notes ?? []).map((one) => html`<p class="note">${visible(one)}</p>`)}
    <h2>Traffic</h2>
    <div class="graphs">
      <${Graph} kind="total" measure="records_per_second" label="Records per second" show=${short} />
      <${Graph} kind="total" measure="lag" label="Lag of all groups" show=${short} />
      <${Graph} kind="total" measure="bytes" label="Size" show=${bytes} />
    </div>
    <h2>Brokers</h2>
    <${Table} rows=${all.brokers} columns=${BROKERS} id="broker" label="Brokers" search=${false} /><//>`;
}

const DIRECTORIES = [
  { key: "broker", label: "Broker", width: "80px", number: true }, { key: "path", label: "Directory", mono: true, least: 200 },
  { key: "error", label: "State", width: "120px", show: (row) => html`<${State} value=${row.error ?? "online"} good=${["online"]} bad=${[row.error]} />` },
  { key: "replicas", label: "Replicas", width: "100px", number: true, show: (row) => count(row.replicas) },
  { key: "size", label: "Size", width: "100px", number: true, show: (row) => bytes(row.size) },
  { key: "usable", label: "Free", width: "100px", number: true, show: (row) => bytes(row.usable) },
  { key: "total", label: "Disk", width: "100px", number: true, show: (row) => bytes(row.total) },
];
const shareOf = ({ bytes: all, bytes_copied: copied }) => (all === null ? null : all ? Math.min(Math.floor(100 * copied / all), 100) : 100);
const MOVES = [
  { key: "topic", label: "Topic", href: (row) => `/topics/${part(row.topic)}` }, { key: "partition", label: "Partition", width: "90px", number: true },
  { key: "adding", label: "To brokers", show: (row) => row.adding.join(", ") }, { key: "removing", label: "From brokers", show: (row) => row.removing.join(", ") },
  { key: "bytes_copied", label: "Copied", number: true, width: "190px", show: (row) => `${bytes(row.bytes_copied)} of ${bytes(row.bytes)}`,
    title: (row) => `${count(row.bytes_copied)} of ${counted(row.bytes, "byte")}` },
  { key: "share", label: "Done", number: true, width: "80px", show: (row) => (row.share === null ? "–" : `${row.share} %`) },
  { key: "end", label: "Action", width: "80px", sort: false, show: (row) => html`<${Act} plain danger label="cancel" title=${`Stop moving ${row.topic}-${row.partition}`} verb="Stop"
    text="The partition stays on its present brokers." send=${async () => { await ask("/reassignments", "DELETE", { topic: row.topic, partition: row.partition }); return "The move is stopped."; }} />` },
];

export function Brokers({ tab }) {
  const path = { "": "/brokers", "log-directories": "/log-directories", reassignments: "/reassignments" }[tab] ?? "/brokers";
  const found = useLive(path);
  const [columns, label, id] = { "/brokers": [BROKERS, "Brokers", "broker"], "/log-directories": [DIRECTORIES, "Log directories", "id"],
    "/reassignments": [MOVES, "Reassignments", "id"] }[path];
  const rows = useMemo(() => (tab === "reassignments" ? found?.rows?.map((row) => ({ ...row, share: shareOf(row) })) : found?.rows), [found, tab]);
  return html`<${Page} title="Brokers" actions=${html`<${Act} label="Elect preferred leaders" title="Elect preferred leaders"
      text="The first replica of each partition becomes its leader again if it is in sync." verb="Elect"
      send=${async () => `${counted((await ask("/elect", "POST", {})).rows.length, "partition has", "partitions have")} another leader.`} />`}>
    <${Tabs} tabs=${[["Brokers", "/brokers"], ["Log directories", "/brokers/log-directories"], ["Reassignments", "/brokers/reassignments"]]} />
    <${Problem} of=${found} />
    <${Table} key=${path} rows=${rows} columns=${columns} id=${id} label=${label} tools=${html`<${Export} rows=${found?.rows} name=${label} />`} /><//>`;
}

export function Broker({ id }) {
  const [brokers, found] = useLive("/brokers", `/brokers/${id}/config`);
  const one = brokers?.rows?.find((row) => row.broker === Number(id));
  return html`<${Page} title=${`Broker ${id}`}>
    ${one && html`<${Tiles} values=${[["State", one.state], ["Address", one.address, one.address], ["Uptime", duration(one.uptime_seconds)],
      ["Leaders", count(one.leaders)], ["Replicas", count(one.replicas)], ["Size", bytes(one.bytes)], ["Disk free", bytes(one.free_bytes)]]} />`}
    <${Problem} of=${found} />
    <${Settings} rows=${found?.rows} path=${`/brokers/${id}/config`} /><//>`;
}

export function Settings({ rows, path }) {
  const all = param("all") === "1";
  const shown = rows?.filter((row) => all || row.source !== "DEFAULT_CONFIG");
  const columns = [
    { key: "setting", label: "Setting", mono: true, least: 220, title: (row) => row.help || row.setting },
    { key: "value", label: "Value", mono: true, show: (row) => (row.sensitive ? "hidden" : visible(row.value ?? "–")) },
    { key: "source", label: "Source", width: "230px", show: (row) => row.source.toLowerCase().replaceAll("_", " ") },
    { key: "default", label: "After a reset", width: "130px", mono: true },
    { key: "edit", label: "Action", width: "136px", sort: false, show: (row) => (row.read_only ? "" : html`<${Edit} row=${row} path=${path} />`) },
  ];
  return html`<${Table} rows=${shown} columns=${columns} id="setting" label="Settings" tools=${html`
    <label><input type="checkbox" checked=${all} onChange=${(event) => setParams({ all: event.target.checked ? "1" : "" })} /> show defaults</label>
    <${Export} rows=${shown} name="settings" />`} />`;
}

const Edit = ({ row, path }) => html`<${Act} plain label="change" title=${`Change ${row.setting}`} text=${row.help || ""} verb="Change"
    fields=${[{ name: "value", label: "Value", value: row.value ?? "" }]}
    send=${async ({ value }) => { await ask(path, "PATCH", { set: { [row.setting]: value } }); return `${row.setting} is changed.`; }} />
  ${row.source.startsWith("DYNAMIC") && html`<${Act} plain label="reset" title=${`Reset ${row.setting}`} text=${`The value becomes ${row.default ?? "the default"}.`} verb="Reset"
    send=${async () => { await ask(path, "PATCH", { reset: [row.setting] }); return `${row.setting} is reset.`; }} />`}`;
