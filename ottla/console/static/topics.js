// Topics, and one topic with its partitions, settings, groups, producers.
import { html, bytes, count, counted, go, param, part, setParams, short, time, useLive, useMemo, ask } from "./base.js";
import { Act, Export, Graph, Page, Problem, Range, Reading, State, Table, Tabs, Tiles } from "./parts.js";
import { TopicClients } from "./access.js";
import { Settings } from "./cluster.js";
import { Events, Now } from "./groups.js";
import { Records } from "./records.js";

const TOPICS = [
  { key: "topic", label: "Topic", href: (row) => `/topics/${part(row.topic)}` },
  { key: "partitions", label: "Partitions", width: "90px", number: true, show: (row) => count(row.partitions) },
  { key: "replicas", label: "Replicas", width: "80px", number: true },
  { key: "out_of_sync", label: "Not in sync", width: "100px", number: true, show: (row) => (row.out_of_sync || row.leaderless
    ? html`<span class="state bad">${row.leaderless ? `${row.leaderless} without leader` : row.out_of_sync}</span>` : "0") },
  { key: "records", label: "Records", width: "110px", number: true, show: (row) => count(row.records) },
  { key: "records_per_second", label: "Records/s", width: "90px", number: true, show: (row) => short(row.records_per_second) },
  { key: "bytes", label: "Size", width: "90px", number: true, show: (row) => bytes(row.bytes), title: (row) => counted(row.bytes, "byte") },
  { key: "lag", label: "Slowest group", width: "190px", number: true, title: (row) => row.slowest_group ?? "",
    show: (row) => (row.lag === null ? "–" : html`<a href=${`/groups/${part(row.slowest_group)}`}>${row.slowest_group}</a> ${count(row.lag)}`) },
];

export function Topics() {
  const found = useLive("/topics"), internal = param("internal") === "1";
  const rows = useMemo(() => found?.rows?.filter((row) => internal || !row.internal), [found, internal]);
  const create = html`<${Act} label="Create a topic" title="Create a topic" verb="Create" fields=${[
    { name: "topic", label: "Name" }, { name: "partitions", label: "Partitions", kind: "number", help: "the broker's default" },
    { name: "replicas", label: "Replicas", kind: "number", help: "the broker's default" },
    { name: "configs", label: "Settings, one NAME=VALUE per line", kind: "text", rows: 3 }]}
    send=${async (values) => {
      const configs = Object.fromEntries(values.configs.split("\n").filter(Boolean).map((line) => [line.split("=")[0].trim(), line.slice(line.indexOf("=") + 1).trim()]));
      const made = await ask("/topics", "POST", { topic: values.topic, partitions: Number(values.partitions || -1), replication_factor: Number(values.replicas || -1), configs });
      return `Topic ${made.topic} is created.`;
    }} />`;
  return html`<${Page} title="Topics" actions=${create}><${Problem} of=${found} /><${Reading} of=${found} />
    <${Table} rows=${rows} columns=${TOPICS} id="topic" label="Topics" open=${(row) => go(`/topics/${part(row.topic)}`)} tools=${html`
      <label><input type="checkbox" checked=${internal} onChange=${(event) => setParams({ internal: event.target.checked ? "1" : "" })} /> internal</label>
      <${Export} rows=${rows} name="topics" />`} /><//>`;
}

const PARTITIONS = [
  { key: "partition", label: "Partition", width: "90px", number: true },
  { key: "leader", label: "Leader", width: "90px", number: true, show: (row) => (row.leader < 0 ? html`<span class="state bad">none</span>` : `${row.leader}${row.preferred ? "" : " *"}`),
    title: (row) => (row.preferred ? `broker ${row.leader}` : "not the preferred leader") },
  { key: "replicas", label: "Replicas", show: (row) => row.replicas.join(", ") },
  { key: "isr", label: "In sync", show: (row) => (row.isr.length < row.replicas.length ? html`<span class="state warn">${row.isr.join(", ") || "none"}</span>` : row.isr.join(", ")) },
  { key: "start", label: "First offset", width: "120px", number: true, show: (row) => count(row.start) },
  { key: "end", label: "Next offset", width: "120px", number: true, show: (row) => count(row.end) },
  { key: "bytes", label: "Size", width: "100px", number: true, show: (row) => bytes(row.bytes) },
];
const GROUPS = [
  { key: "group", label: "Group", href: (row) => `/groups/${part(row.group)}` },
  { key: "state", label: "State", width: "150px", show: (row) => html`<${State} value=${row.state} good=${["Stable"]} bad=${["Dead"]} />` },
  { key: "members", label: "Members", width: "90px", number: true }, { key: "lag", label: "Lag in topic", width: "120px", number: true, show: (row) => count(row.lag) },
];
const PRODUCERS = [
  { key: "partition", label: "Partition", width: "90px", number: true }, { key: "producer", label: "Producer id", number: true, width: "130px" },
  { key: "epoch", label: "Epoch", width: "80px", number: true }, { key: "last_sequence", label: "Last sequence", width: "130px", number: true },
  { key: "last_timestamp", label: "Last record", show: (row) => time(row.last_timestamp) },
  { key: "transaction_start", label: "Open transaction from", number: true, show: (row) => (row.transaction_start === null ? "–"
    : html`<a href=${`/transactions?q=${row.producer}`}>${count(row.transaction_start)}</a>`) },
];

export function Topic({ name, tab }) {
  const base = `/topics/${part(name)}`;
  const found = useLive(base);
  const one = found?.error ? null : found;
  return html`<${Page} title=${name} actions=${html`<${Actions} name=${name} one=${one} base=${base} />`}>
    <${Problem} of=${found} /><${Reading} of=${one} />
    <${Tabs} tabs=${[["Partitions", base], ["Records", `${base}/records`], ["Settings", `${base}/settings`], ["Groups", `${base}/groups`], ["Clients", `${base}/clients`], ["Producer state", `${base}/producers`], ["Events", `${base}/events`]]} />
    ${one?.problems?.map((each) => html`<p class="note">${each.why}</p>`)}
    ${tab === "" && html`<${Partitions} name=${name} one=${one} />`}
    ${tab === "records" && one && html`<${Records} name=${name} partitions=${one.rows.length} />`}
    ${tab === "settings" && html`<${TopicSettings} base=${base} />`}
    ${tab === "groups" && html`<${Table} rows=${one?.groups} columns=${GROUPS} id="group" label="Groups" />`}
    ${tab === "events" && html`<${TopicEvents} base=${base} />`}
    ${tab === "clients" && html`<${TopicClients} base=${base} />`}
    ${tab === "producers" && html`<${Producers} base=${base} />`}<//>`;
}

const Partitions = ({ name, one }) => html`
  <${Tiles} values=${[["Partitions", count(one?.partitions)], ["Records", short(one?.records), count(one?.records)], ["Size", bytes(one?.bytes)],
    ["Records/s", short(one?.records_per_second)], ["Slowest group", one?.lag === null || !one ? "–" : short(one.lag), one?.slowest_group ?? ""]]} />
  <div class="bar"><span class="push"></span><${Range} /></div>
  <div class="graphs"><${Graph} kind="topic" name=${name} measure="offset" label="Records written per second" show=${short} rate />
    <${Graph} kind="topic" name=${name} measure="bytes" label="Size" show=${bytes} /></div>
  <h2>Partitions</h2>
  <${Table} rows=${one?.rows} columns=${PARTITIONS} id="partition" label="Partitions" tools=${html`<${Export} rows=${one?.rows} name=${name} />`} />`;

function TopicSettings({ base }) {
  const found = useLive(`${base}/config`);
  return html`<${Problem} of=${found} /><${Settings} rows=${found?.rows} path=${`${base}/config`} />`;
}

function TopicEvents({ base }) {
  const found = useLive(`${base}/why`);
  return html`<${Problem} of=${found} /><${Now} why=${found} /><h2>Events</h2><${Events} why=${found} none="Nothing has happened: no replica has left the in-sync set, and no leader has changed, since the brokers started. Brokers keep events in memory." />`;
}

function Producers({ base }) {
  const found = useLive(`${base}/producers`);
  return html`<${Problem} of=${found} /><p class="soft">What the leaders remember of idempotent and transactional producers, to recognize repeated batches. The tab Clients shows which clients are writing now.</p>
    <${Table} rows=${found?.rows} columns=${PRODUCERS} id="id" label="Producer state" />`;
}

const Actions = ({ name, one, base }) => html`
  <${Act} label="Add partitions" title=${`Add partitions to ${name}`} verb="Add" text="Afterwards, records with the same key may go to another partition than before."
    fields=${[{ name: "count", label: "Partitions afterwards", kind: "number", value: (one?.rows.length ?? 0) + 1 }]}
    send=${async ({ count: wanted }) => { await ask(`${base}/grow`, "POST", { count: Number(wanted) }); return "The partitions are added."; }} />
  <${Act} label="Move" title=${`Move replicas of ${name}`} verb="Move" text="If all partitions are moved, the first broker of the list becomes the preferred leader of the first partition, the second broker that of the second partition, and so on. The tab Reassignments of the page Brokers shows the progress."
    fields=${[{ name: "brokers", label: "Brokers with commas, the preferred leader first", value: one?.rows[0]?.replicas.join(", ") ?? "" },
      { name: "partition", label: "Partition; empty for all", kind: "number" }]}
    send=${async (values) => {
      const chosen = values.partition === "" ? one.rows.map((row) => row.partition) : [Number(values.partition)];
      const brokers = values.brokers.split(",").map((text) => text.trim()).filter(Boolean).map(Number);
      const turned = (by) => [...brokers.slice(by % brokers.length), ...brokers.slice(0, by % brokers.length)];
      const done = await ask("/reassignments", "POST", { topic: name, replicas: Object.fromEntries(chosen.map((index, place) => [index, turned(place)])) });
      return `${counted(done.partitions, "partition is", "partitions are")} being moved.`;
    }} />
  <${Act} label="Elect" title="Elect preferred leaders" verb="Elect" text=${`The first replica of each partition of ${name} becomes its leader again.`}
    send=${async () => { await ask("/elect", "POST", { topic: name }); return "Leaders are elected."; }} />
  <${Act} label="Trim" danger title=${`Trim ${name}`} verb="Delete records" confirm=${name} text="Deletes the first records of each partition."
    fields=${[{ name: "before", label: "The first offset to keep; empty to delete all records", kind: "number" },
      { name: "partition", label: "Partition; empty for all", kind: "number" }]}
    send=${async (values) => {
      const chosen = values.partition === "" ? one.rows.map((row) => row.partition) : [Number(values.partition)];
      await ask(`${base}/trim`, "POST", { confirm: name, before: Object.fromEntries(chosen.map((index) => [index, values.before === "" ? -1 : Number(values.before)])) });
      return "The records are deleted.";
    }} />
  <${Act} label="Delete" danger title=${`Delete ${name}`} verb="Delete the topic" confirm=${name} text="Deletes the topic with all its records."
    send=${async () => { await ask(base, "DELETE", { confirm: name }); go("/topics"); return `Topic ${name} is deleted.`; }} />`;
