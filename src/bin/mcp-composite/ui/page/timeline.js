// Draws a run: one bar per branch.

import { duration, svg, textWidth } from "./elements.js";

const ROW = 26;
const BAR = 16;
const AXIS = 24;
const MAX_LABEL = 240;

/** Returns the name of a branch. */
export function branchName(branch) {
  return branch.element === undefined ? branch.id : `${branch.id}[${branch.element}]`;
}

/** Returns the branches that determine the duration of the run. */
export function criticalPath(run, graph, now) {
  const end = (branch) => branch.ended_ms ?? now;
  const latest = (branches) => branches.reduce((a, b) => (a && end(a) >= end(b) ? a : b), null);
  const before = dependencies(graph);
  const path = new Set();
  // Returns the branches that end one after another, from the last one backwards.
  const walk = (branches, depends) => {
    let current = latest(branches);
    while (current && !path.has(current)) {
      path.add(current);
      const { started_ms: started } = current;
      const open = branches.filter((branch) => !path.has(branch));
      const needed = depends ? open.filter((branch) => before.get(current.id)?.has(branch.id)) : [];
      // Without a dependency, a branch may have waited until another one ended.
      current = latest(needed.length ? needed : open.filter((branch) => end(branch) <= started));
    }
  };
  const started = run.branches.filter((branch) => branch.status !== "skipped");
  walk(started.filter((branch) => branch.element === undefined), true);
  for (const loop of [...path]) {
    walk(started.filter((branch) => branch.id === loop.id && branch.element !== undefined), false);
  }
  return path;
}

/** Returns the ids of the steps that each step of the composite depends on. */
function dependencies(graph) {
  const before = new Map();
  const group = graph?.groups[0]?.id;
  const nodes = (graph?.nodes ?? []).filter((node) => node.group === group);
  const ids = new Map(nodes.map((node) => [node.id, node.lines[0]]));
  for (const { from, to } of graph?.edges ?? []) {
    if (!ids.has(from) || !ids.has(to)) continue;
    const step = ids.get(to);
    if (!before.has(step)) before.set(step, new Set());
    before.get(step).add(ids.get(from));
  }
  return before;
}

/** Draws the timeline of a run. */
export function timeline(run, path, now, width) {
  const total = Math.max(run.ended_ms ?? now, 1, ...run.branches.map((branch) => branch.ended_ms ?? 0));
  const names = run.branches.map(branchName);
  const label = Math.min(MAX_LABEL, Math.max(60, ...names.map((name) => textWidth(name, "600 12px system-ui, sans-serif"))) + 16);
  const scale = (width - label - 90) / total;
  const x = (ms) => label + Math.min(ms, total) * scale;
  const height = AXIS + ROW * run.branches.length;
  const rows = run.branches.map((branch, at) => row(branch, names[at], path.has(branch), AXIS + at * ROW, x, now, label));
  const title = `Timeline of ${run.composite}: ${run.branches.length} branches in ${duration(total)}`;
  return svg(
    "svg",
    { class: "timeline", role: "img", "aria-label": title, width, height, viewBox: `0 0 ${width} ${height}` },
    svg(
      "defs",
      {},
      svg(
        "pattern",
        { id: "hatch", width: 8, height: 8, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
        svg("rect", { class: "hatch-back", width: 8, height: 8 }),
        svg("path", { class: "hatch-line", d: "M2 0V8" }),
      ),
    ),
    axis(total, x, height),
    rows,
  );
}

function axis(total, x, height) {
  return [0, 0.25, 0.5, 0.75, 1].map((part) => {
    const at = x(part * total);
    return [
      svg("line", { class: "grid", x1: at, x2: at, y1: AXIS - 6, y2: height }),
      svg("text", { class: "faint", x: at, y: 12, "text-anchor": "middle" }, duration(part * total)),
    ];
  }).flat();
}

function row(branch, name, isCritical, top, x, now, label) {
  const end = branch.ended_ms ?? now;
  const [left, right] = [x(branch.started_ms), x(end)];
  const middle = top + ROW / 2;
  const y = middle - BAR / 2;
  // The calls of a loop are those of its elements.
  const retries = branch.attempts.length ? branch.calls - 1 : 0;
  const notes = [
    branch.status,
    branch.error,
    branch.reason,
    retries ? `${retries} ${retries === 1 ? "retry" : "retries"}` : null,
    branch.cached ? "cached" : null,
    duration(end - branch.started_ms),
    isCritical ? "critical path" : null,
  ];
  const waits = (branch.waits ?? []).map((wait) => {
    const [from, until] = [x(wait.from_ms), x(wait.until_ms ?? now)];
    return svg("rect", { class: "wait", x: from, y, width: Math.max(until - from, 2), height: BAR, fill: "url(#hatch)" });
  });
  const attempts = branch.attempts.map((attempt) => {
    // Within the bar, also at its ends.
    const at = Math.max(Math.min(x(attempt.at_ms), right - 2), left + 2);
    return svg("line", { class: "attempt", x1: at, x2: at, y1: y, y2: y + BAR });
  });
  const shown = shorten(name, label - 12);
  return svg(
    "g",
    { class: `branch ${branch.status}${isCritical ? " critical" : ""}`, "data-branch": name },
    svg("title", {}, `${name}: ${notes.filter(Boolean).join(", ")}`),
    svg("text", { x: label - 10, y: middle + 4, "text-anchor": "end" }, shown),
    svg("rect", { class: "bar", x: left, y, width: Math.max(right - left, 3), height: BAR, rx: 2 }),
    waits,
    attempts,
    svg("text", { class: "faint", x: Math.max(right, left + 3) + 6, y: middle + 4 }, duration(end - branch.started_ms)),
  );
}

function shorten(text, width) {
  if (textWidth(text) <= width) return text;
  let end = text.length;
  while (end > 1 && textWidth(`${text.slice(0, end)}…`) > width) end -= 1;
  return `${text.slice(0, end)}…`;
}
