"""Requests of MCP clients of both protocol revisions, and the markers in them."""

import json
import re
import secrets

import wire

NEW = "2026-07-28"
OLD = "2025-11-25"

MARKER = re.compile(r"marker-[a-z]+-[0-9]+-[0-9a-f]{12}")


def marker(caller, number):
    """Returns a text that no other call contains."""
    return f"marker-{caller}-{number}-{secrets.token_hex(6)}"


def post(token, headers, message):
    """Returns a request with a JSON-RPC message or, as bytes, any other body."""
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    common = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    if token:
        common["Authorization"] = f"Bearer {token}"
    return wire.request("POST", "/mcp", common | headers, body)


def stateless(token, number, method, params, capabilities=None):
    """Returns a request of the revision 2026-07-28, which has no sessions."""
    meta = params.get("_meta", {}) | {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": capabilities or {},
    }
    headers = {"Mcp-Protocol-Version": NEW, "Mcp-Method": method}
    if name := params.get("name") or params.get("uri") or params.get("taskId"):
        headers["Mcp-Name"] = name
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params | {"_meta": meta}}
    return post(token, headers, message)


def initialize(token):
    """Returns the first request of a session."""
    params = {
        "protocolVersion": OLD,
        "capabilities": {},
        "clientInfo": {"name": "load", "version": "0"},
    }
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    return post(token, {}, message)


def initialized(token, session):
    """Returns the second message of a session, a notification."""
    message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    return post(token, session_headers(session), message)


def in_session(token, session, number, method, params):
    """Returns a request of a session."""
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
    return post(token, session_headers(session), message)


def without_body(method, token, session):
    """Returns a request that opens the stream of a session (`GET`) or ends it (`DELETE`)."""
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
    return wire.request(method, "/mcp", headers | session_headers(session))


def session_headers(session):
    return {"Mcp-Session-Id": session, "Mcp-Protocol-Version": OLD}


def call(tool, mark, **arguments):
    """Returns the parameters of a call that carries a marker."""
    return {"name": tool, "arguments": {"marker": mark} | arguments}
