#!/usr/bin/env python3
"""Tests the gateway at its limits: good, slow, greedy and hostile clients at the same time.

Starts a backend and the gateway, and fails if a call is lost or answered with data of another
call, if a limit does not hold, if memory, connections or file descriptors are not released, or if
the gateway does not stop cleanly. See `README.md` in this folder.
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import pathlib
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time

import good
import hostile
import messages
import wire
from gateway import DRAIN, GOOD_CALLERS, IDLE, REFILL, SCARCE, STORED_SECONDS, TOKENS
from gateway import REQUESTS_OF_CALLER, Backend, Gateway
from reloads import Reloads
from tally import Tally

# The good clients of each caller and revision.
CLIENTS = 5

# The duration of the first load, after which memory and descriptors are measured.
WARM_UP = 15

# The pause after each load, in which everything that is limited in time ends.
REST = max(IDLE, STORED_SECONDS) + 3

# The time in seconds after the pause in which everything must have ended, on a busy machine.
LONGEST_REST = 60

# The duration of a load between two measurements, at most.
LONGEST = 60

# How much more is allowed after a load than after the warm-up: MiB, and file descriptors. The
# allocator of the system keeps memory that the program has freed, but a limited amount of it.
MORE_MEMORY = 32
MORE_DESCRIPTORS = 8

# How much more memory is allowed in the second half of a test than in the first half, in MiB.
MORE_LATER = 8

# The maximum of resident memory at any time, in MiB.
MOST_MEMORY = 256

# What must have happened at least once, or else the test has not tested it.
REQUIRED = [
    ("calls", "answered"), ("calls", "budget used up"), ("calls", "tool was removed"),
    ("calls", "progress notification"), ("stored results", "read"),
    ("stored results", "refused to another caller"), ("sessions", "closed"),
    ("streams", "notified of changed tools"), ("reloads", "applied"), ("reloads", "rejected"),
    ("floods", "closed at the limit"), ("greedy calls", "answered"), ("greedy calls", "too many"),
    ("silent", "closed as idle"), ("idle after a call", "closed as idle"),
    ("slow head", "closed as idle"), ("slow body", "answered"), ("no reader", "closed as idle"),
    ("half a head", "reset by the client"), ("half a body", "closed by the client"),
    ("oversized body", "status 413"), ("too many values", "status 413"),
    ("oversized head", "status 431"), ("garbage", "status 400"), ("wrong token", "status 401"),
    ("foreign session", "status 404"), ("pipelined", "answered in order"),
    ("abandoned", "reset by the client"),
]


class Load:
    """A load test with its clients."""

    good_callers = GOOD_CALLERS

    def __init__(self, gateway, backend, tally):
        self.gateway = gateway
        self.backend = backend
        self.tally = tally
        self.stopping = asyncio.Event()
        # Sessions by caller, and the latest stored results with their callers.
        self.sessions = {}
        self.results = collections.deque(maxlen=50)
        self.scarce = collections.Counter()
        self.reloads = 0
        self.is_flooded = False
        self.flooded_until = 0.0
        self.reloader = Reloads(self)
        self.peak = (0, 0, 0)

    def stopped(self):
        return self.stopping.is_set()

    @contextlib.contextmanager
    def flooding(self):
        self.is_flooded = True
        try:
            yield
        finally:
            self.is_flooded = False
            # The gateway needs a moment to notice that the connections have ended.
            self.flooded_until = time.monotonic() + 2

    def was_flooded_since(self, start):
        return self.is_flooded or start < self.flooded_until

    async def run(self, seconds):
        """Runs all clients at the same time, and waits until each of them has finished."""
        self.stopping.clear()
        clients = [
            kind(self, caller).run()
            for kind, caller, _ in itertools.product(
                (good.Client, good.SessionClient), GOOD_CALLERS, range(CLIENTS)
            )
        ]
        clients += [good.watch(self, caller, number % 2) for number, caller in
                    enumerate(GOOD_CALLERS)]
        clients += [
            hostile.repeat(self, attack, pause)
            for attack, (count, pause) in hostile.ATTACKS.items()
            for _ in range(count)
        ]
        clients += [hostile.floods(self, 6), self.reloader.run(), self.measure()]
        tasks = [asyncio.ensure_future(client) for client in clients]
        # An error of the test itself ends it.
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when="FIRST_EXCEPTION")
        for task in done:
            task.result()
        self.stopping.set()
        await asyncio.wait_for(asyncio.gather(*tasks), 120)

    async def measure(self):
        """Records the highest numbers under load, and checks that probes are answered."""
        while not self.stopped():
            if self.gateway.process.returncode is not None:
                sys.exit(f"the gateway has ended; its log:\n{self.gateway.log()[-4000:]}")
            now = (*self.gateway.memory(), self.gateway.descriptors())
            self.peak = tuple(map(max, self.peak, now))
            try:
                await asyncio.to_thread(self.gateway.probe, "/healthz")
                self.tally.count("probes", "answered")
            except OSError as error:
                self.tally.fail(f"a probe at the listener for metrics: {error}")
            await asyncio.sleep(0.3)

    async def rest(self):
        """Waits until everything has ended, and returns memory and descriptors."""
        await asyncio.sleep(REST)
        # A stored result is removed when another one is stored.
        await hostile.stored_result(self, 400)
        for _ in range(LONGEST_REST):
            connections, calls = self.gateway.client_connections(), await self.backend.calls()
            if not connections and calls["open"] == 0:
                break
            await asyncio.sleep(1)
        self.tally.check(not connections, f"{connections} connections of clients remain open")
        self.tally.check(calls["open"] == 0, f"calls are still open at the backend: {calls}")
        return (*self.gateway.memory(), self.gateway.descriptors())


def check_rest(tally, baseline, now):
    for name, before, after in zip(("resident", "anonymous"), baseline, now):
        tally.check(
            after <= before + MORE_MEMORY * 1024,
            f"{name} memory grew from {before / 1024:.1f} to {after / 1024:.1f} MiB at rest",
        )
    before, after = baseline[2], now[2]
    tally.check(
        after <= before + MORE_DESCRIPTORS, f"{before} file descriptors became {after} at rest"
    )


def check_growth(tally, rests):
    """Checks that memory at rest does not grow with time. Short tests have too few measurements."""
    if len(rests) < 4:
        return
    anonymous = [anonymous for _, anonymous, _ in rests]
    middle = len(anonymous) // 2
    before, after = (statistics.median(half) for half in (anonymous[:middle], anonymous[middle:]))
    tally.check(
        after <= before + MORE_LATER * 1024,
        f"anonymous memory grew from {before / 1024:.1f} MiB in the first half to "
        f"{after / 1024:.1f} MiB in the second",
    )


def check_scarce(load, seconds):
    """Checks that no caller made more calls of the scarce tool than its budget."""
    most = SCARCE * (seconds // REFILL + 2)
    for caller, count in load.scarce.items():
        load.tally.check(
            count <= most, f"{caller} made {count} calls with a budget of {most} in {seconds:.0f} s"
        )


def check_log(tally, log):
    for word in ("panicked", "RUST_BACKTRACE"):
        tally.check(word not in log, f"the log contains `{word}`")
    for caller, token in TOKENS.items():
        tally.check(token not in log, f"the log contains the token of {caller}")
    tally.check(not messages.MARKER.search(log), "the log contains a marker of a call")


async def stop(load):
    """Ends the gateway while calls are in flight, which must be answered."""
    tally, gateway = load.tally, load.gateway

    async def slow_call(number):
        caller = GOOD_CALLERS[number % len(GOOD_CALLERS)]
        mark = messages.marker(caller, number)
        params = messages.call("near_wait", mark, milliseconds=4000)
        try:
            connection = await wire.Connection.open(gateway.address)
            request = messages.stateless(TOKENS[caller], number, "tools/call", params)
            async with asyncio.timeout(good.LOST):
                response = await connection.exchange(request)
            connection.close()
        except (wire.Closed, OSError) as error:
            tally.fail(f"a call in flight at SIGTERM was lost: {error}")
            return
        found = messages.MARKER.findall(response.text())
        tally.check(found == [mark], f"a call in flight at SIGTERM: {response.text()[:200]}")
        tally.count("calls in flight at SIGTERM", "answered")

    before = (await load.backend.calls())["all"]
    calls = [asyncio.ensure_future(slow_call(number)) for number in range(24)]
    async with asyncio.timeout(good.LOST):
        while (await load.backend.calls())["all"] < before + len(calls):
            await asyncio.sleep(0.1)
        gateway.signal()
        while "waiting up to" not in gateway.log():
            await asyncio.sleep(0.1)
    try:
        connection = await wire.Connection.open(gateway.address)
        connection.close()
        tally.fail("a connection was accepted after SIGTERM")
    except OSError:
        pass
    await asyncio.gather(*calls)
    code = await gateway.wait(DRAIN + 60)
    tally.check(code == 0, f"the exit code after SIGTERM is {code}, not 0")


async def test(options, folder, tally):
    backend = await Backend.start(options.fault)
    gateway = await Gateway.start(options.program, folder, backend.port)
    load = Load(gateway, backend, tally)
    started = time.monotonic()
    try:
        await hostile.hoard(load, REQUESTS_OF_CALLER + 5)
        await load.run(WARM_UP)
        baseline = await load.rest()
        print_rest("after the warm-up", baseline)
        rests = []
        end = started + options.minutes * 60
        while (left := end - time.monotonic() - REST) > 5:
            cycles = max(1, round(left / (LONGEST + REST)))
            await load.run(left / cycles - REST * (cycles - 1) / cycles)
            now = await load.rest()
            print_rest(f"after {(time.monotonic() - started) / 60:.1f} minutes", now)
            check_rest(tally, baseline, now)
            rests.append(now)
        check_growth(tally, rests)
        check_scarce(load, time.monotonic() - started)
        await stop(load)
        check_log(tally, gateway.log())
    finally:
        await gateway.kill()
        await backend.stop()
    return load


def print_rest(when, measured):
    resident, anonymous, descriptors = measured
    print(
        f"{when}: {resident / 1024:.1f} MiB resident, {anonymous / 1024:.1f} MiB anonymous, "
        f"{descriptors} file descriptors",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True, help="the program mcp-composite")
    parser.add_argument("--minutes", type=float, default=1, help="the duration, at least 1")
    parser.add_argument("--seed", type=int, help="repeats the random choices of a run")
    parser.add_argument("--keep", metavar="FOLDER", help="copies the file and the log there")
    parser.add_argument(
        "--fault", choices=["swap", "lose"], default="", help="lets the backend fail, so that the "
        "test must fail: swaps markers between calls, or never answers some"
    )
    options = parser.parse_args()
    options.program = pathlib.Path(options.program).resolve()
    if options.minutes < 1:
        parser.error("--minutes must be at least 1: a load and a pause come after the warm-up")
    if not options.program.is_file():
        sys.exit(f"{options.program} does not exist: run `cargo build --features cli` first")
    if not pathlib.Path("/proc/self/status").exists():
        sys.exit("this test needs Linux: it reads /proc")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seed = random.randrange(2**32) if options.seed is None else options.seed
    random.seed(seed)
    print(f"seed {seed}", flush=True)

    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        try:
            load = asyncio.run(test(options, folder, tally))
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
    for group, kind in REQUIRED:
        tally.check(tally.total(group, kind), f"`{group}: {kind}` did not occur")
    resident, anonymous, descriptors = load.peak
    tally.check(
        resident <= MOST_MEMORY * 1024, f"{resident / 1024:.0f} MiB were resident under load"
    )
    print(
        f"under load: at most {resident / 1024:.1f} MiB resident, {anonymous / 1024:.1f} MiB "
        f"anonymous, {descriptors} file descriptors"
    )
    print(
        f"{len(tally.durations)} requests of good clients took {tally.percentile(50):.0f} ms (p50), "
        f"{tally.percentile(99):.0f} ms (p99), {tally.percentile(100):.0f} ms (max)"
    )
    tally.print_counts()
    tally.print_failures()
    if tally.failure_count:
        sys.exit(f"failed: {tally.failure_count} checks")
    print("passed")


if __name__ == "__main__":
    main()
