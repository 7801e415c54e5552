"""A server over stdio whose tools try to leave the sandbox in which it runs."""

import json
import os
import pathlib
import socket
import sys


def read(arguments):
    return pathlib.Path(arguments["path"]).read_text()


def write(arguments):
    pathlib.Path(arguments["path"]).write_text("written")
    return "written"


def connect(arguments):
    with socket.create_connection(("127.0.0.1", arguments["port"]), timeout=5):
        return "connected"


def processes(arguments):
    return " ".join(sorted(name for name in os.listdir("/proc") if name.isdigit()))


def environment(arguments):
    return json.dumps(dict(os.environ))


TOOLS = {tool.__name__: tool for tool in [read, write, connect, processes, environment]}


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "escape", "version": "1"},
        }
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if method == "tools/call":
        try:
            text, is_error = TOOLS[params["name"]](params.get("arguments", {})), False
        except OSError as error:
            text, is_error = f"{type(error).__name__}: {error}", True
        return {"content": [{"type": "text", "text": text}], "isError": is_error}
    return None


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message or "method" not in message:
        continue
    result = answer(message["method"], message.get("params", {}))
    reply = {"jsonrpc": "2.0", "id": message["id"]}
    if result is None:
        reply["error"] = {"code": -32601, "message": "method not found"}
    else:
        reply["result"] = result
    print(json.dumps(reply), flush=True)
