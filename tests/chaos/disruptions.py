"""Kills replicas, restarts the store, and cuts the connections between them."""

import asyncio
import collections
import contextlib
import random
import signal
import time

# The mean times in seconds between two disruptions of a kind.
KILL = 2
RESTART = 15
PARTITION = 4

# How long a killed replica stays away, at most.
AWAY = 2

# The share of replicas that are shut down instead of killed.
SHUTDOWNS = 0.15

# How long a partition lasts, and how long the store stays away. The states of runs must be stored
# within 5 seconds, and a lease expires after 15 seconds.
PARTITIONS = [0.5, 2, 4, 8, 20]
OUTAGES = [0, 0, 0.5, 2, 8]


class Disruptions:
    def __init__(self, store, replicas, runs, tally, needed):
        self.store = store
        self.replicas = replicas
        self.runs = runs
        self.tally = tally
        # The boundaries that no kill has hit yet, and how often each was hit.
        self.needed = set(needed)
        self.boundaries = collections.Counter()
        # The number of kills that have hit a run within or between calls.
        self.hits = collections.Counter()
        # The times at which a replica could not reach the store: its number, the start and the end.
        self.outages = []
        # The times at which a replica did not run, likewise.
        self.absences = []
        self.armed = False
        # The replica that was killed last.
        self.victim = None
        self.ended = asyncio.Event()

    def on_change(self, run, call):
        """Kills the replica of a call if no kill has hit this boundary of its composite yet."""
        if not self.armed:
            return
        boundary = run.boundary(call.replica)
        if boundary and (run.composite, boundary[0]) in self.needed:
            self.armed = False
            # Also hits the time at which the replica stores the outcome of the call.
            delay = random.choice([0, 0, 0.001, 0.003, 0.01, 0.02])
            asyncio.get_running_loop().call_later(delay, self.kill, self.replicas[call.replica])

    def kill(self, replica):
        """Kills a replica, and records which boundaries of runs this has hit."""
        if self.victim.done():
            return
        for run in self.runs.open:
            if boundary := run.boundary(replica.number):
                ended, is_calling = boundary
                run.hit()
                self.boundaries[run.composite, ended] += 1
                self.needed.discard((run.composite, ended))
                self.hits["within calls" if is_calling else "between calls"] += 1
        replica.kill_now()
        self.victim.set_result(replica)

    async def kills(self):
        while await self.wait(random.uniform(0.5, 1.5) * KILL):
            await self.replace()

    async def replace(self):
        """Ends a replica, and starts it again."""
        start = time.monotonic()
        if random.random() < SHUTDOWNS:
            replica = random.choice(self.replicas)
            replica.signal(signal.SIGTERM)
            if await replica.wait(60) is None:
                self.tally.fail(f"replicas: replica {replica.number} did not stop in 60 s")
                await replica.kill()
            self.tally.count("replicas", "shut down")
        else:
            replica = await self.killed()
            await replica.process.wait()
            self.tally.count("replicas", "killed")
        await self.wait(random.uniform(0, AWAY))
        await replica.run()
        self.absences.append((replica.number, start, time.monotonic()))

    async def killed(self):
        """Kills a replica at a boundary that no kill has hit yet, or at a random moment."""
        self.victim = asyncio.get_running_loop().create_future()
        self.armed = bool(self.needed) and random.random() < 0.7
        if self.armed:
            await asyncio.wait([self.victim], timeout=2)
            self.armed = False
        if not self.victim.done():
            self.kill(random.choice(self.busy() or self.replicas))
        return self.victim.result()

    def busy(self):
        """Returns the replicas that execute runs, as far as their calls show."""
        return [
            replica for replica in self.replicas
            if any(run.boundary(replica.number) for run in self.runs.open)
        ]

    async def restarts(self):
        while await self.wait(random.uniform(0.5, 1.5) * RESTART):
            number = random.choice([signal.SIGKILL, signal.SIGTERM])
            start = time.monotonic()
            await self.store.stop(number)
            await self.wait(random.choice(OUTAGES))
            await self.store.start()
            for replica in self.replicas:
                self.outages.append((replica.number, start, time.monotonic()))
            self.tally.count("store", "killed" if number == signal.SIGKILL else "restarted")

    async def partitions(self):
        while await self.wait(random.uniform(0.5, 1.5) * PARTITION):
            replica = random.choice(self.replicas)
            mode = random.choice(["cut", "silent", "slow"])
            start = time.monotonic()
            replica.link.set(mode)
            await self.wait(random.choice(PARTITIONS))
            replica.link.set("open")
            self.outages.append((replica.number, start, time.monotonic()))
            self.tally.count("partitions", mode)

    async def wait(self, seconds):
        """Waits until this time is over or `end` was called. Returns whether to continue."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        return not self.ended.is_set()

    async def run(self):
        """Disrupts until `end` is called, and then waits until everything runs again."""
        self.ended.clear()
        async with asyncio.TaskGroup() as group:
            for disruption in (self.kills, self.restarts, self.partitions):
                group.create_task(disruption())

    def end(self):
        """Ends the disruptions.

        They are not cancelled: a cancelled restart could leave the store stopped.
        """
        self.ended.set()

    def quiet_after(self, replica, moment, seconds):
        """Returns the time from which on this replica could reach the store for some seconds.

        If the replica is `None`, all replicas could do so.
        """
        for number, start, end in sorted(self.outages, key=lambda outage: outage[1]):
            if replica in (number, None) and start <= moment + seconds and moment <= end:
                moment = end
        return moment

    def was_away(self, replica, start, end):
        """Returns whether this replica could not reach the store at some time in this interval."""
        # The connections of a replica may fail a little later.
        return any(
            number == replica and begun <= end and ended + 2 >= start
            for number, begun, ended in self.outages
        )

    def has_hit(self, run, only_outages):
        """Returns whether a disruption, or a replica without the store, may have hit a run."""
        hits = self.outages if only_outages else self.outages + self.absences
        # The connections of a replica may fail a little later.
        return any(start <= run.ended and run.started <= end + 2 for _, start, end in hits)
