// Creates elements. All text becomes text nodes, never markup: names, descriptions and errors
// come from servers that are not trusted.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) {
      element.addEventListener(name.slice(2), value);
    } else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(node));
  return element;
}

function node(child) {
  return child instanceof Node ? child : document.createTextNode(String(child));
}

/** Creates an HTML element. */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** Creates an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets the options of a selection, each with its label. Keeps the selected one if it remains. */
export function setOptions(select, options) {
  const text = JSON.stringify(options);
  // A list that is open would close.
  if (select.dataset.options === text) return;
  select.dataset.options = text;
  const before = select.value;
  select.replaceChildren(...options.map(([value, label]) => html("option", { value }, label)));
  if (options.some(([value]) => value === before)) select.value = before;
}

/** Returns a duration as text. */
export function duration(ms) {
  if (ms === null || ms === undefined) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  if (ms < 3_600_000) return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
  return `${(ms / 3_600_000).toFixed(1)} h`;
}

const context = document.createElement("canvas").getContext("2d");

/** Returns the width of a text in pixels. */
export function textWidth(text, font = "12px system-ui, sans-serif") {
  context.font = font;
  return context.measureText(text).width;
}

/** Returns a button that copies a text, and reports whether it could. */
export function copyButton(label, text) {
  const button = html("button", { type: "button", "aria-live": "polite" }, label);
  let timer;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(await text());
      button.textContent = "Copied";
    } catch {
      button.textContent = "Cannot copy: the browser refuses";
    }
    clearTimeout(timer);
    timer = setTimeout(() => (button.textContent = label), 2000);
  });
  return button;
}
