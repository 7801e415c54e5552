#!/usr/bin/env python3
"""Measures stored runs: the memory of suspended tasks in Redis, the time of polling, and saves."""

import argparse
import asyncio
import pathlib
import re
import statistics
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "load"))

import composites
import history
import messages
import servers
import stores
import wire
from client import CAPABILITIES
from shop import Shop
from tally import Tally

# The maximum number of unfinished tasks of one prefix in Redis.
UNFINISHED = 1000

# The duration of polling in seconds, the polls per second, and the connections.
SECONDS = 20
POLLS = 1000
CONNECTIONS = 50

# The steps of a run, and the number of runs that are timed.
STEPS = 20
RUNS = 40

QUESTION = composites.composite("ask", "workflow", [
    composites.call("first", "read"),
    composites.question("sure", ["first"]),
    composites.answered("last", "sure"),
])


def timed(name, **keys):
    """Returns a composite whose steps do not use the outputs of others."""
    steps = [composites.call(f"s{number}", "read") for number in range(STEPS)]
    return composites.composite(name, "pipeline", steps, **keys)


class Instant(Shop):
    """A backend that answers at once."""

    shortest = longest = 0


class Setup:
    """A Redis server and one replica."""

    def __init__(self, program, folder):
        self.program = program
        self.folder = folder

    async def start(self):
        tally = Tally()
        self.runs = history.Runs(tally)
        self.shop = Instant("", self.runs, tally)
        self.port = await self.shop.start()
        self.redis = stores.Redis(self.folder, True)
        await self.redis.start()

    async def replica(self, prefix="chaos"):
        """Starts a replica that is connected to Redis directly."""
        timings = [timed("stored"), timed("plain", task="never")]
        text = composites.configuration([QUESTION, *timings], stores.Redis.sections)
        (self.folder / "tools.toml").write_text(text.replace("'chaos'", f"'{prefix}'"))
        self.current = servers.Replica(
            0, self.program, self.folder, self.redis, self.redis, self.port
        )
        await self.current.run()

    async def stop(self):
        await self.current.kill()
        await self.redis.stop()

    async def connect(self):
        return await wire.Connection.open(self.current.address)

    async def request(self, connection, method, params):
        request = messages.stateless(None, 1, method, params, CAPABILITIES)
        message = (await connection.exchange(request)).messages()[-1]
        if "result" not in message:
            sys.exit(f"{method} failed: {message}")
        return message["result"]

    async def call(self, connection, name):
        """Calls a composite, and returns its run and the result."""
        run = self.runs.new(name)
        params = {"name": name, "arguments": {"run": run.number}}
        return run, await self.request(connection, "tools/call", params)

    async def until(self, connection, task, status):
        while True:
            state = await self.request(connection, "tasks/get", {"taskId": task})
            if state["status"] == status:
                return state
            await asyncio.sleep(0.02)

    async def suspend(self, count):
        """Starts tasks that wait for an answer, and returns their IDs."""
        tasks = []

        async def some(count):
            connection = await self.connect()
            started = [(await self.call(connection, "ask"))[1]["taskId"] for _ in range(count)]
            for task in started:
                await self.until(connection, task, "input_required")
            connection.close()
            tasks.extend(started)

        await asyncio.gather(*(some(count // 10) for _ in range(10)))
        return tasks

    def memory(self):
        info = "\n".join(self.redis.command("INFO", "memory"))
        return int(re.search(r"^used_memory:(\d+)", info, re.M)[1])

    def scripts(self):
        """Returns the number of scripts that clients of Redis have called."""
        info = "\n".join(self.redis.command("INFO", "commandstats"))
        return sum(map(int, re.findall(r"^cmdstat_evalsha:calls=(\d+)", info, re.M)))

    def cpu(self):
        """Returns the CPU time of the replica in seconds."""
        fields = pathlib.Path(f"/proc/{self.current.process.pid}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / 100


async def memory(setup, count):
    """Suspends many tasks. Each replica has a prefix of its own, because of the limit."""
    before = None
    for number in range(count // UNFINISHED):
        await setup.replica(f"chaos-{number}")
        if before is None:
            before = setup.memory()
        tasks = await setup.suspend(UNFINISHED)
        await setup.current.kill()
    used = (setup.memory() - before) / count
    [key] = setup.redis.command("--scan", "--pattern", "{chaos-0:task}:record:*")[:1]
    sizes = {
        field: int(setup.redis.command("HSTRLEN", key, field)[0])
        for field in ("call", "state", "checkpoint")
    }
    print(f"memory: {count} suspended tasks take {used:.0f} bytes each in Redis: {sizes}, "
          "and the rest for the keys", flush=True)
    setup.redis.command("FLUSHALL")
    return tasks


async def polling(setup):
    """Polls tasks at a fixed rate, and prints the CPU time of the replica."""
    await setup.replica()
    tasks = await setup.suspend(UNFINISHED)
    times = []

    async def poll(number, end):
        connection = await setup.connect()
        pause = CONNECTIONS / POLLS
        due = time.monotonic() + pause * number / CONNECTIONS
        while due < end:
            await asyncio.sleep(due - time.monotonic())
            start = time.monotonic()
            await setup.request(connection, "tasks/get", {"taskId": tasks[len(times) % len(tasks)]})
            times.append(time.monotonic() - start)
            due += pause
        connection.close()

    before, start = setup.cpu(), time.monotonic()
    await asyncio.gather(*(poll(number, start + SECONDS) for number in range(CONNECTIONS)))
    seconds = time.monotonic() - start
    share = (setup.cpu() - before) / seconds
    print(f"polling: {len(times) / seconds:.0f} requests per second take {share:.1%} of a core, and "
          f"{statistics.median(times) * 1000:.1f} ms each (median)", flush=True)
    await setup.current.kill()
    setup.redis.command("FLUSHALL")


async def saves(setup):
    """Prints the time of a step of a stored run, and of one in memory."""
    await setup.replica()
    connection = await setup.connect()
    steps = {"plain": [], "stored": []}
    scripts = 0
    for name in ["plain", "stored"] * RUNS:
        before = setup.scripts()
        run, result = await setup.call(connection, name)
        if name == "stored":
            await setup.until(connection, result["taskId"], "completed")
            scripts += setup.scripts() - before
        times = [call.began for call in run.calls]
        steps[name] += [next - time for time, next in zip(times, times[1:])]
    reader, writer = await asyncio.open_connection("127.0.0.1", setup.redis.port)
    pings = []
    for _ in range(1000):
        start = time.monotonic()
        writer.write(b"PING\r\n")
        await reader.readline()
        pings.append(time.monotonic() - start)
    writer.close()
    plain, stored, ping = (
        statistics.median(times) * 1000 for times in (steps["plain"], steps["stored"], pings)
    )
    print(f"saves: {scripts / RUNS / STEPS:.2f} requests to Redis per step; a step takes "
          f"{stored:.2f} ms, and {plain:.2f} ms in memory (medians); a `PING` takes {ping:.2f} ms")
    await setup.current.kill()


async def measure(options, folder):
    setup = Setup(options.program, folder)
    await setup.start()
    try:
        await saves(setup)
        await polling(setup)
        await memory(setup, options.tasks)
    finally:
        await setup.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the program mcp-composite")
    parser.add_argument("--tasks", type=int, default=100_000, help="the number of suspended tasks")
    options = parser.parse_args()
    options.program = pathlib.Path(options.program).resolve()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(options, pathlib.Path(folder)))


if __name__ == "__main__":
    main()
