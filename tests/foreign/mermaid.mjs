#!/usr/bin/env node
// Draws the charts that come on stdin, as a JSON array of texts, with the Mermaid that
// others wrote, in a page without a browser. Prints for each, as a JSON array, the texts
// of its nodes, arrows and titles as a reader sees them, and whatever is in the picture
// that could do something.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

import { requireInstalled } from "./steps.mjs";

const { JSDOM } = requireInstalled("jsdom");

const { window } = new JSDOM("<!doctype html>");
globalThis.window = window;
for (const name of ["CSSStyleSheet", "document", "DOMParser", "Element", "HTMLElement", "Node", "SVGElement"]) {
  globalThis[name] ??= window[name];
}
// A page without a browser does not know how large anything is.
window.SVGElement.prototype.getBBox = () => ({ x: 0, y: 0, width: 100, height: 20 });
window.SVGElement.prototype.getComputedTextLength = () => 100;
// With such sizes an arrow may miss its node, which is then encoded instead of a point.
globalThis.btoa = (text) => Buffer.from(text).toString("base64");

// Its package has nothing for `require`.
const package_ = requireInstalled.resolve("mermaid/package.json");
const { default: mermaid } = await import(
  new URL("dist/mermaid.core.mjs", pathToFileURL(package_))
);

function texts(picture, selector) {
  return [...picture.querySelectorAll(selector)].map((element) => element.textContent);
}

async function draw(chart, at) {
  await mermaid.parse(chart);
  const { svg } = await mermaid.render(`chart${at}`, chart);
  const picture = document.createElement("div");
  picture.innerHTML = svg;
  const active = "script, iframe, object, embed, img, a, form, input, button, style ~ style";
  const handlers = [...picture.querySelectorAll("*")].flatMap((element) =>
    element.getAttributeNames().filter((name) => name.startsWith("on")),
  );
  return {
    nodes: texts(picture, "g.node"),
    arrows: texts(picture, "g.edgeLabels g.edgeLabel > g.label"),
    titles: texts(picture, "g.cluster-label"),
    active: [...[...picture.querySelectorAll(active)].map((one) => one.tagName), ...handlers],
  };
}

// The strictest of its levels is the default; the loosest must be as good.
mermaid.initialize({ startOnLoad: false, securityLevel: "loose" });
const drawn = [];
for (const [at, chart] of JSON.parse(readFileSync(0, "utf8")).entries()) {
  drawn.push(await draw(chart, at));
}
process.stdout.write(`${JSON.stringify(drawn)}\n`);
