"""The backend of the chaos test, which records every call of every run."""

import asyncio
import random
import time

import backend

# The time in seconds that a call of `slow` takes.
ENDLESS = 90

TOOLS = {
    "work": ("Changes something; must be called once", {}),
    "again": ("Changes something; may be called again", {}),
    "slow": ("Like `work`, but does not end before the run", {}),
    "put": ("Changes something, idempotent", {"idempotentHint": True}),
    "read": ("Reads something", {"readOnlyHint": True}),
}
ONCE = {"work", "slow"}

PROPERTIES = {
    "run": {"type": "integer"},
    "step": {"type": "string"},
    "element": {"type": "integer"},
    "after": {"type": "array", "items": {"type": "string"}},
    "answer": {"type": "string"},
}


class Call:
    """A call of a step: when it began and ended, and which replica made it."""

    def __init__(self, replica, tool, key, after, answer):
        self.replica = replica
        self.tool = tool
        self.key = key
        # The values of earlier steps that the call has.
        self.after = after
        self.answer = answer
        self.began = time.monotonic()
        self.ended = None
        # Whether the client got an answer. Otherwise, it has cancelled the call.
        self.is_answered = False

    def __str__(self):
        end = "answered" if self.is_answered else "cancelled" if self.ended else "open"
        return f"{self.tool} {self.key} by replica {self.replica}: {end}"


class Shop(backend.Backend):
    """The MCP server. Each replica has a path of its own, so that calls show their replica."""

    idle = 60

    # The time in seconds that a call takes.
    shortest = 0.005
    longest = 0.2

    def __init__(self, fault, runs, tally):
        super().__init__(fault)
        self.runs = runs
        self.tally = tally
        # Called when a call begins or ends.
        self.on_change = lambda run, call: None

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0, backlog=1024)
        return self.server.sockets[0].getsockname()[1]

    def tools(self):
        every = {"idempotentHint": True} if self.fault == "repeat" else {}
        return [
            backend.tool(name, text, PROPERTIES, ["run", "step"], **annotations | every)
            for name, (text, annotations) in TOOLS.items()
        ]

    async def call(self, path, name, arguments):
        run = self.runs[arguments["run"]]
        key = arguments["step"]
        if "element" in arguments:
            key = f"{key}.{arguments['element']}"
        after = arguments.get("after", [])
        self.check_inputs(run, key, after)
        call = Call(int(path.strip("/")), name, key, after, arguments.get("answer"))
        run.calls.append(call)
        if call.answer is not None:
            self.tally.count("answers", "used in calls")
        try:
            self.on_change(run, call)
            seconds = ENDLESS if name == "slow" else random.uniform(self.shortest, self.longest)
            await asyncio.sleep(seconds)
            call.is_answered = True
        finally:
            call.ended = time.monotonic()
            run.add(call)
            self.on_change(run, call)
        value = {"value": f"{run.number}/{key}", "element": arguments.get("element", 0)}
        return {
            "content": [{"type": "text", "text": value["value"]}], "structuredContent": value
        }

    def check_inputs(self, run, key, values):
        """Checks that a call has only outputs of calls of its run that have ended."""
        for value in values:
            self.tally.check(
                value == "lost" or value in run.values,
                f"run: `{key}` of {run} got the value `{value}`, which no call before has returned",
            )
