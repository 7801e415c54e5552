// The page: receives runs from the stream of events, and shows the section that the URL names.

import { diagram } from "./diagram.js";
import { copyButton, duration, html, setOptions } from "./elements.js";
import { branchName, criticalPath, timeline } from "./timeline.js";
import { catalogOf, hasViews, viewName, viewsOf } from "./views.js";

const MAX_RUNS = 1000;
const SECTIONS = ["runs", "composites", "tools", "backends", "budgets"];

const find = (id) => document.getElementById(id);
const body = (id) => find(id).tBodies[0];

const runs = new Map();
const rows = new Map();
let about = null;
let catalog = { view: null, tools: [], composites: [], remarks: [], views: [] };
// The path of the view whose tools and composites are shown; empty for the file itself.
let view = "";
let selected = null;
let shown = null;
let timer = null;
let isFirst = true;

async function load(path) {
  const response = await fetch(path);
  if (!response.ok) throw new Error((await response.text()) || `${path}: ${response.status}`);
  return response.json();
}

function status(text, label = text) {
  return html("span", { class: `status ${text}` }, label);
}

// Runs

function receive({ instance, runs: changed }) {
  if (about && instance !== about.instance) {
    location.reload();
    return;
  }
  const isNew = changed.filter((run) => !runs.has(run.id) && !run.parent);
  for (const run of changed) {
    runs.delete(run.id);
    runs.set(run.id, run);
    draw(run);
  }
  const oldest = [...runs.values()].sort((a, b) => a.started_at_ms - b.started_at_ms);
  for (const run of oldest.slice(0, Math.max(0, runs.size - MAX_RUNS))) {
    runs.delete(run.id);
    rows.get(run.id)?.remove();
    rows.delete(run.id);
  }
  if (!isFirst && isNew.length) {
    const names = [...new Set(isNew.map((run) => run.composite))].join(", ");
    find("announcement").textContent = `${isNew.length === 1 ? "New run" : `${isNew.length} new runs`}: ${names}`;
  }
  isFirst = false;
  filter();
  const isShown = (run) => run.id === selected || run.parent?.run === selected;
  if (selected && changed.some(isShown)) showRun();
}

function draw(run) {
  const row = html(
    "tr",
    { "data-run": run.id, class: rows.has(run.id) || isFirst ? "" : "new" },
    html("th", { scope: "row" }, html("a", { href: `#runs/${run.id}` }, run.composite), run.parent ? " (nested)" : run.task ? " (task)" : ""),
    html("td", { class: "view" }, viewName(run.view)),
    html("td", {}, status(run.status), run.limit ? ` (${run.limit})` : "", waitingFor(run)),
    html("td", {}, new Date(run.started_at_ms).toLocaleTimeString()),
    html("td", { class: "number" }, duration(run.took_ms)),
    html("td", { class: "number" }, run.branches, run.failed_branches ? ` (${run.failed_branches} failed)` : ""),
    html("td", { class: "number" }, run.retries),
  );
  const before = rows.get(run.id);
  rows.set(run.id, row);
  row.classList.toggle("selected", run.id === selected);
  if (!before) {
    body("runs-table").prepend(row);
    return;
  }
  const hadFocus = before.contains(document.activeElement);
  before.replaceWith(row);
  if (hadFocus) row.querySelector("a").focus();
}

/** Returns the branches for which a run waits, as text. */
function waitingFor({ status, waiting }) {
  return status === "waiting" && waiting.length ? ` for ${waiting.join(", ")}` : "";
}

function filter() {
  const tool = find("filter-tool").value.trim().toLowerCase();
  const wanted = find("filter-status").value;
  const nested = find("filter-nested").checked;
  drawViews();
  const of = find("filter-view").value;
  let count = 0;
  for (const [id, row] of rows) {
    const run = runs.get(id);
    const isShown =
      [run.composite.toLowerCase(), run.task ?? ""].some((name) => name.includes(tool)) &&
      (!wanted || run.status === wanted) && (!of || viewName(run.view) === of) && (nested || !run.parent);
    row.hidden = !isShown;
    count += isShown;
  }
  find("runs-count").textContent = `${count} of ${rows.size} runs`;
  find("runs-empty").hidden = rows.size > 0;
  find("runs-table").hidden = rows.size === 0;
  const names = [...new Set([...runs.values()].map((run) => run.composite))].sort();
  find("filter-tools").replaceChildren(...names.map((name) => html("option", { value: name })));
}

/** Shows the choices of views, if there are any. */
function drawViews() {
  const views = viewsOf(catalog, runs.values());
  const names = views.map((path) => [viewName(path), viewName(path)]);
  setOptions(find("filter-view"), [["", "all"], ...names]);
  const own = [catalog, ...catalog.views].map((catalog) => catalog.view ?? "");
  for (const id of ["tools-view", "composites-view"]) {
    setOptions(find(id), own.map((path) => [path, viewName(path)]));
    find(id).value = view;
  }
  document.body.classList.toggle("without-views", !hasViews(views));
}

/** Shows the tools and composites of another view. */
function chooseView({ target }) {
  view = target.value;
  drawCatalog();
}

async function showRun(isFocused = false) {
  const id = selected;
  clearTimeout(timer);
  for (const [other, row] of rows) row.classList.toggle("selected", other === id);
  if (!id) {
    find("run").hidden = true;
    return;
  }
  try {
    const loaded = await load(`/api/runs/${encodeURIComponent(id)}`);
    if (id !== selected) return;
    shown = loaded;
    drawRun();
  } catch (error) {
    if (id !== selected) return;
    find("run").replaceChildren(html("h3", { id: "run-title" }, "Run"), html("p", {}, error.message));
  }
  find("run").hidden = false;
  if (isFocused) find("run").focus();
}

/** Returns the time up to which the bars of a run are drawn, since its start. */
function latestTime(run) {
  if (run.ended_ms !== undefined) return run.ended_ms;
  const known = run.branches.flatMap((branch) => [branch.started_ms, branch.ended_ms ?? 0]);
  return Math.max(about?.is_live ? Date.now() - run.started_at_ms : 0, ...known);
}

function drawRun() {
  const { run, nested } = shown;
  const article = find("run");
  const focused = [...article.querySelectorAll("button, summary")].indexOf(document.activeElement);
  const isOpened = find("data")?.open;
  const own = catalogOf(catalog, run.view)?.composites ?? [];
  const composite = own.find((other) => other.name === run.composite);
  const now = latestTime(run);
  const path = criticalPath(run, composite?.graph, now);
  article.replaceChildren(
    ...[
      html("h3", { id: "run-title" }, `Run of ${run.composite} `, status(run.status)),
      facts(run),
      html(
        "p",
        { class: "buttons" },
        copyButton("Copy run as JSON", () => JSON.stringify(shown.run, null, 2)),
        composite ? copyButton("Copy composite as Mermaid", () => composite.mermaid) : null,
        about?.can_cancel && canCancel(run) ? cancelButton(run) : null,
        html("button", { type: "button", onclick: () => (location.hash = "#runs") }, "Close"),
      ),
      html("div", { id: "timeline", class: "scroll", tabindex: 0, role: "region", "aria-label": "Timeline" }),
      legend(),
      run.omitted_branches ? html("p", { class: "note" }, `${run.omitted_branches} more branches are not kept.`) : null,
      branches(run, path, now),
      nested.length ? nestedRuns(nested) : null,
      ...data(run, isOpened),
    ].filter(Boolean),
  );
  if (focused >= 0) article.querySelectorAll("button, summary")[focused]?.focus();
  drawTimeline(composite?.graph);
}

/** Returns whether a run can be cancelled: it is running, or a task that waits. */
function canCancel({ status, task }) {
  return status === "running" || (status === "waiting" && task !== undefined);
}

/** Returns a button that cancels a run. The stream of events reports the end of the run. */
function cancelButton(run) {
  const cancel = async () => {
    if (!confirm(`Cancel the run of ${run.composite}? Its caller receives an error.`)) return;
    const response = await fetch(`/api/runs/${run.id}/cancel`, { method: "POST" });
    if (!response.ok) find("announcement").textContent = `Cannot cancel: ${await response.text()}`;
  };
  return html("button", { type: "button", id: "cancel", onclick: cancel }, "Cancel run");
}

/** Draws the timeline, and again every second while the run is open. */
function drawTimeline(graph) {
  clearTimeout(timer);
  const { run } = shown;
  const now = latestTime(run);
  const width = Math.max(find("run").clientWidth || find("main").clientWidth, 480) - 32;
  find("timeline").replaceChildren(timeline(run, criticalPath(run, graph, now), now, width));
  if (run.ended_ms === undefined && about?.is_live) {
    timer = setTimeout(() => shown && drawTimeline(graph), 1000);
  }
}

function facts(run) {
  const parent = run.parent;
  const entries = [
    ["Id", run.id],
    ["Task", run.task],
    ["Started", new Date(run.started_at_ms).toLocaleString()],
    ["Duration", run.took_ms === undefined ? null : duration(run.took_ms)],
    ["With waiting", run.ended_ms > run.took_ms ? duration(run.ended_ms) : null],
    ["View", hasViews(viewsOf(catalog, [run])) ? viewName(run.view) : null],
    ["Limit", run.limit],
    ["Called by", parent ? html("a", { href: `#runs/${parent.run}` }, `${parent.branch} of run ${parent.run}`) : null],
    ["Note", run.is_partial ? "The run began before this log, so its first part is missing." : null],
  ];
  const given = entries.filter(([, value]) => value !== null && value !== undefined);
  return html("dl", {}, given.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}

function legend() {
  const entries = ["a tick is a call of the tool", "hatched: waits for a person", "outlined: the critical path"];
  return html("ul", { class: "legend" }, entries.map((entry) => html("li", {}, entry)));
}

function branches(run, path, now) {
  const titles = ["Branch", "Status", "Error or reason", "Start", "Duration", "Calls", "Tool", "Critical path"];
  const numbers = ["Start", "Duration", "Calls"];
  const entries = run.branches.map((branch) => {
    const tools = [...new Set(branch.attempts.map((attempt) => attempt.tool))];
    const after = branch.attempts.map((attempt) => attempt.after).filter(Boolean);
    return html(
      "tr",
      {},
      html("th", { scope: "row" }, branchName(branch)),
      html("td", {}, status(branch.status)),
      html("td", {}, branch.error ?? branch.reason ?? "", after.length ? ` (retried after ${after.join(", ")})` : ""),
      html("td", { class: "number" }, duration(branch.started_ms)),
      html("td", { class: "number" }, duration((branch.ended_ms ?? now) - branch.started_ms)),
      html("td", { class: "number" }, branch.calls, branch.cached ? " (cached)" : ""),
      html("td", {}, tools.join(", ")),
      html("td", {}, path.has(branch) ? "yes" : ""),
    );
  });
  const head = titles.map((title) => html("th", { scope: "col", class: numbers.includes(title) ? "number" : "" }, title));
  return html(
    "div",
    { class: "scroll", tabindex: 0, role: "region", "aria-label": "Branches" },
    html("table", { id: "branches" }, html("thead", {}, html("tr", {}, head)), html("tbody", {}, entries)),
  );
}

function nestedRuns(nested) {
  const entries = nested.map((run) =>
    html("li", {}, html("a", { href: `#runs/${run.id}` }, `${run.composite}, called by ${run.parent.branch}`), " ", status(run.status)),
  );
  return html("div", {}, html("h4", {}, "Nested runs"), html("ul", {}, entries));
}

function data(run, isOpened) {
  if (!about?.shows_data) {
    return [html("p", { class: "note", id: "no-data" }, "Arguments and results are not shown. Start the program with --show-data to see them.")];
  }
  const calls = run.branches.flatMap((branch) => [
    ...branch.attempts.map((attempt) => [`${branchName(branch)}: arguments of ${attempt.tool}`, attempt.arguments]),
    [`${branchName(branch)}: result`, branch.result],
  ]);
  const own = [[`Arguments of ${run.composite}`, run.arguments], [`Result of ${run.composite}`, run.result]];
  const entries = [...own, ...calls].filter(([, value]) => value !== undefined);
  if (!entries.length) return [];
  return [
    html(
      "details",
      { id: "data", open: isOpened },
      html("summary", {}, "Arguments and results"),
      html("p", { class: "note" }, "Arguments are shown as composites send them, and results as composites receive them."),
      entries.map(([name, value]) => [html("h4", {}, name), html("pre", {}, JSON.stringify(value, null, 2))]).flat(),
    ),
  ];
}

// Composites, tools, backends and budgets

async function loadCatalog() {
  find("refresh").disabled = true;
  try {
    catalog = (await load("/api/catalog")) ?? catalog;
  } catch (error) {
    catalog = { ...catalog, error: error.message };
  }
  find("refresh").disabled = false;
  // A reload may have removed it.
  if (!catalogOf(catalog, view)) view = catalog.view ?? "";
  drawCatalog();
  if (selected && shown) drawRun();
}

function drawCatalog() {
  drawViews();
  drawTools();
  drawComposites();
}

function drawTools() {
  const { tools, error, remarks: all } = catalogOf(catalog, view) ?? catalog;
  const isKnown = tools !== null;
  find("tools-empty").hidden = isKnown;
  find("tools-table").hidden = !isKnown;
  find("refresh").hidden = !isKnown;
  const remarks = [error, ...all].filter(Boolean);
  find("remarks").replaceChildren(...remarks.map((remark) => html("li", {}, remark)));
  const entries = (tools ?? []).map((tool) =>
    html(
      "tr",
      { class: tool.hidden_by ? "off" : "", "data-tool": tool.name },
      html("th", { scope: "row" }, tool.hidden_by ? tool.name : tool.signature.replace(/^[^(]*/, () => tool.name)),
      html("td", {}, tool.source),
      html("td", {}, tool.hidden_by ? `no, hidden by ${tool.hidden_by}` : "yes"),
      html("td", {}, tool.names.map(({ name, reason }) => html("div", {}, `${name} (${reason})`))),
      html("td", {}, tool.description.split("\n")[0]),
    ),
  );
  body("tools-table").replaceChildren(...entries);
}

function drawComposites() {
  const { composites } = catalogOf(catalog, view) ?? catalog;
  const entries = composites.map((composite) =>
    html(
      "div",
      { class: "diagram", id: `composites/${composite.name}` },
      html("h3", {}, composite.name),
      html("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Diagram of ${composite.name}` }, diagram(composite.name, composite.graph)),
      html("p", { class: "buttons" }, copyButton("Copy as Mermaid", () => composite.mermaid)),
    ),
  );
  find("composites-list").replaceChildren(...(entries.length ? entries : [html("p", {}, "There are no composites.")]));
}

let states = "";

async function loadBackends() {
  const backends = await load("/api/backends").catch(() => undefined);
  if (backends === undefined) return;
  find("backends-empty").hidden = backends !== null;
  find("backends-table").hidden = backends === null;
  const entries = (backends ?? []).map((backend) =>
    html(
      "tr",
      {},
      html("th", { scope: "row" }, backend.name),
      html("td", {}, backend.is_connected ? status("connected") : [status("failed", "not connected"), `: ${backend.reason}`]),
      html("td", {}, backend.transport ?? ""),
      html("td", {}, backend.server ?? ""),
      html("td", {}, backend.protocol ?? ""),
    ),
  );
  body("backends-table").replaceChildren(...entries);
  const latest = JSON.stringify((backends ?? []).map((backend) => [backend.name, backend.is_connected]));
  if (states && states !== latest) await loadCatalog();
  states = latest;
}

function drawBudgets(budgets) {
  find("budgets-empty").hidden = budgets?.length > 0;
  find("budgets-table").hidden = !budgets?.length;
  if (!budgets) find("budgets-empty").textContent = "A recording contains no budgets.";
  const scopes = { run: "each run", caller: "each caller" };
  const entries = (budgets ?? []).map(({ name, view, unit, per, limit, used, callers, refill }) =>
    html(
      "tr",
      { "data-budget": name },
      html("th", { scope: "row" }, name),
      html("td", { class: "view" }, viewName(view)),
      html("td", {}, scopes[per] ?? per),
      html("td", { class: "number" }, used === null ? "" : [html("meter", { max: limit, value: used, "aria-hidden": "true" }), ` ${used}`]),
      html("td", { class: "number" }, `${limit} ${unit}`),
      html("td", {}, refill ?? "never"),
      html("td", { class: "number" }, per === "caller" ? (callers ?? "not known") : ""),
    ),
  );
  body("budgets-table").replaceChildren(...entries);
}

// Sections

function route() {
  const [name, ...rest] = location.hash.slice(1).split("/");
  const section = SECTIONS.includes(name) ? name : "runs";
  for (const other of SECTIONS) {
    find(other).hidden = other !== section;
    const link = document.querySelector(`nav a[href="#${other}"]`);
    if (other === section) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const before = selected;
  selected = section === "runs" && rest.length ? rest.join("/") : null;
  if (selected !== before) {
    shown = null;
    showRun(selected !== null);
  }
  // Widths are only known while the section is visible.
  if (section === "composites") drawComposites();
}

function connect() {
  const events = new EventSource("/api/events");
  const state = (text) => (find("connection").textContent = text);
  events.addEventListener("open", () => state(about?.is_live ? "live" : "recording"));
  events.addEventListener("error", () => {
    state("disconnected; trying again");
    // The browser connects again by itself, unless the program refused the connection.
    if (events.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  });
  events.addEventListener("runs", (event) => receive(JSON.parse(event.data)));
  events.addEventListener("budgets", (event) => drawBudgets(JSON.parse(event.data)));
  events.addEventListener("config", () => Promise.all([loadCatalog(), loadBackends()]));
}

async function start() {
  find("filters").addEventListener("submit", (event) => event.preventDefault());
  find("filters").addEventListener("input", filter);
  find("refresh").addEventListener("click", loadCatalog);
  for (const id of ["tools-view", "composites-view"]) find(id).addEventListener("change", chooseView);
  window.addEventListener("hashchange", route);
  window.addEventListener("resize", () => selected && shown && drawRun());
  try {
    about = await load("/api/about");
  } catch (error) {
    find("connection").textContent = error.message;
    return;
  }
  find("file").textContent = about.file;
  document.title = `${about.file}, mcp-composite`;
  find("warning").textContent = about.warning ?? "";
  find("warning").hidden = !about.warning;
  filter();
  route();
  connect();
  await Promise.all([loadCatalog(), loadBackends()]);
  if (!about.is_live) drawBudgets(null);
  if (about.is_live) {
    setInterval(() => document.hidden || loadBackends(), 5000);
  }
}

start();
