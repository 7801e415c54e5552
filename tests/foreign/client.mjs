#!/usr/bin/env node
// A client on version 1 of the TypeScript SDK, which most clients are built
// on: it opens with `initialize` and knows nothing of 2026-07-28.
import { requireInstalled, runScript } from "./steps.mjs";

const { Client } = requireInstalled("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = requireInstalled("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = requireInstalled(
  "@modelcontextprotocol/sdk/client/streamableHttp.js",
);
const { ElicitRequestSchema } = requireInstalled("@modelcontextprotocol/sdk/types.js");

function open({ connect, elicit }) {
  const client = new Client(
    { name: "foreign-client-typescript-v1", version: "1.0.0" },
    { capabilities: elicit ? { elicitation: {} } : {} },
  );
  if (elicit) client.setRequestHandler(ElicitRequestSchema, async () => elicit);

  const transport = connect.url
    ? new StreamableHTTPClientTransport(new URL(connect.url))
    : new StdioClientTransport({
        command: connect.command[0],
        args: connect.command.slice(1),
        env: connect.env,
      });

  // The client tells its transport the version, and nobody else.
  let negotiated = null;
  const tellTransport = transport.setProtocolVersion?.bind(transport);
  transport.setProtocolVersion = (version) => {
    negotiated = version;
    tellTransport?.(version);
  };

  const connected = client.connect(transport).then(() => ({
    protocolVersion: () => negotiated,
    callTool: (params, options) => client.callTool(params, undefined, options),
  }));
  return { client, connected };
}

await runScript(open);
