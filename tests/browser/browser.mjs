#!/usr/bin/env node
// Drives a browser: reads a command per line from stdin, as JSON, and prints the answer of
// each as JSON. Its argument is the folder with the driver.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(`${process.argv[2]}/package.json`);
const puppeteer = require("puppeteer-core");

const TIMEOUT = 60_000;

const browser = await puppeteer.launch({
  executablePath: process.env.CHROMIUM || "/usr/bin/chromium",
  headless: true,
  // Root cannot use the sandbox.
  args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
});
const page = await browser.newPage();
page.setDefaultTimeout(TIMEOUT);
// Whatever went wrong in the page, such as a script that the policy refuses.
const problems = [];
page.on("pageerror", (error) => problems.push(String(error)));
page.on("console", (message) => {
  if (["error", "warn"].includes(message.type())) problems.push(message.text());
});

page.on("dialog", (dialog) => dialog.accept());

const commands = {
  open: (url) => page.goto(url),
  evaluate: (expression) => page.evaluate(expression),
  wait: (expression) => page.waitForFunction(expression, { polling: 50 }),
  click: (selector) => page.click(selector),
  type: ([selector, text]) => page.type(selector, text),
  press: (key) => page.keyboard.press(key),
  select: ([selector, value]) => page.select(selector, value),
  scheme: (value) => page.emulateMediaFeatures([{ name: "prefers-color-scheme", value }]),
  size: ([width, height]) => page.setViewport({ width, height }),
  screenshot: (path) => page.screenshot({ path }),
  allow: (permissions) => {
    const { origin } = new URL(page.url());
    return browser.defaultBrowserContext().overridePermissions(origin, permissions);
  },
  problems: () => problems,
};

for await (const line of createInterface({ input: process.stdin })) {
  const [[name, value]] = Object.entries(JSON.parse(line));
  let answer;
  try {
    const result = await commands[name](value);
    answer = { ok: ["evaluate", "problems"].includes(name) ? (result ?? null) : null };
  } catch (error) {
    answer = { error: String(error) };
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
