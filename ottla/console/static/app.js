// The frame: navigation, login, theme, keyboard, and the page for each address.
import { html, render, address, go, nameOf, param, readSession, session, setParams, streamState, useEffect, ask } from "./base.js";
import { Dialogs, Toast, applyTheme, closeDialog, say, themeChosen, useTheme, showDialog } from "./parts.js";
import { Overview, Brokers, Broker } from "./cluster.js";
import { Topics, Topic } from "./topics.js";
import { Groups, Group, CleanUp } from "./groups.js";
import { Access, Audit, ClientMetrics, Connections, Transactions } from "./access.js";

const PAGES = [
  ["Overview", "/", "o"], ["Topics", "/topics", "t"], ["Groups", "/groups", "g"], ["Connections", "/connections", "c"],
  ["Transactions", "/transactions", "x"], ["Brokers", "/brokers", "b"], ["Access", "/access/acls", "a"], ["Audit log", "/audit", "l"], ["Clean up", "/clean-up", "u"],
];

function page(path) {
  const [first, name, tab] = path.split("/").slice(1);
  switch (first) {
    case "": return html`<${Overview} />`;
    case "topics": return name ? html`<${Topic} key=${name} name=${nameOf(name)} tab=${tab ?? ""} />` : html`<${Topics} />`;
    case "groups": return name ? html`<${Group} key=${name} name=${nameOf(name)} tab=${tab ?? ""} />` : html`<${Groups} />`;
    case "connections": return name === "metrics" ? html`<${ClientMetrics} />` : html`<${Connections} />`;
    case "transactions": return html`<${Transactions} tab=${name ?? ""} />`;
    case "brokers": return name && /^\d+$/.test(name) ? html`<${Broker} key=${name} id=${name} />` : html`<${Brokers} tab=${name ?? ""} />`;
    case "access": return html`<${Access} tab=${name ?? "acls"} />`;
    case "audit": return html`<${Audit} />`;
    case "clean-up": return html`<${CleanUp} />`;
    default: return html`<h1>There is no such page</h1><p><a href="/">Overview</a></p>`;
  }
}

function Login() {
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.target);
    try {
      await ask("/session", "POST", Object.fromEntries(form));
      await readSession();
    } catch (failed) { say(failed.message, true); }
  };
  const usual = session.value.mechanism ?? "SCRAM-SHA-512";
  return html`<main class="login"><form onSubmit=${submit}><h1>Ottla console</h1>
    <p class="soft">Log in as a user of the brokers at ${session.value.bootstrap}. You can see and change what this user is allowed to.</p>
    <label class="block">User<input name="user" autocomplete="username" required autofocus /></label>
    <label class="block">Password<input name="password" type="password" autocomplete="current-password" required /></label>
    <label class="block">Mechanism<select name="mechanism" defaultValue=${usual}>
      ${["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"].map((one) => html`<option selected=${one === usual}>${one}</option>`)}</select></label>
    <div class="bar"><button class="main" type="submit">Log in</button></div></form></main>`;
}

const KEYS = html`<dl class="keys">${[["/", "search"], ["Enter ↓", "from the search to the first row"], ["j k ↓ ↑", "next or previous row"], ["Home End", "first or last row"],
  ["Enter", "open the row"], ["Esc", "close a record or a dialog, leave the search"], ["?", "show this list"],
  ...PAGES.map(([label, , key]) => [`g ${key}`, label])].map(([keys, what]) => html`<div>
    <dt>${keys.split(" ").map((key) => html`<kbd>${key}</kbd> `)}</dt><dd>${what}</dd></div>`)}</dl>`;

// Moves the focus to the page's list, and passes the key to the list.
function toList(event, key = event.key) {
  const list = document.querySelector("main .scroll");
  if (!list) return;
  event.preventDefault();
  list.focus();
  if (key) list.dispatchEvent(new KeyboardEvent("keydown", { key, cancelable: true }));
}

function inSight(list) {
  const { top, bottom } = list?.getBoundingClientRect() ?? {};
  return top < innerHeight - 60 && bottom > 0;
}

function listKeys(event) {
  const { key, target } = event;
  const search = target.matches("input.find"), list = document.querySelector("main .scroll");
  if (key === "Escape" && param("record")) { setParams({ record: "" }); toList(event, null); }
  else if (search && key === "Escape") toList(event, null);
  else if (search && (key === "ArrowDown" || (key === "Enter" && !target.form))) toList(event, "Home");
  else if (/^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName) || list?.contains(target)) return;
  else if (/^[jk]$/.test(key) || (/^Arrow(Up|Down)$/.test(key) && inSight(list) && !target.closest(".record"))) toList(event);
}

let before = "";
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (document.querySelector("dialog[open]")) return;
  if (before !== "g") listKeys(event);
  if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
  const key = event.key;
  if (key === "/") {
    event.preventDefault();
    document.querySelector("input.find")?.focus();
  } else if (key === "?") showDialog({ title: "Keyboard", body: KEYS, verb: "Close" });
  else if (before === "g") {
    const found = PAGES.find((one) => one[2] === key);
    if (found) go(found[1]);
  }
  before = before === "g" ? "" : key;
});

async function logOut() {
  await ask("/session", "DELETE", {}).catch(() => {});
  await readSession();
}

function App() {
  const path = address.value.path, said = session.value;
  useEffect(() => { readSession().catch((failed) => say(failed.message, true)); }, []);
  useEffect(closeDialog, [path]);
  if (!said) return html`<main><p class="soft">Loading …</p><${Toast} /></main>`;
  if (!said.logged_in) return html`<${Login} /><${Toast} />`;
  const current = (href) => (href === "/" ? path === "/" : path.startsWith(href.split("/").slice(0, 2).join("/")));
  return html`<a class="skip" href="#content">Skip to the content</a>
    <nav aria-label="Pages"><div class="name"><img src="/static/icon.svg" alt="" />Ottla</div>
      ${PAGES.map(([label, href]) => html`<a href=${href} aria-current=${current(href) ? "page" : undefined}>${label}</a>`)}
      <hr />
      <div class="foot"><div title=${said.bootstrap}>${said.bootstrap}</div>
        <div><span class=${`live ${streamState.value === "lost" ? "off" : ""}`}>${streamState.value === "lost" ? "not connected" : "live"}</span></div>
        ${said.user && html`<div>${said.user} · <button class="plain" onClick=${logOut}>log out</button></div>`}
        ${!said.changes_allowed && html`<div title="Start the console with --allow-changes to allow changes.">read-only</div>`}
        <label>Theme <select value=${themeChosen.value} onChange=${(event) => useTheme(event.target.value)}>
          ${["system", "light", "dark"].map((one) => html`<option value=${one}>${one}</option>`)}</select></label>
        <div><kbd>?</kbd> keys · <a href="/api/v1/openapi.json">API</a></div></div></nav>
    <main id="content" tabindex="-1">${page(path)}</main><${Dialogs} /><${Toast} />`;
}

applyTheme();
render(html`<${App} />`, document.getElementById("app"));
