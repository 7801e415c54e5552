// What the two JavaScript clients share: they read a script, run its steps one
// after the other, and print one JSON object per step. README.md lists the
// steps; client.py understands the same ones.
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";

// Packages are under target/, where Node would not look from here.
export const requireInstalled = createRequire(
  new URL("../../target/foreign/package.json", import.meta.url),
);

// Version 2 of the SDK logs to stdout, where only our lines belong.
console.debug = console.info = console.log = console.error;

// A server that pages for ever must not hang the test that shows it.
const MOST_PAGES = 100;

// `open(script)` connects an SDK's client and returns it as
// `{ client, protocolVersion, callTool(params, options), steps }`; `steps` are those that only
// this client has.
export async function runScript(open) {
  const argument = process.argv[2] ?? "-";
  const script = JSON.parse(argument === "-" ? readFileSync(0, "utf8") : argument);

  const { client, connected } = open(script);
  const heard = listenFor(client);

  const connection = await outcome("connect", async () => {
    const { protocolVersion, callTool, steps } = await connected;
    return {
      callTool,
      own: steps,
      result: {
        protocolVersion: protocolVersion(),
        serverInfo: client.getServerVersion() ?? null,
        capabilities: client.getServerCapabilities() ?? null,
        instructions: client.getInstructions() ?? null,
      },
    };
  });
  const { callTool, own, ...printed } = connection;
  print(printed);
  if (printed.error) {
    await client.close();
    process.exit(1);
  }

  const steps = stepsOf(client, callTool, heard, own);
  for (const step of script.steps ?? []) {
    print(await steps.perform(step));
  }
  print(await outcome("close", async () => (await client.close(), { result: {} })));
  // A server that does not end must not keep its client's process either.
  process.exit(0);
}

function print(line) {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

async function outcome(step, work) {
  try {
    return { step, ...(await work()) };
  } catch (error) {
    // The first SDK writes the code into the message as well; the others do not.
    const message = String(error?.message ?? error).replace(/^MCP error -?\d+: /, "");
    return { step, error: { code: error?.code ?? null, message, data: error?.data ?? null } };
  }
}

// Keeps every notification that the SDK does not consume itself.
function listenFor(client) {
  const all = [];
  const unread = [];
  const waiting = [];
  client.fallbackNotificationHandler = async ({ method, params }) => {
    const notification = { method, params };
    all.push(notification);
    const waiter = waiting.findIndex((one) => one.method === method);
    if (waiter < 0) unread.push(notification);
    else waiting.splice(waiter, 1)[0].resolve(notification);
  };
  // Each notification ends one wait, whether it came before or after.
  const next = (method, withinMs) => {
    const early = unread.findIndex((one) => one.method === method);
    if (early >= 0) return unread.splice(early, 1)[0];
    return new Promise((resolve, reject) => {
      waiting.push({ method, resolve });
      setTimeout(() => reject(new Error(`no ${method} within ${withinMs} ms`)), withinMs);
    });
  };
  return { all, next };
}

async function allPages(list, key, params) {
  if (params.cursor !== undefined) return list(params);
  const items = [];
  let page = {};
  for (let pages = 1; pages <= MOST_PAGES; pages += 1) {
    page = await list(page.nextCursor === undefined ? {} : { cursor: page.nextCursor });
    items.push(...page[key]);
    if (page.nextCursor === undefined) return { [key]: items, pages };
  }
  throw new Error(`more than ${MOST_PAGES} pages`);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

function stepsOf(client, callTool, heard, own) {
  const call = async ({ name, arguments: given, meta, progress, timeout_ms }, signal) => {
    const received = [];
    const result = callTool(
      { name, arguments: given ?? {}, ...(meta && { _meta: meta }) },
      {
        ...(progress && { onprogress: (update) => received.push(update) }),
        ...(timeout_ms && { timeout: timeout_ms }),
        ...(signal && { signal }),
      },
    );
    return { result: await result, ...(progress && { progress: received }) };
  };
  const steps = {
    ping: async () => ({ result: await client.ping() }),
    list_tools: async (params) => ({
      result: await allPages((page) => client.listTools(page), "tools", params),
    }),
    call_tool: (params) => call(params),
    cancel_call: async ({ after_ms, ...params }) => {
      const cancelling = new AbortController();
      setTimeout(() => cancelling.abort("cancelled by the script"), after_ms);
      return call(params, cancelling.signal);
    },
    list_prompts: async (params) => ({
      result: await allPages((page) => client.listPrompts(page), "prompts", params),
    }),
    get_prompt: async (params) => ({ result: await client.getPrompt(params) }),
    list_resources: async (params) => ({
      result: await allPages((page) => client.listResources(page), "resources", params),
    }),
    list_resource_templates: async (params) => ({
      result: await allPages(
        (page) => client.listResourceTemplates(page),
        "resourceTemplates",
        params,
      ),
    }),
    read_resource: async (params) => ({ result: await client.readResource(params) }),
    subscribe: async (params) => ({ result: await client.subscribeResource(params) }),
    unsubscribe: async (params) => ({ result: await client.unsubscribeResource(params) }),
    listen: async (filter) => ({ result: (await client.listen(filter)).honoredFilter }),
    complete: async (params) => ({ result: await client.complete(params) }),
    wait_for_notification: async ({ method, within_ms = 60_000 }) => ({
      result: await heard.next(method, within_ms),
    }),
    wait_for_tools_changed: ({ within_ms }) =>
      steps.wait_for_notification({ method: "notifications/tools/list_changed", within_ms }),
    notifications: async () => ({ result: heard.all }),
    sleep: async ({ ms }) => (await sleep(ms), { result: {} }),
    together: async (several) => ({ result: await Promise.all(several.map(perform)) }),
    ...own,
  };
  async function perform(step) {
    const [[name, params]] = Object.entries(step);
    if (!Object.hasOwn(steps, name)) throw new Error(`no step is named "${name}"`);
    return outcome(name, () => steps[name](params ?? {}));
  }
  return { perform };
}
