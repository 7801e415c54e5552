// Draws the graph of a composite: layers from top to bottom, one box per composite.

import { svg, textWidth } from "./elements.js";

const LINE = 16;
const PADDING = 10;
const GAP_X = 28;
const GAP_Y = 44;
const GROUP_GAP = 36;
const SWEEPS = 6;

let diagrams = 0;

/** Returns a diagram of the graph, with a text for screen readers. */
export function diagram(name, graph) {
  const marker = `arrow-${diagrams++}`;
  const placed = new Map();
  const parts = [];
  let top = 0;
  let width = 0;
  for (const group of graph.groups) {
    const layout = layOut(graph, group);
    for (const [id, box] of layout.boxes) placed.set(id, { ...box, y: box.y + top });
    const box = { x: 0, y: top, width: layout.width, height: layout.height };
    placed.set(group.id, { ...box, isGroup: true });
    parts.push(
      svg("rect", { class: "group", ...box, rx: 6 }),
      svg("text", { class: "title", x: PADDING, y: top + LINE + 2 }, group.title),
      layout.edges.map((edge) => drawEdge(edge, top, marker)),
      [...layout.boxes.values()].filter((box) => box.node).map((box) => drawNode(box, top)),
    );
    width = Math.max(width, layout.width);
    top += layout.height + GROUP_GAP;
  }
  const calls = graph.edges.filter((edge) => placed.get(edge.to)?.isGroup);
  let lane = width;
  for (const call of calls) {
    const from = placed.get(call.from);
    const to = placed.get(call.to);
    if (!from) continue;
    lane += 16;
    const start = { x: from.x + from.width, y: from.y + from.height / 2 };
    const end = { x: to.x + to.width, y: to.y + LINE };
    const path = `M${start.x} ${start.y}H${lane}V${end.y}H${end.x + 2}`;
    parts.push(svg("path", { class: "edge dotted", d: path, "marker-end": `url(#${marker})` }));
    if (call.label) {
      parts.push(svg("text", { class: "label", x: start.x + 6, y: start.y - 4 }, call.label));
    }
  }
  const arrow = svg(
    "marker",
    { id: marker, viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" },
    svg("path", { class: "arrow", d: "M0 0L8 4L0 8Z" }),
  );
  const height = Math.max(top - GROUP_GAP, 1);
  const size = { width: lane + 12, height: height + 2, viewBox: `-1 -1 ${lane + 14} ${height + 4}` };
  const label = `Diagram of ${name}: ${described(graph)}`;
  return svg("svg", { class: "diagram-svg", role: "img", "aria-label": label, ...size }, svg("defs", {}, arrow), parts);
}

/** Describes the steps and their dependencies. */
function described(graph) {
  const group = graph.groups[0]?.id;
  const names = new Map(graph.nodes.map((node) => [node.id, node.lines[0]]));
  const steps = graph.nodes.filter((node) => node.group === group && node.lines[0] !== "input");
  return steps
    .map((node) => {
      const before = graph.edges.filter((edge) => edge.to === node.id).map((edge) => names.get(edge.from));
      return `${node.lines.join(", ")}, after ${before.join(" and ") || "nothing"}`;
    })
    .join("; ");
}

function layOut(graph, group) {
  const nodes = graph.nodes.filter((node) => node.group === group.id);
  const ids = new Set(nodes.map((node) => node.id));
  const edges = graph.edges.filter((edge) => ids.has(edge.from) && ids.has(edge.to));
  const ranks = rank(nodes, edges);
  const layers = [];
  const add = (item, at) => (layers[at] ??= []).push(item);
  const items = new Map();
  for (const node of nodes) {
    const labels = edges.filter((edge) => edge.to === node.id).map((edge) => edge.label ?? "");
    const lines = [...node.lines, ...labels];
    const width = Math.max(...lines.map((line) => textWidth(line))) + 2 * PADDING + 8;
    const item = { node, width, height: node.lines.length * LINE + PADDING, next: [], before: [] };
    items.set(node.id, item);
    add(item, ranks.get(node.id));
  }
  // An edge over several layers passes an invisible item in each, so that it meets no node.
  const routes = edges.map((edge) => {
    const route = [items.get(edge.from)];
    for (let at = ranks.get(edge.from) + 1; at < ranks.get(edge.to); at += 1) {
      const item = { width: 8, height: 0, next: [], before: [] };
      add(item, at);
      route.push(item);
    }
    route.push(items.get(edge.to));
    for (let at = 1; at < route.length; at += 1) {
      route[at - 1].next.push(route[at]);
      route[at].before.push(route[at - 1]);
    }
    return { edge, route };
  });
  const filled = layers.filter(Boolean);
  sort(filled);
  return place(group, filled, items, routes);
}

/** Returns the layer of each node: the length of the longest path to it. */
function rank(nodes, edges) {
  const ranks = new Map(nodes.map((node) => [node.id, 0]));
  for (let round = 0; round < nodes.length; round += 1) {
    let changed = false;
    for (const { from, to } of edges) {
      if (ranks.get(to) <= ranks.get(from) && ranks.get(from) < nodes.length) {
        ranks.set(to, ranks.get(from) + 1);
        changed = true;
      }
    }
    if (!changed) break;
  }
  return ranks;
}

/** Orders the items of each layer by the mean position of their neighbours. */
function sort(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((item, at) => (item.at = at)));
  const mean = (items, own) =>
    items.length ? items.reduce((sum, item) => sum + item.at, 0) / items.length : own;
  number();
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const side = sweep % 2 ? "next" : "before";
    const order = sweep % 2 ? [...layers].reverse() : layers;
    for (const layer of order) {
      for (const item of layer) item.key = mean(item[side], item.at);
      layer.sort((a, b) => a.key - b.key || a.at - b.at);
      layer.forEach((item, at) => (item.at = at));
    }
  }
}

function place(group, layers, items, routes) {
  const widthOf = (layer) => layer.reduce((sum, item) => sum + item.width + GAP_X, -GAP_X);
  const title = textWidth(group.title, "600 12px system-ui, sans-serif") + 2 * PADDING;
  const inner = Math.max(title, ...layers.map(widthOf));
  let y = LINE + 2 * PADDING;
  for (const layer of layers) {
    let x = 2 * PADDING + (inner - widthOf(layer)) / 2;
    const height = Math.max(...layer.map((item) => item.height));
    for (const item of layer) {
      item.x = x;
      // An invisible item is as high as its layer, so that its edge stays straight there.
      item.height = item.node ? item.height : height;
      item.y = y + (height - item.height) / 2;
      x += item.width + GAP_X;
    }
    y += height + GAP_Y;
  }
  const edges = routes.map(({ edge, route }) => ({
    ...edge,
    points: route.flatMap((item, at) => {
      const x = item.x + item.width / 2;
      const [start, end] = [{ x, y: item.y }, { x, y: item.y + item.height }];
      if (!item.node) return [start, end];
      return [at === 0 ? end : start];
    }),
  }));
  return { boxes: items, edges, width: inner + 4 * PADDING, height: y - GAP_Y + 2 * PADDING };
}

function drawEdge({ points, label, is_dotted: isDotted }, top, marker) {
  let path = `M${points[0].x} ${points[0].y + top}`;
  for (let at = 1; at < points.length; at += 1) {
    const [from, to] = [points[at - 1], points[at]];
    const middle = (from.y + to.y) / 2 + top;
    path += `C${from.x} ${middle} ${to.x} ${middle} ${to.x} ${to.y + top}`;
  }
  const line = svg("path", { class: isDotted ? "edge dotted" : "edge", d: path, "marker-end": `url(#${marker})` });
  if (!label) return [line];
  const last = points[points.length - 1];
  const at = { x: last.x, y: last.y + top - 16, "text-anchor": "middle" };
  return [line, svg("text", { class: "label", ...at }, label)];
}

function drawNode({ node, x, y, width, height }, top) {
  const style = { class: node.is_conditional ? "node conditional" : "node" };
  const box = { x, y: y + top, width, height };
  const shapes = {
    input: () => [svg("rect", { ...style, ...box, rx: height / 2 })],
    nested: () => [
      svg("rect", { ...style, ...box }),
      svg("path", { class: "inner", d: `M${x + 5} ${box.y}V${box.y + height}M${x + width - 5} ${box.y}V${box.y + height}` }),
    ],
    loop: () => [svg("polygon", { ...style, points: hexagon(box, 8) })],
    switch: () => [svg("polygon", { ...style, points: hexagon(box, 14) })],
    question: () => [svg("polygon", { ...style, points: slanted(box) })],
  };
  const shape = (shapes[node.shape] ?? (() => [svg("rect", { ...style, ...box, rx: 4 })]))();
  const lines = node.lines.map((line, at) =>
    svg(
      "text",
      { x: x + width / 2, y: box.y + PADDING / 2 + 12 + at * LINE, "text-anchor": "middle", class: at ? "faint" : "" },
      line,
    ),
  );
  return svg("g", { "data-node": node.lines[0] }, shape, lines);
}

/** Returns the corners of a box whose left and right ends are pointed. */
function hexagon({ x, y, width, height }, depth) {
  const [right, bottom, middle] = [x + width, y + height, y + height / 2];
  return `${x + depth},${y} ${right - depth},${y} ${right},${middle} ${right - depth},${bottom} ${x + depth},${bottom} ${x},${middle}`;
}

/** Returns the corners of a parallelogram. */
function slanted({ x, y, width, height }) {
  return `${x + 8},${y} ${x + width},${y} ${x + width - 8},${y + height} ${x},${y + height}`;
}
