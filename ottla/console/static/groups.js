// Groups, one group, and what could be cleaned up.
import { html, bytes, count, counted, duration, go, param, part, setParams, short, time, useLive, visible, ask } from "./base.js";
import { Act, Export, Graph, Left, Page, Problem, Range, State, Table, Tabs, Tiles } from "./parts.js";

const STATE = { good: ["Stable"], bad: ["Dead"] };
const GROUPS = [
  { key: "group", label: "Group", href: (row) => `/groups/${part(row.group)}` },
  { key: "state", label: "State", width: "150px", show: (row) => html`<${State} value=${row.state} ...${STATE} />` },
  { key: "members", label: "Members", width: "90px", number: true, show: (row) => count(row.members) },
  { key: "topics", label: "Topics", show: (row) => visible(row.topics.join(", ")), title: (row) => visible(row.topics.join(", ")) },
  { key: "lag", label: "Lag", width: "110px", number: true, show: (row) => count(row.lag) },
  { key: "lag_bytes", label: "Lag (bytes)", width: "100px", number: true, show: (row) => bytes(row.lag_bytes) },
  { key: "lag_seconds", label: "Lag (time)", width: "110px", number: true, show: (row) => duration(row.lag_seconds) },
  { key: "type", label: "Type", width: "90px" },
];

export function Groups() {
  const found = useLive("/groups");
  return html`<${Page} title="Groups"><${Problem} of=${found} />
    <${Table} rows=${found?.rows} columns=${GROUPS} id="group" label="Groups" open=${(row) => go(`/groups/${part(row.group)}`)}
      tools=${html`<${Export} rows=${found?.rows} name="groups" />`} /><//>`;
}

const PARTITIONS = [
  { key: "topic", label: "Topic", href: (row) => `/topics/${part(row.topic)}` }, { key: "partition", label: "Partition", width: "90px", number: true },
  { key: "offset", label: "Offset", width: "110px", number: true, show: (row) => count(row.offset) }, { key: "end", label: "End", width: "110px", number: true, show: (row) => count(row.end) },
  { key: "lag", label: "Lag", width: "100px", number: true, show: (row) => count(row.lag) },
  { key: "lag_bytes", label: "Lag (bytes)", width: "100px", number: true, show: (row) => bytes(row.lag_bytes) },
  { key: "lag_seconds", label: "Lag (time)", width: "100px", number: true, show: (row) => duration(row.lag_seconds) },
  { key: "client", label: "Client", width: "16%" }, { key: "host", label: "Address", width: "120px", show: (row) => row.host?.replace("/", "") ?? "–" },
];
const MEMBERS = [
  { key: "member", label: "Member", mono: true }, { key: "client", label: "Client", width: "18%" }, { key: "host", label: "Address", width: "130px" },
  { key: "instance", label: "Instance", width: "110px" },
  { key: "assigned", label: "Partitions", show: (row) => Object.entries(row.assigned).map(([topic, list]) => `${topic}: ${list.join(", ")}`).join("; ") || html`<span class="state warn">none</span>` },
  { key: "lag", label: "Lag", width: "100px", number: true, show: (row) => count(row.lag) },
];
const MEASURES = { lag: ["Lag in records", short], lag_bytes: ["Lag in bytes", bytes], lag_seconds: ["Lag in time", duration] };

export function Group({ name, tab }) {
  const base = `/groups/${part(name)}`;
  const found = useLive(base), one = found?.error ? null : found, measure = param("measure", "lag");
  const [label, show] = MEASURES[measure] ?? MEASURES.lag;
  return html`<${Page} title=${name} actions=${html`<${Actions} name=${name} base=${base} one=${one} />`}>
    <${Problem} of=${found} />
    <${Tiles} values=${[["State", one ? one.state : "–"], ["Members", count(one?.members.length)], ["Lag", short(one?.lag), count(one?.lag)],
      one?.lag_bytes !== null && ["Lag in bytes", bytes(one?.lag_bytes)], one?.lag_seconds !== null && ["Lag in time", duration(one?.lag_seconds), "the age of the oldest record that the group has not read"],
      ["Type", one ? one.type : "–"], ["Assignor", one?.assignor || "–"], ["Coordinator", one?.coordinator ?? "–"]]} />
    ${one && one.state === "Stable" && one.members.some((each) => !Object.keys(each.assigned).length) && html`
      <p class="note">Some members have no partitions: there are more members than partitions.</p>`}
    <${Now} why=${one?.why} />
    <div class="bar"><span class="push"></span><label>Measure <select value=${measure} onChange=${(event) => setParams({ measure: event.target.value === "lag" ? "" : event.target.value })}>
      ${Object.entries(MEASURES).map(([key, [text]]) => html`<option value=${key}>${text}</option>`)}</select></label><${Range} /></div>
    <div class="graphs"><${Graph} key=${measure} kind="group" name=${name} measure=${measure} label=${label} show=${show} />
      <${Graph} kind="group" name=${name} measure="offset" label="Records committed per second" show=${short} rate /></div>
    <div><${Tabs} tabs=${[["Partitions", base], ["Members", `${base}/members`], ["Events", `${base}/events`]]} />
    ${tab === "" && html`<${Table} rows=${one?.rows} columns=${PARTITIONS} id="id" label="Partitions" sort="-lag" tools=${html`<${Export} rows=${one?.rows} name=${name} />`} />`}
    ${tab === "members" && html`<${Table} rows=${one?.members} columns=${MEMBERS} id="member" label="Members" />`}
    ${tab === "events" && html`<${Events} why=${one?.why} />`}</div><//>`;
}

export const Events = ({ why, none = "Nothing has happened since the coordinator of the group started. Brokers keep events in memory." }) => (why?.events?.length
  ? html`<ul class="problems">${why.events.map((each) => html`<li><span class="soft mono">${time(each.last_ms ?? each.at_ms)}</span> ${visible(each.text)}
      ${each.times > 1 && html`<span class="soft">${each.times} times since ${time(each.at_ms)}</span>`}</li>`)}</ul>`
  : html`<p class="soft">${why ? (why.reported === false ? "No broker reports events. Brokers of Ottla do if ottla.http.listener is set." : none) : "Loading …"}</p>`);

export const Now = ({ why }) => (why?.now?.length ? html`<h2>Now</h2><ul class="problems">${why.now.map((each) => html`<li>${each.partition === undefined || each.topic !== undefined ? "" : `Partition ${each.partition}: `}${visible(each.text)}
  ${each.kind === "open_transaction" && each.producer_id !== undefined && html` <a href=${`/transactions?q=${encodeURIComponent(each.transactional_id ?? each.producer_id)}`}>Show the transaction</a>`}
  ${each.kind === "left_but_connected" && html` <a href=${`/connections?q=${encodeURIComponent(each.client ?? "")}`}>Show its connections</a>`}</li>`)}</ul>` : null);

const CHANGES = [
  { key: "topic", label: "Topic" }, { key: "partition", label: "Partition", width: "90px", number: true },
  { key: "old", label: "Current", width: "110px", number: true, show: (row) => count(row.old) }, { key: "new", label: "New", width: "110px", number: true, show: (row) => count(row.new) },
  { key: "by", label: "Difference", width: "110px", number: true, sort: false, show: (row) => (row.old === null ? "–" : count(row.new - row.old)) },
  { key: "lag", label: "New lag", width: "90px", number: true, show: (row) => count(row.lag) },
];

function resetOf(values) {
  const topics = values.topics.split(",").map((one) => one.trim()).filter(Boolean);
  if (values.file) {
    const offsets = values.file.split(/\r?\n/).filter(Boolean).map((text) => {
      const [topic, partition, offset] = text.split(",").map((one) => one.replaceAll('"', "").trim());
      return { topic, partition, offset };
    }).filter((row) => row.topic !== "topic" && row.topic !== "TOPIC");
    const wrong = offsets.find((row) => !/^\d+$/.test(row.partition) || !/^\d+$/.test(row.offset));
    if (wrong) throw new Error(`Expected lines such as orders,0,1200 (topic, partition, offset), not ${Object.values(wrong).join(",")}`);
    return { offsets: offsets.map((row) => ({ topic: row.topic, partition: Number(row.partition), offset: Number(row.offset) })) };
  }
  const to = { "the beginning": "beginning", "the end": "end", "an offset": values.value, "by records": values.value.startsWith("-") ? values.value : `+${values.value.replace("+", "")}` }[values.to];
  if (to !== undefined) return { topics, to };
  const ms = values.to === "a time" ? new Date(values.time).getTime() : Date.now() - Number(values.value) * 60000;
  if (Number.isNaN(ms)) throw new Error("Enter a time, or a number of minutes.");
  return { topics, to: `@${ms}` };
}

// A reset sets exactly the offsets that the preview has shown, even if "minutes ago" has become another offset meanwhile.
function Reset({ name, base }) {
  let shown = [];
  return html`<${Act} label="Reset offsets" danger title=${`Reset the offsets of ${name}`} verb="Reset" confirm=${name}
    text="The group must have no members while its offsets are set." fields=${[
      { name: "to", label: "To", choices: ["the beginning", "the end", "minutes ago", "a time", "an offset", "by records"], value: "minutes ago" },
      { name: "value", label: "Minutes, offset, or number of records (-100 goes back)", value: "60" }, { name: "time", label: "Time, for “a time”", kind: "datetime-local" },
      { name: "topics", label: "Topics with commas; empty: all", value: "" }, { name: "file", label: "Or a CSV file: topic,partition,offset", kind: "file" }]}
    preview=${async (values) => {
      const found = await ask(`${base}/reset`, "POST", { ...resetOf(values), dry_run: true });
      shown = found.rows;
      return html`<p class="soft">${found.at_ms === null ? "" : `To the first records of ${time(found.at_ms)} or later. `}Exactly these offsets are set when you confirm.</p>
        <${Table} rows=${found.rows} columns=${CHANGES} id="id" label="What will change" search=${false} name="preview-" />`;
    }}
    send=${async () => {
      const offsets = shown.map((row) => ({ topic: row.topic, partition: row.partition, offset: row.new, old: row.old }));
      const done = await ask(`${base}/reset`, "POST", { offsets, dry_run: false, confirm: name });
      return `${counted(done.rows.length, "offset is", "offsets are")} set.`;
    }} />`;
}

const Actions = ({ name, base, one }) => html`
  <${Reset} name=${name} base=${base} />
  <${Act} label="Forget a topic" danger title=${`Delete offsets of ${name} for one topic`} verb="Delete the offsets" confirm=${name}
    fields=${[{ name: "topic", label: "Topic", choices: [...new Set(one?.rows.map((row) => row.topic))], value: one?.rows[0]?.topic ?? "" }]}
    send=${async ({ topic }) => { await ask(`${base}/topics/${part(topic)}`, "DELETE", { confirm: name }); return `The offsets for ${topic} are deleted.`; }} />
  <${Act} label="Delete" danger title=${`Delete ${name}`} verb="Delete the group" confirm=${name} text="Deletes the group with all its offsets. It must have no members."
    send=${async () => { await ask(base, "DELETE", { confirm: name }); go("/groups"); return `Group ${name} is deleted.`; }} />`;

const CANDIDATES = [
  { key: "kind", label: "What", width: "90px" }, { key: "group", label: "Group", width: "24%", href: (row) => `/groups/${part(row.group)}` },
  { key: "topic", label: "Topic", width: "18%" }, { key: "reason", label: "Reason" },
  { key: "do", label: "Action", width: "120px", sort: false, show: (row) => html`<${Clean} row=${row} />` },
];

function Clean({ row }) {
  const base = `/groups/${part(row.group)}`;
  if (row.kind === "member") return "";
  const offsets = row.kind === "offsets";
  return html`<${Act} plain label=${offsets ? "delete offsets" : "delete group"} danger title=${offsets ? `Delete offsets of ${row.group} for ${row.topic}` : `Delete ${row.group}`}
    text=${row.reason} verb="Delete" confirm=${row.group} send=${async () => {
      await ask(offsets ? `${base}/topics/${part(row.topic)}` : base, "DELETE", { confirm: row.group });
      return offsets ? "The offsets are deleted." : `Group ${row.group} is deleted.`;
    }} />`;
}

export function CleanUp() {
  const found = useLive("/clean-up");
  return html`<${Page} title="Clean up"><p class="soft">All ${found?.of === undefined ? "" : `${counted(found.of, "consumer group")} `}that you may see ${found?.left ? "are being" : "were"} checked. The list has groups without members, if they have no offsets or if the records
    at all of their offsets have been deleted; offsets of topics that were deleted or that no member reads; and members without partitions. A group without members is not listed if new members could continue at one of its offsets, however long it has been empty.</p>
    <${Problem} of=${found} /><${Left} of=${found} what="group" />
    <${Table} rows=${found?.rows} columns=${CANDIDATES} id="id" label="What could be removed" tools=${html`<${Export} rows=${found?.rows} name="clean-up" />`} /><//>`;
}
