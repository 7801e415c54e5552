#!/usr/bin/env python3
"""Kills replicas, restarts the store and cuts connections while Redis or Restate stores runs.

Starts a backend, a store and three replicas of the gateway, and fails if a run does not end,
if a call that must not be repeated is made twice, if an answer is used twice, or if a cancelled run
continues. See `README.md` in this folder.
"""

import argparse
import asyncio
import collections
import faulthandler
import pathlib
import random
import resource
import shutil
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "load"))

import composites
import history
import servers
import stores
from client import Client
from disruptions import Disruptions
from shop import Shop
from tally import Tally

REPLICAS = 3

# The time in seconds in which runs without a client must have ended: a lease, and some takeovers.
LAST = 90

# The time in seconds in which a test must end, without and for each run.
LIMIT = 900
LIMIT_OF_RUN = 1

# The number of runs from which on kills must hit all step boundaries.
MANY = 5000

# What must have happened at least once, or else the test has not tested it. The test starts more
# runs than requested until all of it has happened.
REQUIRED = [
    ("replicas", "killed"), ("killed runs", "completed"), ("runs", "completed"),
    ("runs", "cancelled"), ("answers", "used in calls"),
]
# What must also have happened at the end of a test with many runs.
REQUIRED_OF_MANY = [
    ("replicas", "shut down"), ("store", "killed"), ("store", "restarted"), ("partitions", "cut"),
    ("partitions", "silent"), ("partitions", "slow"), ("runs", "lost"),
    ("lost steps", "had been called"),
]

# The outcomes of runs whose task the client does not know.
UNKNOWN = ("start not answered", "start rejected")

# The number of runs whose history is printed if a check fails.
PRINTED = 5


class Chaos:
    """The processes of the test, and its clients."""

    def __init__(self, options, folder, tally):
        self.options = options
        self.folder = folder
        self.tally = tally
        self.runs = history.Runs(tally)

    async def start(self):
        self.shop = Shop(self.options.fault, self.runs, self.tally)
        port = await self.shop.start()
        store = stores.STORES[self.options.store]
        self.store = store(self.folder, self.options.fault == "forget")
        await self.store.start()
        text = composites.configuration(composites.COMPOSITES + composites.INNER, store.sections)
        (self.folder / "tools.toml").write_text(text)
        self.replicas = []
        self.store.balancer = servers.Balancer(self.replicas)
        await self.store.balancer.start()
        for number in range(REPLICAS):
            link = servers.Link(self.store)
            await link.start()
            replica = servers.Replica(
                number, self.options.program, self.folder, self.store, link, port
            )
            self.replicas.append(replica)
            await replica.run()
        self.client = Client(self.replicas, self.runs, self.tally)
        boundaries = {
            (each["name"], ended)
            for each in composites.COMPOSITES
            for ended in range(composites.calls(each["name"]))
        }
        self.boundaries = len(boundaries)
        self.disruptions = Disruptions(
            self.store, self.replicas, self.runs, self.tally, boundaries
        )
        self.shop.on_change = self.disruptions.on_change

    async def stop(self):
        for replica in self.replicas:
            await replica.kill()
        await self.store.stop()

    def names(self):
        """Returns the names of composites in random order, each equally often."""
        while True:
            for composite in random.sample(composites.COMPOSITES, len(composites.COMPOSITES)):
                yield composite["name"]

    def missing(self, required):
        """Returns the required events that have not happened yet."""
        return [
            f"{group}: {kind}" for group, kind in required if not self.tally.total(group, kind)
        ]

    async def batch(self, count):
        """Lets at least this many runs end while everything fails, and checks that none is left."""
        left = count
        names = self.names()

        async def worker():
            nonlocal left
            while left > 0 or self.missing(REQUIRED):
                left -= 1
                if not await self.client.drive(next(names)):
                    left += 1
                    await asyncio.sleep(0.2)

        disrupting = asyncio.ensure_future(self.disruptions.run())
        working = asyncio.gather(*(worker() for _ in range(self.options.parallel)))
        await asyncio.wait([disrupting, working], return_when="FIRST_COMPLETED")
        self.disruptions.end()
        await disrupting
        await working
        await self.check_store()

    async def check_store(self):
        """Waits until no task works any more, and removes all tasks."""
        end = time.monotonic() + LAST
        while (working := self.store.working()) and time.monotonic() < end:
            await asyncio.sleep(1)
        self.tally.check(not working, f"store: {working} tasks still work")
        for number in self.store.unfinished():
            run = self.runs[number]
            # The client does not know the ID of such a task, and so cannot answer its questions.
            is_asking = run.outcome in UNKNOWN and run.composite == "questions"
            self.tally.check(is_asking, f"store: {run} ({run.outcome}) is left as a task")
            self.tally.count("tasks without a client", "wait for an answer")
        self.store.clear()

    def check_runs(self):
        for run in self.runs.values():
            history.check(run, self.tally, self.disruptions)
        for replica in self.replicas:
            self.tally.check("panicked" not in replica.log(), "the log contains `panicked`")
        has_many = self.options.runs >= MANY
        for what in self.missing((REQUIRED_OF_MANY + self.store.required) * has_many):
            self.tally.fail(f"`{what}` did not occur")
        needed = self.disruptions.needed
        self.tally.check(
            not (has_many and needed), f"kills have hit no run at the boundaries {needed}"
        )


def place(task):
    """Returns the functions in which a task of asyncio waits, the outermost first, with lines."""
    places = []
    awaited = task.get_coro()
    while frame := getattr(awaited, "cr_frame", None):
        places.append(f"{awaited.__name__}:{frame.f_lineno}")
        awaited = awaited.cr_await
    return " > ".join(places)


def give_up(limit, chaos):
    """Ends a test that takes too long, and prints what it waits for."""
    if missing := chaos.missing(REQUIRED):
        print("what has not occurred: " + ", ".join(missing))
    places = collections.Counter(place(task) for task in asyncio.all_tasks())
    for text, number in places.most_common():
        print(f"{number} tasks wait in {text}")
    chaos.tally.print_counts()
    # Else asyncio prints a traceback for each connection.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    sys.exit(f"failed: the test did not end within {limit} s")


async def test(options, folder, tally):
    limit = LIMIT + LIMIT_OF_RUN * options.runs
    # Ends the test also if a function blocks.
    faulthandler.dump_traceback_later(limit + 60, exit=True)
    chaos = Chaos(options, folder, tally)
    asyncio.get_running_loop().call_later(limit, give_up, limit, chaos)
    await chaos.start()
    try:
        left = options.runs
        while left > 0:
            await chaos.batch(min(left, chaos.store.batch))
            left -= chaos.store.batch
            print(f"{len(chaos.runs)} runs have ended", flush=True)
        chaos.check_runs()
    finally:
        await chaos.stop()
    return chaos


def print_summary(chaos, seconds):
    disruptions = chaos.disruptions
    print(f"{len(chaos.runs)} runs in {seconds:.0f} s, over {REPLICAS} replicas, "
          f"with {chaos.store.name}")
    hit = len(disruptions.boundaries)
    print(f"kills have hit {hit} of {chaos.boundaries} step boundaries, and runs "
          f"{sum(disruptions.boundaries.values())} times: "
          + ", ".join(f"{kind} {number}" for kind, number in disruptions.hits.items()))
    if chaos.store.takeover:
        takeovers = sum(replica.log().count(chaos.store.takeover) for replica in chaos.replicas)
        print(f"replicas took over tasks {takeovers} times")
    moved = sum(len({call.replica for call in run.calls}) > 1 for run in chaos.runs.values())
    print(f"runs with calls from several replicas: {moved}")
    calls = [call for run in chaos.runs.values() for call in run.calls]
    counts = collections.Counter(call.tool for call in calls)
    print("calls: " + ", ".join(f"{tool} {number}" for tool, number in sorted(counts.items())))
    counts = collections.Counter(call.replica for call in calls)
    print("calls by replica: " + ", ".join(str(counts[number]) for number in range(REPLICAS)))


def print_histories(chaos, tally):
    """Prints the histories of the first runs that have failed a check."""
    numbers = []
    for first, _ in tally.failures.values():
        words = first.split("run ")
        numbers += [int(word.split(" ")[0]) for word in words[1:] if word.split(" ")[0].isdigit()]
    for number in numbers[:PRINTED]:
        run = chaos.runs[number]
        print(f"\n{run}:")
        for moment, line in run.history():
            print(f"  {moment - run.started:8.3f} s  {line}")
        disruptions = chaos.disruptions
        for what, times in [
            ("could not reach the store", disruptions.outages),
            ("did not run", disruptions.absences),
        ]:
            for replica, start, end in times:
                if start <= (run.ended or end) and run.started <= end:
                    print(f"  {start - run.started:8.3f} s  replica {replica} {what} for "
                          f"{end - start:.1f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--program", required=True, help="the program mcp-composite")
    parser.add_argument(
        "--store", choices=stores.STORES, default="redis", help="where runs are stored"
    )
    parser.add_argument("--runs", type=int, default=10_000, help="the minimum number of runs")
    parser.add_argument("--parallel", type=int, default=200, help="the number of runs at a time")
    parser.add_argument("--seed", type=int, help="repeats the random choices of a test")
    parser.add_argument("--keep", metavar="FOLDER", help="copies the file and the logs there")
    parser.add_argument(
        "--fault", choices=["repeat", "forget"], default="", help="lets a server fail, so that the "
        "test must fail: the backend calls all its tools idempotent, or the store loses its data"
    )
    options = parser.parse_args()
    options.program = pathlib.Path(options.program).resolve()
    if not options.program.is_file():
        sys.exit(f"{options.program} does not exist: build it with the features `cli,redis,restate`")
    if missing := stores.STORES[options.store].missing():
        sys.exit(missing)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    seed = random.randrange(2**32) if options.seed is None else options.seed
    random.seed(seed)
    print(f"seed {seed}", flush=True)

    tally = Tally()
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        try:
            chaos = asyncio.run(test(options, folder, tally))
            print_summary(chaos, time.monotonic() - started)
        finally:
            if options.keep:
                shutil.copytree(folder, options.keep, dirs_exist_ok=True)
    tally.print_counts()
    tally.print_failures()
    if tally.failure_count:
        print_histories(chaos, tally)
        sys.exit(f"failed: {tally.failure_count} checks; seed {seed}")
    print("passed")


if __name__ == "__main__":
    main()
