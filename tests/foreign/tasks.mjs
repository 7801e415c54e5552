// The step `call_task`: a call as a task, by the MCP project's own client of the tasks extension,
// `@modelcontextprotocol/ext-tasks`. It polls with `tasks/get`, answers with `tasks/update`, cancels
// with `tasks/cancel`, and checks each message with the schemas of the extension.

// This package cannot be loaded with `require`.
const { createTaskSessionFromClient } = await import(
  "../../target/foreign/node_modules/@modelcontextprotocol/ext-tasks/dist/client/index.js"
);

const PROTOCOL = "2026-07-28";

// Returns the function that sends requests of the extension over the transport of the SDK's client.
// Each host of `ext-tasks` needs such a function, since the SDK's `request` rejects the results.
function dispatchOver(client) {
  const { transport } = client;
  const receive = transport.onmessage;
  const waiting = new Map();
  transport.onmessage = (message, extra) => {
    const resolve = waiting.get(message.id);
    if (resolve === undefined) return receive(message, extra);
    waiting.delete(message.id);
    return resolve(message);
  };
  let requests = 0;
  return async (request) => {
    const id = `task-request-${(requests += 1)}`;
    const received = new Promise((resolve) => waiting.set(id, resolve));
    await transport.send({ jsonrpc: "2.0", id, ...request });
    const { result, error } = await received;
    return error === undefined ? { kind: "result", result } : { kind: "error", error };
  };
}

// Returns the steps that a connected client can perform with the extension.
export function taskSteps({ client, clientInfo, capabilities, elicit }) {
  const questions = [];
  // A client can have only one session, which the first call creates.
  let session;
  const open = () =>
    createTaskSessionFromClient(client, {
      endpointId: "gateway",
      rawDispatch: dispatchOver(client),
      v2RequestFraming: { protocolVersion: PROTOCOL, clientInfo, clientCapabilities: capabilities },
      onInputRequest: async (request) => (questions.push(request), elicit),
    });

  async function call_task({ name, arguments: given, cancel }) {
    session ??= open();
    const execution = await session.callTool(name, given ?? {});
    if (cancel) await execution.cancel();
    const statuses = [];
    const onEvent = ({ type, task }) => {
      if (type === "task" && statuses.at(-1) !== task.status) statuses.push(task.status);
    };
    const { outcome } = await execution.settle({ onEvent });
    const { status, result, error } = outcome;
    return {
      result: {
        kind: execution.kind,
        statuses,
        questions: questions.splice(0),
        status,
        ...(result && { result }),
        ...(error && { error: { code: error.code, message: error.message } }),
      },
    };
  }
  return { call_task };
}
