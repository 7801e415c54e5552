#!/usr/bin/env python3
"""A small MCP server over streamable HTTP, the backend of the load test.

It prints its port in a line on standard output, and ends when its standard input does. It follows
the revision 2025-06-18 without sessions. `GET /calls` returns the number of calls in flight and of
all calls.
"""

import asyncio
import json
import sys

TEXT = {"type": "string"}
TOOLS = {
    "echo": "Returns its marker",
    "wait": "Returns its marker after some milliseconds",
    "repeat": "Returns its marker many times",
    "scarce": "Returns its marker; has a budget",
}


class Backend:
    # The pause after which an idle connection is closed, in seconds. So the connections of the
    # gateway do not hide those that it leaks.
    idle = 2

    def __init__(self, fault):
        self.fault = fault
        self.open = 0
        self.all = 0
        self.previous = ""

    async def serve(self, reader, writer):
        try:
            while request := await self.read(reader):
                call = asyncio.ensure_future(self.answer(*request))
                # The client cancels a call when it closes the connection, which the server notices
                # only if it reads.
                gone = asyncio.ensure_future(reader.read(1))
                await asyncio.wait([call, gone], return_when=asyncio.FIRST_COMPLETED)
                if gone.done() or not call.done():
                    call.cancel()
                    break
                gone.cancel()
                await asyncio.wait([gone])
                status, body = call.result()
                head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\n"
                writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    async def read(self, reader):
        """Reads a request, and returns its method, path and body, or nothing at the end."""
        try:
            async with asyncio.timeout(self.idle):
                head = await reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            method, path, _ = first.split(" ")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
        except (asyncio.IncompleteReadError, TimeoutError, OSError):
            return None
        return method, path, body

    async def answer(self, method, path, body):
        if path == "/calls":
            return "200 OK", json.dumps({"open": self.open, "all": self.all}).encode()
        if method != "POST":
            return "405 Method Not Allowed", b""
        message = json.loads(body)
        if "id" not in message:
            return "202 Accepted", b""
        answer = {"jsonrpc": "2.0", "id": message["id"]}
        result = await self.result(path, message["method"], message.get("params", {}))
        if result is None:
            answer["error"] = {"code": -32601, "message": "method not found"}
        else:
            answer["result"] = result
        return "200 OK", json.dumps(answer).encode()

    async def result(self, path, method, params):
        if method == "initialize":
            return {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "load", "version": "0"},
            }
        if method == "tools/list":
            return {"tools": self.tools()}
        if method != "tools/call":
            return None
        self.open += 1
        self.all += 1
        try:
            return await self.call(path, params["name"], params["arguments"])
        finally:
            self.open -= 1

    def tools(self):
        properties = {
            "marker": TEXT, "milliseconds": {"type": "integer"}, "times": {"type": "integer"}
        }
        return [tool(name, text, properties, ["marker"]) for name, text in TOOLS.items()]

    async def call(self, path, name, arguments):
        marker = arguments["marker"]
        if self.fault == "swap" and self.all % 500 == 0:
            marker = self.previous
        if self.fault == "lose" and self.all % 500 == 0:
            await asyncio.sleep(3600)
        self.previous = marker
        if name == "wait":
            await asyncio.sleep(arguments["milliseconds"] / 1000)
        times = arguments["times"] if name == "repeat" else 1
        return {"content": [{"type": "text", "text": " ".join([marker] * times)}]}


def tool(name, description, properties, required, **annotations):
    schema = {"type": "object", "properties": properties, "required": required}
    return {
        "name": name, "description": description, "inputSchema": schema, "annotations": annotations
    }


async def main():
    # A fault shows that the test finds it: `swap` or `lose`.
    backend = Backend(sys.argv[1] if len(sys.argv) > 1 else "")
    server = await asyncio.start_server(backend.serve, "127.0.0.1", 0, backlog=1024, limit=2**24)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
