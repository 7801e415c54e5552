#!/usr/bin/env node
// A client on version 2 of the TypeScript SDK. `connect.mode` says which
// protocol it speaks: "auto" (asks `server/discover`, falls back to
// `initialize`), "legacy" (`initialize`), or a version such as "2026-07-28",
// from which it does not fall back.
import { requireInstalled, runScript } from "./steps.mjs";
import { taskSteps } from "./tasks.mjs";

const { Client, StreamableHTTPClientTransport } = requireInstalled("@modelcontextprotocol/client");
const { StdioClientTransport } = requireInstalled("@modelcontextprotocol/client/stdio");

function open({ connect, elicit }) {
  const mode = connect.mode ?? "auto";
  const clientInfo = { name: "foreign-client-typescript-v2", version: "1.0.0" };
  const capabilities = elicit ? { elicitation: {} } : {};
  const client = new Client(clientInfo, {
    capabilities,
    versionNegotiation: { mode: ["auto", "legacy"].includes(mode) ? mode : { pin: mode } },
  });
  if (elicit) client.setRequestHandler("elicitation/create", async () => elicit);

  const transport = connect.url
    ? new StreamableHTTPClientTransport(new URL(connect.url))
    : new StdioClientTransport({
        command: connect.command[0],
        args: connect.command.slice(1),
        env: connect.env,
      });

  const connected = client.connect(transport).then(() => ({
    protocolVersion: () => client.getNegotiatedProtocolVersion(),
    callTool: (params, options) => client.callTool(params, options),
    steps: taskSteps({ client, clientInfo, capabilities, elicit }),
  }));
  return { client, connected };
}

await runScript(open);
