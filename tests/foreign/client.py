#!/usr/bin/env python3
"""A client on the Python SDK, for the scripts that README.md describes.

`connect.mode` says which protocol it speaks: "auto" (asks `server/discover`,
falls back to `initialize`), "legacy" (`initialize`), or "2026-07-28", which it
takes for granted and does not negotiate.
"""

import json
import sys
import warnings
from contextlib import AsyncExitStack

import anyio
from mcp import Client, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError
from mcp_types import (
    ElicitResult,
    Implementation,
    PromptReference,
    ResourceTemplateReference,
)

# A server that pages for ever must not hang the test that shows it.
MOST_PAGES = 100


def plain(value):
    """What `value` looks like on the wire."""
    return value.model_dump(by_alias=True, mode="json", exclude_none=True)


def show(line):
    print(json.dumps(line), flush=True)


def told(error):
    # The SDK's task groups wrap what went wrong, sometimes more than once.
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        return {"code": error.code, "message": error.message, "data": error.data}
    return {"code": None, "message": f"{type(error).__name__}: {error}", "data": None}


class Heard:
    """Every notification that the SDK does not consume itself."""

    def __init__(self):
        self.all = []
        self.unread = []
        self.more = anyio.Event()

    async def __call__(self, message):
        if isinstance(message, Exception):
            return
        notification = plain(message)
        heard = {"method": notification["method"], "params": notification.get("params")}
        self.all.append(heard)
        self.unread.append(heard)
        self.more.set()
        self.more = anyio.Event()

    async def next(self, method, within_ms):
        """Each notification ends one wait, whether it came before or after."""
        with anyio.move_on_after(within_ms / 1000):
            while True:
                for notification in self.unread:
                    if notification["method"] == method:
                        self.unread.remove(notification)
                        return notification
                await self.more.wait()
        raise TimeoutError(f"no {method} within {within_ms} ms")


class Steps:
    def __init__(self, client, heard, streams):
        self.client = client
        self.heard = heard
        # Open for as long as the connection is.
        self.streams = streams

    async def perform(self, step):
        [(name, params)] = step.items()
        try:
            work = getattr(self, f"step_{name}")
            given = {"steps": params} if isinstance(params, list) else params or {}
            return {"step": name, **await work(**given)}
        except Exception as error:
            return {"step": name, "error": told(error)}

    async def pages(self, list_page, key, cursor):
        if cursor is not None:
            return {"result": plain(await list_page(cursor=cursor))}
        items = []
        for pages in range(1, MOST_PAGES + 1):
            page = await list_page(cursor=cursor)
            items += plain(page)[key]
            cursor = page.next_cursor
            if cursor is None:
                return {"result": {key: items, "pages": pages}}
        raise RuntimeError(f"more than {MOST_PAGES} pages")

    async def step_ping(self):
        return {"result": plain(await self.client.send_ping())}

    async def step_list_tools(self, cursor=None):
        return await self.pages(self.client.list_tools, "tools", cursor)

    async def step_call_tool(self, name, arguments=None, meta=None, progress=False, timeout_ms=None):
        received = []

        async def on_progress(done, total, message):
            update = {"progress": done, "total": total, "message": message}
            received.append({key: value for key, value in update.items() if value is not None})

        result = await self.client.call_tool(
            name,
            arguments or {},
            read_timeout_seconds=timeout_ms and timeout_ms / 1000,
            progress_callback=on_progress if progress else None,
            meta=meta,
        )
        return {"result": plain(result), **({"progress": received} if progress else {})}

    async def step_cancel_call(self, after_ms, **call):
        with anyio.move_on_after(after_ms / 1000):
            return await self.step_call_tool(**call)
        raise RuntimeError("cancelled by the script")

    async def step_list_prompts(self, cursor=None):
        return await self.pages(self.client.list_prompts, "prompts", cursor)

    async def step_get_prompt(self, name, arguments=None):
        return {"result": plain(await self.client.get_prompt(name, arguments))}

    async def step_list_resources(self, cursor=None):
        return await self.pages(self.client.list_resources, "resources", cursor)

    async def step_list_resource_templates(self, cursor=None):
        return await self.pages(self.client.list_resource_templates, "resourceTemplates", cursor)

    async def step_read_resource(self, uri):
        return {"result": plain(await self.client.read_resource(uri))}

    async def step_subscribe(self, uri):
        return {"result": plain(await self.client.subscribe_resource(uri))}

    async def step_unsubscribe(self, uri):
        return {"result": plain(await self.client.unsubscribe_resource(uri))}

    async def step_listen(
        self,
        toolsListChanged=False,
        promptsListChanged=False,
        resourcesListChanged=False,
        resourceSubscriptions=(),
    ):
        stream = await self.streams.enter_async_context(
            self.client.listen(
                tools_list_changed=toolsListChanged,
                prompts_list_changed=promptsListChanged,
                resources_list_changed=resourcesListChanged,
                resource_subscriptions=resourceSubscriptions,
            )
        )
        return {"result": plain(stream.honored)}

    async def step_complete(self, ref, argument, context=None):
        kinds = {"ref/prompt": PromptReference, "ref/resource": ResourceTemplateReference}
        completion = await self.client.complete(
            kinds[ref["type"]].model_validate(ref), argument, (context or {}).get("arguments")
        )
        return {"result": plain(completion)}

    async def step_wait_for_notification(self, method, within_ms=60_000):
        return {"result": await self.heard.next(method, within_ms)}

    async def step_wait_for_tools_changed(self, within_ms=60_000):
        return await self.step_wait_for_notification("notifications/tools/list_changed", within_ms)

    async def step_notifications(self):
        return {"result": self.heard.all}

    async def step_sleep(self, ms):
        await anyio.sleep(ms / 1000)
        return {"result": {}}

    async def step_together(self, steps):
        outcomes = [None] * len(steps)

        async def one(index, step):
            outcomes[index] = await self.perform(step)

        async with anyio.create_task_group() as tasks:
            for index, step in enumerate(steps):
                tasks.start_soon(one, index, step)
        return {"result": outcomes}


def server_of(connect):
    if "url" in connect:
        return connect["url"]
    command, *arguments = connect["command"]
    return StdioServerParameters(command=command, args=arguments, env=connect.get("env"))


async def run(script):
    connect, elicit = script["connect"], script.get("elicit")

    async def answer(_context, _params):
        return ElicitResult.model_validate(elicit)

    heard = Heard()
    client = Client(
        server_of(connect),
        mode=connect.get("mode", "auto"),
        message_handler=heard,
        elicitation_callback=answer if elicit else None,
        client_info=Implementation(name="foreign-client-python", version="1.0.0"),
    )
    stage = "connect"
    try:
        async with client, AsyncExitStack() as streams:
            server = client.server_info
            connection = {
                "protocolVersion": client.protocol_version,
                "serverInfo": server and plain(server),
                "capabilities": plain(client.server_capabilities),
                "instructions": client.instructions,
            }
            show({"step": "connect", "result": connection})
            stage = "close"
            steps = Steps(client, heard, streams)
            for step in script.get("steps", []):
                show(await steps.perform(step))
    except Exception as error:
        show({"step": stage, "error": told(error)})
        return 1 if stage == "connect" else 0
    show({"step": "close", "result": {}})
    return 0


if __name__ == "__main__":
    # `subscribe` and `ping` are deprecated, and what tests are for.
    warnings.simplefilter("ignore", MCPDeprecationWarning)
    argument = sys.argv[1] if len(sys.argv) > 1 else "-"
    sys.exit(anyio.run(run, json.loads(sys.stdin.read() if argument == "-" else argument)))
