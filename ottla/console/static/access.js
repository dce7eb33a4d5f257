// Connections, transactions, access rules, users, quotas, tokens.
import { html, bytes, count, duration, param, part, setParams, time, useLive, useMemo, visible, ask } from "./base.js";
import { Act, Export, Left, Page, Problem, State, Table, Tabs } from "./parts.js";

const role = (row) => {
  const does = [row.produces_to.length && "writes", row.fetches_from.length && "reads"].filter(Boolean);
  return does.join(", ") || ({ Produce: "writes", Fetch: "reads", Heartbeat: "reads", ConsumerGroupHeartbeat: "reads", OffsetCommit: "reads" }[row.newest_request] ?? "–");
};
const topicsOf = (row) => [...new Set([...row.produces_to, ...row.fetches_from])];
const CONNECTIONS = [
  { key: "client_id", label: "Client id", width: "18%", least: 136 }, { key: "role", label: "Role", width: "86px" },
  { key: "software", label: "Software", least: 184, show: (row) => [row.software, row.software_version].filter(Boolean).join(" ") || "–" },
  { key: "peer", label: "Address", width: "140px", mono: true }, { key: "principal", label: "User", width: "138px" },
  { key: "broker", label: "Broker", width: "64px", number: true },
  { key: "newest_request", label: "Last request", width: "112px" },
  { key: "topics", label: "Topics", width: "14%", least: 100, show: (row) => visible(row.topics.join(", ")) || "–", title: (row) => visible(row.topics.join(", ")) },
  { key: "received_bytes_per_second", label: "To broker", width: "94px", number: true, show: (row) => `${bytes(row.received_bytes_per_second)}/s`, title: (row) => `${bytes(row.received_bytes)} in all` },
  { key: "sent_bytes_per_second", label: "From broker", width: "106px", number: true, show: (row) => `${bytes(row.sent_bytes_per_second)}/s`, title: (row) => `${bytes(row.sent_bytes)} in all` },
  { key: "connected_seconds", label: "Connected", width: "104px", number: true, show: (row) => duration(row.connected_seconds) },
];

// The clients that write to a topic or read it.
const CLIENTS = CONNECTIONS.filter((one) => !["role", "newest_request", "topics"].includes(one.key))
  .map((one) => (one.key === "client_id" ? { ...one, href: (row) => `/connections?q=${encodeURIComponent(row.client_id)}` } : one));
CLIENTS.splice(1, 0, { key: "does", label: "Role", width: "104px" });
export function TopicClients({ base }) {
  const found = useLive(`${base}/clients`);
  const rows = useMemo(() => found?.rows?.map((row) => ({ ...row, does: [row.writes && "writes", row.reads && "reads"].filter(Boolean).join(", ") })), [found]);
  return html`<${Problem} of=${found} /><p class="soft">Clients that wrote to this topic or read it in the last two minutes, as far as the brokers have seen.</p>
    <${Table} rows=${rows} columns=${CLIENTS} id="id" label="Clients" name="c-" tools=${html`<${Export} rows=${rows} name="clients" />`} />`;
}

const Of = () => html`<${Tabs} tabs=${[["Connections", "/connections"], ["Client metrics", "/connections/metrics"]]} />`;
const METRICS = [
  { key: "client_id", label: "Client id", width: "16%" }, { key: "client_instance_id", label: "Instance", mono: true, least: 160 },
  { key: "client_software_name", label: "Software", least: 184, show: (row) => [row.client_software_name, row.client_software_version].filter(Boolean).join(" ") || "–" },
  { key: "client_source_address", label: "Address", width: "130px", mono: true }, { key: "broker", label: "Broker", width: "70px", number: true },
  { key: "requested_metrics", label: "Requested", show: (row) => visible(row.requested_metrics.join(", ")) || "nothing", title: (row) => visible(row.requested_metrics.join(", ")) },
  { key: "push_interval_ms", label: "Interval", width: "90px", number: true, show: (row) => duration(row.push_interval_ms / 1000) },
  { key: "pushes", label: "Pushes", width: "90px", number: true, show: (row) => count(row.pushes) }, { key: "values", label: "Values", width: "90px", number: true, show: (row) => count(row.values) },
  { key: "seconds_since_request", label: "Last seen", width: "100px", number: true, show: (row) => `${duration(row.seconds_since_request)} ago` },
];

export function ClientMetrics() {
  const found = useLive("/client-metrics");
  return html`<${Page} title="Client metrics"><${Of} /><${Problem} of=${found} />
    <p class="soft">Clients that offer metrics of their own (KIP-714). Use kafka-client-metrics to choose which metrics they send; the brokers’ /metrics have the values.</p>
    <${Table} rows=${found?.rows} columns=${METRICS} id="id" label="Clients with metrics" tools=${html`<${Export} rows=${found?.rows} name="client-metrics" />`} /><//>`;
}

const AUDIT = [
  { key: "at_ms", label: "Time", width: "186px", mono: true, show: (row) => time(row.at_ms) },
  { key: "principal", label: "Who", width: "14%", least: 138 }, { key: "address", label: "From", width: "104px" }, { key: "client_id", label: "Client id", width: "120px" },
  { key: "api", label: "Request", width: "176px" }, { key: "what", label: "What", least: 240 },
  { key: "outcome", label: "Outcome", width: "24%", show: (row) => html`<${State} value=${visible(row.outcome)} good=${["done"]} bad=${[row.refused && visible(row.outcome)]} />` },
  { key: "broker", label: "Broker", width: "70px", number: true },
];

export function Audit() {
  const found = useLive("/audit");
  return html`<${Page} title="Audit log"><${Problem} of=${found} />
    ${(found?.notes ?? []).map((one) => html`<p class="note">${one}</p>`)}
    <p class="soft">The newest administrative requests to each broker, and the newest requests that access rules refused. The broker’s log has all of them.</p>
    <${Table} rows=${found?.rows} columns=${AUDIT} id="id" label="Audit log" sort="-at_ms" tools=${html`<${Export} rows=${found?.rows} name="audit" />`} /><//>`;
}

export function Connections() {
  const found = useLive("/connections");
  const rows = useMemo(() => found?.rows?.map((row) => ({ ...row, role: role(row), topics: topicsOf(row) })), [found]);
  return html`<${Page} title="Connections"><${Of} /><${Problem} of=${found} />
    ${(found?.notes ?? []).map((one) => html`<p class="note">${visible(one)}</p>`)}
    ${rows && !rows.length && !found.notes?.length && html`<p class="note">No broker reports its connections. An Ottla broker does if ottla.http.listener is set and you may read its settings. Apache Kafka does not.</p>`}
    <${Table} rows=${rows} columns=${CONNECTIONS} id="id" label="Connections" tools=${html`<${Export} rows=${rows} name="connections" />`} /><//>`;
}

const TRANSACTIONS = [
  { key: "id", label: "Transactional id", width: "148px", title: (row) => visible(`${row.id}: producer id ${row.producer}, coordinator ${row.coordinator}`) },
  { key: "state", label: "State", width: "122px", show: (row) => html`<${State} value=${row.state} good=${["CompleteCommit"]} />` },
  { key: "started_ms", label: "Since", width: "88px", show: (row) => (row.started_ms === null ? "–" : row.age_ms < 43200000 ? time(row.started_ms).slice(11, 19) : time(row.started_ms).slice(5, 16)), title: (row) => time(row.started_ms) },
  { key: "age_ms", label: "Open for", width: "172px", number: true, show: (row) => (row.age_ms === null ? "–" : `${duration(row.age_ms / 1000)} of ${duration(row.timeout_ms / 1000)}`),
    title: (row) => (row.ends_ms === null ? "" : `its timeout ends at ${time(row.ends_ms)}: if it is still open then, it is aborted`) },
  { key: "held_back", label: "Held back", width: "96px", number: true, show: (row) => count(row.held_back), title: (row) => (row.held_back === null ? "" : "records that read_committed consumers wait for") },
  { key: "producer", label: "Producer", width: "90px", number: true }, { key: "client", label: "Client", width: "104px", title: (row) => visible(row.client ?? "") },
  { key: "partitions", label: "Partitions", width: "100px", title: (row) => row.partitions.join(", "), show: (row) => row.partitions.map((one, place) => html`${place ? ", " : ""}<a href=${`/topics/${part(one.slice(0, one.lastIndexOf("-")))}`}>${one}</a>`) },
  { key: "groups", label: "Groups behind", width: "126px", title: (row) => visible(row.groups.join(", ")), show: (row) => (row.groups.length
    ? row.groups.map((one, place) => html`${place ? ", " : ""}<a href=${`/groups/${part(one)}`}>${visible(one)}</a>`) : "–") },
  { key: "end", label: "Action", width: "70px", sort: false, show: (row) => (row.state === "Ongoing" ? html`<${Act} plain danger label="abort" title=${`Abort the transaction of ${row.id}`}
    text="Its producer is fenced; the records of the transaction are discarded." verb="Abort" confirm=${row.id}
    send=${async () => { await ask(`/transactions/${part(row.id)}`, "DELETE", { confirm: row.id }); return "The transaction is aborted."; }} />` : "") },
];
const HANGING = [
  { key: "topic", label: "Topic" }, { key: "partition", label: "Partition", width: "90px", number: true }, { key: "producer", label: "Producer", width: "110px", number: true },
  { key: "epoch", label: "Epoch", width: "80px", number: true }, { key: "first_offset", label: "From offset", width: "120px", number: true, show: (row) => count(row.first_offset) },
  { key: "minutes", label: "Minutes", width: "90px", number: true },
  { key: "end", label: "Action", width: "70px", sort: false, show: (row) => html`<${Act} plain danger label="abort" title=${`Abort the transaction in ${row.topic}-${row.partition}`}
    text="No coordinator knows this transaction. A marker in the partition ends it, and its records there are discarded." verb="Abort" confirm=${row.topic}
    send=${async () => {
      await ask("/transactions-hanging", "DELETE", { topic: row.topic, partition: row.partition, first_offset: row.first_offset, minutes: Number(param("minutes", "15")), confirm: row.topic });
      return "The transaction is aborted.";
    }} />` },
];

function Hanging() {
  const minutes = param("minutes", "15"), found = useLive(`/transactions-hanging?minutes=${encodeURIComponent(minutes)}`);
  return html`<${Problem} of=${found} /><div class="bar"><label>Open, without a new record for at least <input type="number" min="0" value=${minutes}
      onChange=${(event) => setParams({ minutes: event.target.value })} /> minutes, and unknown to all coordinators</label></div>
    <p class="soft">Open transactions whose transactional id a coordinator knows are in the tab <a href="/transactions">Transactional ids</a>: their timeout ends them.</p>
    <${Left} of=${found} what="topic" />
    <${Table} rows=${found?.rows} columns=${HANGING} id="id" label="Hanging transactions" tools=${html`<${Export} rows=${found?.rows} name="hanging" />`} />`;
}

export function Transactions({ tab }) {
  return html`<${Page} title="Transactions"><${Tabs} tabs=${[["Transactional ids", "/transactions"], ["Hanging", "/transactions/hanging"]]} />
    ${tab === "hanging" ? html`<${Hanging} />` : html`<${Known} />`}<//>`;
}

function Known() {
  const found = useLive("/transactions");
  const rows = useMemo(() => found?.rows?.map((row) => ({ ...row, client: [row.client_id, row.address].filter(Boolean).join(" ") || null })), [found]);
  return html`<${Problem} of=${found} />
    <${Table} rows=${rows} columns=${TRANSACTIONS} id="id" label="Transactions" tools=${html`<${Export} rows=${found?.rows} name="transactions" />`} />`;
}

const RULE = ["resource", "name", "pattern", "principal", "host", "operation", "permission"];
const ACLS = [
  { key: "principal", label: "Principal" }, { key: "permission", label: "Permission", width: "100px", show: (row) => html`<${State} value=${row.permission} good=${["ALLOW"]} bad=${["DENY"]} />` },
  { key: "operation", label: "Operation", width: "150px" }, { key: "resource", label: "Resource", width: "140px" }, { key: "name", label: "Name" },
  { key: "pattern", label: "Pattern", width: "100px" }, { key: "host", label: "From", width: "120px" },
  { key: "end", label: "Action", width: "80px", sort: false, show: (row) => html`<${Act} plain danger label="remove" title="Remove an access rule" verb="Remove" confirm=${row.principal}
    text=${RULE.map((name) => row[name]).join(" ")} send=${async () => {
      await ask("/acls", "DELETE", { ...Object.fromEntries(RULE.map((name) => [name, row[name]])), confirm: row.principal });
      return "The rule is removed.";
    }} />` },
];
const USERS = [
  { key: "user", label: "User" }, { key: "mechanism", label: "Mechanism" }, { key: "iterations", label: "Iterations", number: true },
  { key: "end", label: "Action", width: "80px", sort: false, show: (row) => html`<${Act} plain danger label="delete" title=${`Delete a credential of ${row.user}`} verb="Delete" confirm=${row.user}
    text=${row.mechanism} send=${async () => { await ask(`/users/${part(row.user)}`, "DELETE", { mechanism: row.mechanism, confirm: row.user }); return "The credential is deleted."; }} />` },
];
const shown = (row, name) => (name in row.entity ? row.entity[name] ?? "default" : "–");
const QUOTAS = [
  { key: "user", label: "User", show: (row) => shown(row, "user") }, { key: "client_id", label: "Client id", show: (row) => shown(row, "client-id") }, { key: "ip", label: "Address", show: (row) => shown(row, "ip") },
  { key: "quota", label: "Quota" }, { key: "value", label: "Value", number: true, show: (row) => count(row.value) },
  { key: "end", label: "Action", width: "80px", sort: false, show: (row) => html`<${Act} plain danger label="remove" title=${`Remove ${row.quota}`} verb="Remove" text=${JSON.stringify(row.entity)}
    send=${async () => { await ask("/quotas", "PATCH", { entity: row.entity, reset: [row.quota] }); return "The quota is removed."; }} />` },
];
const TOKENS = [
  { key: "id", label: "Token", mono: true }, { key: "owner", label: "Owner" }, { key: "issued", label: "Issued", show: (row) => time(row.issued) },
  { key: "expires", label: "Expires", show: (row) => time(row.expires) }, { key: "renewable_until", label: "Renewable until", show: (row) => time(row.renewable_until) },
];

const RESOURCES = ["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"];
const OPERATIONS = ["ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE"];
const ADD = {
  acls: { label: "Add a rule", title: "Add an access rule", verb: "Add", fields: [
    { name: "principal", label: "Principal", value: "User:" }, { name: "permission", label: "Permission", choices: ["ALLOW", "DENY"], value: "ALLOW" },
    { name: "operation", label: "Operation", choices: OPERATIONS, value: "READ" }, { name: "resource", label: "Resource", choices: RESOURCES, value: "TOPIC" },
    { name: "name", label: "Name; kafka-cluster for CLUSTER" }, { name: "pattern", label: "Pattern", choices: ["LITERAL", "PREFIXED"], value: "LITERAL" }, { name: "host", label: "From", value: "*" }],
    send: async (values) => { await ask("/acls", "POST", values); return "The rule is added."; } },
  users: { label: "Set a password", title: "Set a user's password", verb: "Set", fields: [
    { name: "user", label: "User" }, { name: "password", label: "Password", kind: "password" }, { name: "mechanism", label: "Mechanism", choices: ["SCRAM-SHA-512", "SCRAM-SHA-256"], value: "SCRAM-SHA-512" }],
    send: async ({ user, ...rest }) => { await ask(`/users/${part(user)}`, "POST", rest); return "The password is set."; } },
  quotas: { label: "Set a quota", title: "Set a quota", verb: "Set", fields: [
    { name: "kind", label: "Kind", choices: ["user", "client-id", "ip"], value: "user" }, { name: "name", label: "Name; empty for the default" },
    { name: "quota", label: "Quota", choices: ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"], value: "producer_byte_rate" },
    { name: "value", label: "Value", kind: "number" }],
    send: async (values) => { await ask("/quotas", "PATCH", { entity: { [values.kind]: values.name || null }, set: { [values.quota]: Number(values.value) } }); return "The quota is set."; } },
};

export function Access({ tab }) {
  const [path, columns, label] = { acls: ["/acls", ACLS, "Access rules"], users: ["/users", USERS, "Users"], quotas: ["/quotas", QUOTAS, "Quotas"],
    tokens: ["/tokens", TOKENS, "Delegation tokens"] }[tab] ?? ["/acls", ACLS, "Access rules"];
  const found = useLive(path);
  return html`<${Page} title="Access" actions=${ADD[tab] && html`<${Act} ...${ADD[tab]} />`}>
    <${Tabs} tabs=${[["Rules", "/access/acls"], ["Users", "/access/users"], ["Quotas", "/access/quotas"], ["Tokens", "/access/tokens"]]} />
    <${Problem} of=${found} />
    <${Table} key=${path} rows=${found?.rows} columns=${columns} id="id" label=${label} tools=${html`<${Export} rows=${found?.rows} name=${label} />`} /><//>`;
}
