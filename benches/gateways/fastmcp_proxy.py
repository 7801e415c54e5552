"""FastMCP's proxy in front of one backend.

The arguments are the port, and the URL or the command of the backend.
"""

import sys

from fastmcp.server import create_proxy

port, *backend = sys.argv[1:]
if backend[0].startswith("http"):
    server = {"url": backend[0]}
else:
    server = {"command": backend[0], "args": backend[1:]}
proxy = create_proxy({"mcpServers": {"backend": server}}, name="proxy")
proxy.run(
    transport="http", host="127.0.0.1", port=int(port), path="/mcp", show_banner=False,
    log_level="ERROR", json_response=True,
)
