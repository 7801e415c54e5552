"""Clients that follow the protocol. Each of their calls must be answered, and by its own answer."""

import asyncio
import json
import random
import time

import messages
import wire
from gateway import LARGE, TOKENS

# The time in seconds after which a call counts as lost.
LOST = 60

# The tools that clients call, with their weights.
OPERATIONS = {
    "echo": 10, "wait": 4, "everywhere": 6, "chain": 3, "large": 2, "scarce": 2, "changing": 1,
    "list": 1, "foreign": 1,
}


class Client:
    """A client of one caller, which connects again and again until the load stops."""

    def __init__(self, load, caller):
        self.load = load
        self.tally = load.tally
        self.caller = caller
        self.token = TOKENS[caller]
        self.number = 0
        self.connection = None

    async def run(self):
        while not self.load.stopped():
            try:
                await self.connect()
                if self.connection:
                    await self.talk()
            except (wire.Closed, TimeoutError, OSError, ValueError) as error:
                # Not a call, whose errors are caught where they are sent.
                self.tally.fail(f"{self.describe()}: {type(error).__name__} {error}")
            if self.connection:
                self.connection.close()
                self.connection = None
            await asyncio.sleep(random.random() / 10)

    def describe(self):
        return f"{type(self).__name__} of {self.caller}"

    async def connect(self):
        """Connects. A connection counts as accepted when it has answered a probe."""
        started = time.monotonic()
        try:
            connection = await wire.Connection.open(self.load.gateway.address)
            async with asyncio.timeout(LOST):
                probe = await connection.exchange(wire.request("GET", "/healthz", {}))
        except (wire.Closed, OSError) as error:
            self.tally.count("connections", "closed at the limit")
            if not self.load.was_flooded_since(started):
                self.tally.fail(f"{self.describe()}: refused below the limit: {error}")
            return
        self.tally.count("connections", "accepted")
        self.tally.check(probe.status == 200, f"/healthz: {probe.status} {probe.text()}")
        self.connection = connection

    async def talk(self):
        for _ in range(random.randint(1, 60)):
            if self.load.stopped():
                break
            await self.operate(random.choices(*zip(*OPERATIONS.items()))[0])
            await asyncio.sleep(random.random() / 20)

    def request(self, method, params):
        return messages.stateless(self.token, self.number, method, params)

    async def ask(self, method, params, mark="", tool=""):
        """Sends a request, and returns its response and the final message of it.

        Returns nothing for both if there is no answer, which is a failure.
        """
        self.number += 1
        name = tool or method
        started = time.monotonic()
        try:
            async with asyncio.timeout(LOST):
                response = await self.connection.exchange(self.request(method, params))
        except (wire.Closed, TimeoutError) as error:
            self.tally.count("calls", "lost")
            kind = "no answer" if isinstance(error, TimeoutError) else f"closed {error}"
            self.tally.fail(f"{self.describe()}: {name} was lost: {kind}")
            raise Lost from None
        self.tally.durations.append(time.monotonic() - started)
        found = set(messages.MARKER.findall(response.text()))
        if found - {mark}:
            self.tally.fail(
                f"{self.describe()}: the answer to {mark or name} has markers of other calls: "
                f"{sorted(found - {mark})[:3]}"
            )
        if response.status != 200:
            self.tally.count("calls", f"status {response.status}")
            self.tally.fail(f"{self.describe()}: {name}: {response.status} {response.text()[:200]}")
            return response, None
        *notifications, last = response.messages()
        for notification in notifications:
            self.check_progress(notification, mark)
        self.tally.check(
            last.get("id") == self.number,
            f"{self.describe()}: the answer to request {self.number} has the id {last.get('id')}",
        )
        return response, last

    def check_progress(self, notification, mark):
        if notification.get("method") != "notifications/progress":
            return
        self.tally.count("calls", "progress notification")
        token = notification["params"].get("progressToken")
        self.tally.check(
            token == mark, f"{self.describe()}: progress of {token} in the answer to {mark}"
        )

    async def operate(self, operation):
        try:
            await getattr(self, operation)()
        except Lost:
            # The connection cannot be used any more.
            self.connection.close()
            await self.connect()
            if not self.connection:
                raise wire.Closed("after a lost call") from None

    async def call(self, tool, expected, may_fail=(), **arguments):
        """Calls a tool, and checks that the answer has the marker of this call so many times."""
        mark = messages.marker(self.caller, self.number)
        params = messages.call(tool, mark, **arguments)
        if random.random() < 0.5:
            params["_meta"] = {"progressToken": mark}
        _, answer = await self.ask("tools/call", params, mark, tool)
        if answer is None:
            return None
        result = answer.get("result", {})
        if "error" in answer or result.get("isError"):
            text = json.dumps(answer)
            for kind, words in may_fail:
                if words in text:
                    self.tally.count("calls", kind)
                    return None
            self.tally.count("calls", "unexpected error")
            self.tally.fail(f"{self.describe()}: {tool}: {text[:300]}")
            return None
        count = json.dumps(result.get("content")).count(mark)
        self.tally.count("calls", "answered")
        self.tally.check(
            count >= expected,
            f"{self.describe()}: the answer of {tool} has its marker {count} times, not {expected}",
        )
        return result

    async def echo(self):
        await self.call("near_echo", 1)

    async def wait(self):
        await self.call("near_wait", 1, milliseconds=random.randint(10, 400))

    async def everywhere(self):
        await self.call("everywhere", 3)

    async def chain(self):
        mark = messages.marker(self.caller, self.number)
        _, answer = await self.ask(
            "tools/call",
            {"name": "chain", "arguments": {"marker": mark, "items": [mark] * 3}},
            mark, "chain",
        )
        is_ok = answer is not None and not answer.get("result", {"isError": True}).get("isError")
        self.tally.count("calls", "answered" if is_ok else "unexpected error")
        self.tally.check(is_ok, f"{self.describe()}: chain: {json.dumps(answer)[:300]}")

    async def scarce(self):
        if await self.call("near_scarce", 1, [("budget used up", "scarce")]) is not None:
            self.load.scarce[self.caller] += 1

    async def changing(self):
        await self.call("extra_echo", 1, [("tool was removed", "extra_echo")])

    async def list(self):
        _, answer = await self.ask("tools/list", {})
        tools = (answer or {}).get("result", {}).get("tools", [])
        names = {tool["name"] for tool in tools}
        self.tally.count("calls", "listed")
        missing = {"near_echo", "far_echo", "everywhere", "chain"} - names
        self.tally.check(not missing, f"{self.describe()}: the list lacks {sorted(missing)}")

    async def large(self):
        """Calls a tool whose result is truncated, and reads the stored result."""
        mark = messages.marker(self.caller, self.number)
        times = random.randint(400, 1200)
        params = messages.call("near_repeat", mark, times=times)
        _, answer = await self.ask("tools/call", params, mark, "near_repeat")
        uris = [
            block["uri"]
            for block in (answer or {}).get("result", {}).get("content", [])
            if block.get("type") == "resource_link"
        ]
        if len(uris) != 1:
            self.tally.fail(f"{self.describe()}: no stored result: {json.dumps(answer)[:300]}")
            return
        self.tally.count("calls", "answered")
        size = len(json.dumps(answer))
        self.tally.check(size < 4 * LARGE, f"{self.describe()}: {size} bytes were not truncated")
        self.load.results.append((self.caller, uris[0]))
        _, answer = await self.ask("resources/read", {"uri": uris[0]}, mark)
        contents = (answer or {}).get("result", {}).get("contents", [])
        text = contents[0]["text"] if contents else ""
        if text.count(mark) == times:
            self.tally.count("stored results", "read")
        else:
            # Another caller cannot evict the results of this one, unless this one has more.
            self.tally.count("stored results", "not available")
            self.tally.fail(f"{self.describe()}: a stored result: {json.dumps(answer)[:300]}")

    async def foreign(self):
        """Reads a stored result of another caller, which must not be possible."""
        others = [uri for caller, uri in self.load.results if caller != self.caller]
        if not others:
            return
        _, answer = await self.ask("resources/read", {"uri": random.choice(others)})
        self.tally.count("stored results", "refused to another caller")
        self.tally.check(
            answer is None or "error" in answer,
            f"{self.describe()}: read a result of another caller: {json.dumps(answer)[:300]}",
        )


class Lost(Exception):
    """A call was not answered, which has been reported."""


class SessionClient(Client):
    """A client of the revision 2025-11-25, which has sessions."""

    session = None

    async def talk(self):
        self.session = await open_session(self.load, self.connection, self.caller)
        if self.session is None:
            return
        self.load.sessions[self.caller] = self.session
        await super().talk()
        request = messages.without_body("DELETE", self.token, self.session)
        async with asyncio.timeout(LOST):
            response = await self.connection.exchange(request)
        self.tally.count("sessions", "closed")
        self.tally.check(response.status in (200, 202, 204), f"DELETE: {response.status}")

    def request(self, method, params):
        return messages.in_session(self.token, self.session, self.number, method, params)


async def open_session(load, connection, caller):
    """Opens a session and returns its id, or nothing if that is refused."""
    token = TOKENS[caller]
    async with asyncio.timeout(LOST):
        response = await connection.exchange(messages.initialize(token))
        session = response.headers.get("mcp-session-id")
        if response.status == 429 and caller not in load.good_callers:
            load.tally.count("sessions", "too many")
            return None
        if response.status != 200 or not session:
            load.tally.fail(f"initialize of {caller}: {response.status} {response.text()[:200]}")
            return None
        accepted = await connection.exchange(messages.initialized(token, session))
    load.tally.check(accepted.status == 202, f"notifications/initialized: {accepted.status}")
    load.tally.count("sessions", "opened")
    return session


async def watch(load, caller, is_session):
    """Listens for changes of the list of tools on a stream, until the load stops."""
    token = TOKENS[caller]
    while not load.stopped():
        started = time.monotonic()
        connection = None
        try:
            connection = await wire.Connection.open(load.gateway.address)
            if is_session:
                session = await open_session(load, connection, caller)
                request = messages.without_body("GET", token, session)
            else:
                params = {"notifications": {"toolsListChanged": True}}
                request = messages.stateless(token, 1, "subscriptions/listen", params)
            await connection.send(request)
            status, _ = await connection.head()
            load.tally.check(status == 200, f"a stream of {caller}: {status}")
            await read_stream(load, connection)
            if is_session:
                connection.close()
                connection = await wire.Connection.open(load.gateway.address)
                await connection.exchange(messages.without_body("DELETE", token, session))
        except (wire.Closed, OSError) as error:
            if load.was_flooded_since(started):
                load.tally.count("streams", "closed at the limit")
            else:
                load.tally.fail(f"a stream of {caller} ended: {error}")
        finally:
            if connection:
                connection.close()
        await asyncio.sleep(0.2)


async def read_stream(load, connection):
    reloads, notified = load.reloads, 0
    while not load.stopped():
        try:
            async with asyncio.timeout(1):
                data = await connection.reader.read(65536)
        except TimeoutError:
            continue
        if not data:
            raise wire.Closed("at its end")
        text = data.decode("utf-8", "replace")
        notified += text.count("notifications/tools/list_changed")
        if messages.MARKER.search(text):
            load.tally.fail(f"a stream has the marker of a call: {text[:200]}")
    load.tally.count("streams", "open to the end")
    load.tally.counts["streams", "notified of changed tools"] += notified
    # The last reload may have happened a moment before the end.
    load.tally.check(
        notified or load.reloads < reloads + 2,
        f"a stream was not notified of {load.reloads - reloads} reloads",
    )
