"""Clients that break rules or use up limits. Each returns the kind of its outcome."""

import asyncio
import random
import time

import messages
import wire
from gateway import IDLE, TCP_CONNECTIONS, TOKENS

# The time in seconds that the gateway may take beyond a limit, on a busy machine.
SLACK = 30

TOKEN = TOKENS["hostile"]

# The size in bytes of a request body above the limit of 4 MiB.
OVERSIZED = 5 * 2**20


async def repeat(load, attack, pause):
    """Runs an attack again and again until the load stops."""
    group = attack.__name__.replace("_", " ")
    while not load.stopped():
        started = time.monotonic()
        connection = None
        try:
            connection = await wire.Connection.open(load.gateway.address, receive_buffer(attack))
            async with asyncio.timeout(60):
                kind = await attack(load, connection)
        except (wire.Closed, OSError) as error:
            if isinstance(error, TimeoutError):
                kind = "no answer"
                load.tally.fail(f"{group}: no answer in 60 s")
            elif load.was_flooded_since(started):
                kind = "closed at the limit"
            else:
                kind = "closed"
        if connection:
            connection.close()
        load.tally.count(group, kind)
        await asyncio.sleep(pause * (0.5 + random.random()))


def receive_buffer(attack):
    return 4096 if attack in (slow_reader, no_reader) else None


def echo(number=1):
    """Returns a valid call, and the marker of its answer."""
    mark = messages.marker("hostile", number)
    return messages.stateless(TOKEN, number, "tools/call", messages.call("near_echo", mark)), mark


def split(request):
    """Returns the head and the body of a request."""
    head, body = request.split(b"\r\n\r\n", 1)
    return head + b"\r\n\r\n", body


async def closed_in_time(load, connection, group, since=None):
    """Checks that the gateway closes a connection that is idle for too long.

    `since` is a time before the connection became idle, from which on it must stay open for a while.
    """
    is_closed = await connection.is_closed_by_peer(IDLE + SLACK)
    if since is not None:
        elapsed = time.monotonic() - since
        if load.was_flooded_since(since) and elapsed < IDLE / 2:
            return "closed at the limit"
        load.tally.check(elapsed >= IDLE / 2, f"{group}: closed after {elapsed:.1f} s")
    load.tally.check(is_closed, f"{group}: open after {IDLE + SLACK} s")
    return "closed as idle"


# === Idle and slow clients ===


async def silent(load, connection):
    return await closed_in_time(load, connection, "silent", connection.started)


async def idle_after_a_call(load, connection):
    request, mark = echo()
    # On a busy machine, this client may read the response long after it was sent.
    since = time.monotonic()
    response = await connection.exchange(request)
    load.tally.check(mark in response.text(), f"a call before a pause: {response.status}")
    return await closed_in_time(load, connection, "idle after a call", since)


async def half_a_head(load, connection):
    request, _ = echo()
    await connection.send(request[: random.randint(1, 200)])
    if random.random() < 0.3:
        return await closed_in_time(load, connection, "half a head")
    return leave(connection)


async def half_a_body(load, connection):
    head, body = split(echo()[0])
    await connection.send(head + body[: random.randint(0, len(body) - 1)])
    if random.random() < 0.3:
        response = await connection.response()
        is_error = 400 <= response.status < 500
        load.tally.check(is_error, f"half a body: {response.status} {response.text()[:200]}")
        return f"status {response.status}"
    await asyncio.sleep(random.random())
    return leave(connection)


def leave(connection):
    if random.random() < 0.5:
        connection.reset()
        return "reset by the client"
    connection.close()
    return "closed by the client"


async def slow_head(load, connection):
    started = time.monotonic()
    request, _ = echo()
    closing = asyncio.ensure_future(connection.is_closed_by_peer(IDLE + SLACK))
    for byte in request[:60]:
        if closing.done():
            break
        await connection.send(bytes([byte]))
        await asyncio.wait([closing], timeout=1)
    is_closed = await closing
    elapsed = time.monotonic() - started
    load.tally.check(is_closed, f"slow head: open after {elapsed:.1f} s")
    return "closed as idle"


async def slow_body(load, connection):
    """Sends a body for longer than the idle timeout, without a pause that is too long."""
    request, mark = echo()
    head, body = split(request)
    await connection.send(head)
    pieces = IDLE + 2
    size = len(body) // pieces + 1
    for start in range(0, len(body), size):
        await asyncio.sleep(1)
        await connection.send(body[start : start + size])
    response = await connection.response()
    is_answered = response.status == 200 and mark in response.text()
    load.tally.check(is_answered, f"slow body: {response.status} {response.text()[:200]}")
    return "answered"


async def stored_result(load, times):
    """Returns the URI of a new stored result, and its marker."""
    mark = messages.marker("hostile", 1)
    request = messages.stateless(
        TOKEN, 1, "tools/call", messages.call("near_repeat", mark, times=times)
    )
    connection = await wire.Connection.open(load.gateway.address)
    try:
        response = await connection.exchange(request)
    finally:
        connection.close()
    if response.status == 429:
        raise wire.Closed("because of too many requests")
    blocks = response.messages()[-1].get("result", {}).get("content", [])
    uris = [block["uri"] for block in blocks if block.get("type") == "resource_link"]
    if not uris:
        load.tally.fail(f"no stored result: {response.status} {response.text()[:300]}")
        raise wire.Closed("because of a missing result")
    return uris[0], mark


async def slow_reader(load, connection):
    """Reads a large response, at first a byte each second."""
    uri, mark = await stored_result(load, 10_000)
    await connection.send(messages.stateless(TOKEN, 1, "resources/read", {"uri": uri}))
    status, headers = await connection.head()
    length = int(headers.get("content-length", 0))
    for _ in range(IDLE + 2):
        await connection.reader.readexactly(1)
        await asyncio.sleep(1)
    try:
        body = await connection.reader.readexactly(length - IDLE - 2)
    except (asyncio.IncompleteReadError, OSError):
        # The client reads too little for its system to accept more.
        return "closed as idle"
    is_whole = status == 200 and body.count(mark.encode()) == 10_000
    load.tally.check(is_whole, f"slow reader: {status}, {body.count(mark.encode())} markers")
    return "read"


async def no_reader(load, connection):
    """Sends calls without reading their responses, until the gateway closes the connection."""
    uri, mark = await stored_result(load, 10_000)
    read = messages.stateless(TOKEN, 1, "resources/read", {"uri": uri})
    await connection.send(read * 20)
    # The system does not report the end to a client that does not read.
    while connection.port() in load.gateway.client_ports():
        await asyncio.sleep(0.2)
    received = b""
    try:
        while data := await connection.reader.read(2**20):
            received += data
    except OSError:
        pass
    whole = received.count(b"HTTP/1.1 200")
    load.tally.check(whole < 20, "no reader: all responses were sent")
    others = set(messages.MARKER.findall(received.decode("utf-8", "replace"))) - {mark}
    load.tally.check(not others, f"no reader: markers of other calls: {sorted(others)[:3]}")
    return "closed as idle"


# === Oversized and invalid requests ===


def rejected(load, group, response, *statuses):
    """Checks the status of a response, and that it has no marker of a call."""
    text = response.text()
    load.tally.check(
        response.status in statuses, f"{group}: {response.status} {text[:200]}, not {statuses}"
    )
    load.tally.check(not messages.MARKER.search(text), f"{group}: a marker of a call: {text[:200]}")
    return f"status {response.status}"


async def send_and_receive(connection, data):
    """Sends a request that the gateway may reject before it has read all of it."""
    sending = asyncio.ensure_future(connection.send(data))
    try:
        return await connection.response()
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def oversized_body(load, connection):
    request = messages.post(TOKEN, {}, b" " * OVERSIZED)
    response = await send_and_receive(connection, request)
    return rejected(load, "oversized body", response, 413)


async def oversized_chunks(load, connection):
    head, _ = split(messages.post(TOKEN, {"Transfer-Encoding": "chunked"}, b""))
    head = head.replace(b"Content-Length: 0\r\n", b"")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    data = head + chunk * (OVERSIZED // 0x10000) + b"0\r\n\r\n"
    response = await send_and_receive(connection, data)
    return rejected(load, "oversized chunks", response, 413)


async def too_many_values(load, connection):
    arguments = {"marker": "x", "list": [0] * 300_000}
    params = {"name": "near_echo", "arguments": arguments}
    request = messages.stateless(TOKEN, 1, "tools/call", params)
    response = await send_and_receive(connection, request)
    return rejected(load, "too many values", response, 413)


async def oversized_head(load, connection):
    headers = {"X-Long": "x" * 100_000}
    if random.random() < 0.5:
        headers = {f"X-Header-{number}": "x" for number in range(300)}
    request = messages.post(TOKEN, headers, {"jsonrpc": "2.0", "id": 1, "method": "ping"})
    response = await send_and_receive(connection, request)
    return rejected(load, "oversized head", response, 431)


def garbage_requests():
    """Returns requests that no server can accept."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    auth = f"Authorization: Bearer {TOKEN}\r\n".encode()
    post = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\n" + auth
    post += b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
    deep = b"[" * 100_000
    invalid_bodies = [
        b"", b"{", b"\xff\xfe\x00", b"[]", b"null", b'{"jsonrpc":"1.0"}', b'{"id":{}}', deep,
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + deep,
        b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    ]
    return [
        random.randbytes(300) + b"\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.randbytes(200) + b"\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\r\n" * 2000 + b"x",
        post + b"Content-Length: -1\r\n\r\n",
        post + b"Content-Length: 99999999999999999999\r\n\r\n",
        post + b"Content-Length: 4\r\nContent-Length: 40\r\n\r\n" + body,
        post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n" + body,
        post + b"Transfer-Encoding: nothing\r\n\r\n" + body,
        b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\n" + auth + b"Content-Length: 0\r\n\r\n",
        b"POST /nothing HTTP/1.1\r\nHost: localhost\r\n" + auth + b"Content-Length: 0\r\n\r\n",
        b"BREW /mcp HTTP/1.1\r\nHost: localhost\r\n" + auth + b"Content-Length: 0\r\n\r\n",
        *(messages.post(TOKEN, {}, invalid) for invalid in invalid_bodies),
        messages.post(TOKEN, {"Mcp-Method": "tools/list"}, body),
        messages.post(TOKEN, {"Mcp-Protocol-Version": "1999-01-01"}, body),
        messages.post(TOKEN, {"Mcp-Session-Id": "\x01 no session"}, body),
    ]


async def garbage(load, connection):
    data = random.choice(garbage_requests())
    await connection.send(data)
    response = await connection.response()
    is_rejected = 400 <= response.status < 500 or b'"error"' in response.body
    load.tally.check(
        is_rejected, f"garbage: {response.status} {response.text()[:200]} for {data[:120]}"
    )
    load.tally.check(
        not messages.MARKER.search(response.text()), f"garbage: a marker: {response.text()[:200]}"
    )
    return f"status {response.status}"


# === Wrong callers ===


async def wrong_token(load, connection):
    mark = messages.marker("hostile", 1)
    token, statuses = random.choice([
        (None, (401,)),
        ("", (401,)),
        ("guessed-token-of-nobody", (401,)),
        (TOKENS["alice"][:-1], (401,)),
        (TOKENS["alice"] + "0", (401,)),
        (f"{TOKENS['alice']} {TOKENS['bob']}", (400, 401)),
        (TOKENS["alice"] + "\r\nAuthorization: Bearer " + TOKENS["bob"], (400, 401)),
    ])
    params = messages.call("near_echo", mark)
    response = await connection.exchange(messages.stateless(token, 1, "tools/call", params))
    return rejected(load, "wrong token", response, *statuses)


async def foreign_session(load, connection):
    if not load.sessions:
        return "no session yet"
    session = random.choice(list(load.sessions.values()))
    mark = messages.marker("hostile", 1)
    request = messages.in_session(
        TOKEN, session, 1, "tools/call", messages.call("near_echo", mark)
    )
    if random.random() < 0.3:
        request = messages.without_body("DELETE", TOKEN, session)
    elif random.random() < 0.3:
        request = messages.without_body("GET", TOKEN, session)
    return rejected(load, "foreign session", await connection.exchange(request), 404)


# === Many requests ===


async def pipelined(load, connection):
    """Sends several calls at once. Their responses must come in the same order."""
    calls = [echo(number) for number in range(1, 9)]
    await connection.send(b"".join(request for request, _ in calls))
    for number, (_, mark) in enumerate(calls, 1):
        response = await connection.response()
        if response.status == 429:
            return "too many"
        found = messages.MARKER.findall(response.text())
        load.tally.check(
            found == [mark], f"pipelined: response {number} has {found}, not [{mark}]"
        )
    return "answered in order"


async def abandoned(load, connection):
    """Leaves during a call. The gateway must cancel it at the backend."""
    mark = messages.marker("hostile", 1)
    tool = random.choice(["near_wait", "everywhere"])
    params = messages.call(tool, mark, milliseconds=20_000)
    await connection.send(messages.stateless(TOKEN, 1, "tools/call", params))
    await asyncio.sleep(random.random() / 4)
    return leave(connection)


async def greedy(load, connection):
    """A caller with more open requests than it may have."""
    mark = messages.marker("greedy", 1)
    params = messages.call("near_wait", mark, milliseconds=400)
    for _ in range(10):
        request = messages.stateless(TOKENS["greedy"], 1, "tools/call", params)
        response = await connection.exchange(request)
        found = set(messages.MARKER.findall(response.text()))
        is_answer = response.status == 200 and found == {mark}
        load.tally.check(
            is_answer or (response.status == 429 and not found),
            f"greedy: {response.status} {response.text()[:200]}",
        )
        load.tally.count("greedy calls", "answered" if is_answer else "too many")
        if load.stopped():
            break
    return "connection"


async def hoard(load, count):
    """Opens sessions and leaves them open. The gateway ends them after five minutes."""
    import good

    for _ in range(count):
        connection = await wire.Connection.open(load.gateway.address)
        try:
            await good.open_session(load, connection, "hoarder")
        finally:
            connection.close()


async def floods(load, pause):
    """Opens more connections than the gateway accepts, holds and closes them, again and again."""
    while not load.stopped():
        await asyncio.sleep(pause)
        with load.flooding():
            await flood(load)
            # On a busy machine, the gateway takes a while to notice that the connections have ended.
            while load.gateway.client_connections() > TCP_CONNECTIONS * 3 // 4:
                await asyncio.sleep(0.2)


async def flood(load):
    opening = [wire.Connection.open(load.gateway.address) for _ in range(TCP_CONNECTIONS + 150)]
    opened = await asyncio.gather(*opening, return_exceptions=True)
    connections = [one for one in opened if isinstance(one, wire.Connection)]
    load.tally.counts["floods", "connections"] += len(opened)
    await asyncio.sleep(1)
    probe = await asyncio.to_thread(load.gateway.probe, "/healthz")
    load.tally.check(probe is not None, "the listener for probes does not answer during a flood")
    # The system lists connections one by one while others end and begin, so it may list too many.
    held = 2**20
    for _ in range(5):
        held = min(held, load.gateway.client_connections())
        await asyncio.sleep(0.05)
    load.tally.check(
        held <= TCP_CONNECTIONS + 1, f"{held} connections are open, more than the limit"
    )
    for connection in connections:
        if connection.reader.at_eof():
            load.tally.count("floods", "closed at the limit")
        leave(connection)


# The attacks, with the number of clients of each and the pause between two attacks in seconds.
ATTACKS = {
    silent: (8, 0.2),
    idle_after_a_call: (3, 0.2),
    half_a_head: (4, 0.1),
    half_a_body: (4, 0.1),
    slow_head: (4, 0.2),
    slow_body: (3, 0.2),
    slow_reader: (2, 0.5),
    no_reader: (2, 0.5),
    oversized_body: (2, 0.5),
    oversized_chunks: (2, 0.5),
    too_many_values: (1, 0.5),
    oversized_head: (2, 0.2),
    garbage: (3, 0.05),
    wrong_token: (3, 0.05),
    foreign_session: (2, 0.1),
    pipelined: (3, 0.1),
    abandoned: (4, 0.1),
    greedy: (60, 0.05),
}


