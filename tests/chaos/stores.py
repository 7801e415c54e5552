"""The servers in which runs are stored: Redis and Restate."""

import asyncio
import collections
import contextlib
import json
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import urllib.request

from servers import free_port, listens

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent


class Redis:
    """A Redis server that writes each change to disk before it answers, unless it `forgets`."""

    name = "Redis"
    # The number of runs after which the test waits for all runs, and removes them: the server
    # stores at most 10 000 tasks.
    batch = 2500
    sections = [
        "[redis]\nurl = '${REDIS_URL}'\nprefix = 'chaos'",
        "[state]\nstore = 'redis'",
    ]
    # What must have happened at least once in a test with many runs.
    required = [("runs", "not stored")]
    # The time in seconds after which a cancelled run makes no more calls: the longest time between
    # two renewals of a lease.
    cancel_bound = 5
    # Whether a replica may execute a run before it makes a call of it.
    moves_runs = False
    # The message in the log of a replica that continues a task of another one.
    takeover = "took over a task"

    def __init__(self, folder, forgets):
        self.folder = folder
        self.forgets = forgets
        self.port = free_port()

    @classmethod
    def missing(cls):
        """Returns what the machine lacks to run the server."""
        if not shutil.which("redis-server"):
            return "this test needs `redis-server`, as with `apt-get install redis-server`"
        return None

    async def start(self):
        options = {
            "--port": self.port, "--bind": "127.0.0.1", "--dir": self.folder, "--save": "",
            "--appendonly": "no" if self.forgets else "yes", "--appendfsync": "always",
        }
        self.process = await asyncio.create_subprocess_exec(
            "redis-server", *(str(text) for option in options.items() for text in option),
            "--logfile", self.folder / "redis.log", stdin=asyncio.subprocess.DEVNULL,
        )
        await listens(self.port, self.process, self.folder / "redis.log")

    async def stop(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        await self.process.wait()

    def options(self, replica):
        """Returns the environment and the arguments of a replica."""
        return {"REDIS_URL": f"redis://127.0.0.1:{replica.link.port}"}, []

    def command(self, *words):
        """Returns the lines of the reply to a command."""
        command = ["redis-cli", "-p", str(self.port), "--raw", *map(str, words)]
        reply = subprocess.run(command, check=True, capture_output=True, timeout=60)
        return reply.stdout.decode().splitlines()

    def tasks(self, of):
        """Returns the keys of the tasks in a set."""
        keys = self.command("ZRANGE", f"{{chaos:task}}:{of}", 0, -1)
        # The reply of an empty set is an empty line.
        return [key for key in keys if key]

    def working(self):
        """Returns the number of tasks that work."""
        return len(self.tasks("working"))

    def unfinished(self):
        """Returns the numbers of the runs whose tasks have not ended."""
        for key in self.tasks("unfinished"):
            [call] = self.command("HGET", f"{{chaos:task}}:record:{key}", "call")
            yield run_of(call)

    def clear(self):
        """Removes all tasks."""
        self.command("FLUSHALL")


class Restate:
    """A Restate server that writes each event to disk before it answers, unless it `forgets`.

    It calls the replicas through a `Balancer`.
    """

    name = "Restate"
    batch = 2500
    sections = []
    required = []
    # The longest time until the server executes an interrupted run again, twice.
    cancel_bound = 10
    moves_runs = True
    # A replica does not know whether it is the first that executes a run.
    takeover = None

    def __init__(self, folder, forgets):
        self.folder = folder
        self.forgets = forgets
        self.data = folder / "restate"
        self.log = folder / "restate.log"
        self.port, self.admin, self.node = free_port(), free_port(), free_port()
        self.balancer = None

    @classmethod
    def missing(cls):
        subprocess.run([REPOSITORY / "tests/restate/install.sh"], check=True)
        return None if cls.program().is_file() else f"{cls.program()} does not exist"

    @classmethod
    def program(cls):
        machine = "arm64" if platform.machine() in ("arm64", "aarch64") else "x64"
        package = f"@restatedev/restate-server-linux-{machine}/bin/restate-server"
        return REPOSITORY / "target/restate/node_modules" / package

    async def start(self):
        if self.forgets:
            shutil.rmtree(self.data, ignore_errors=True)
        environment = {
            "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{self.port}",
            "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{self.admin}",
            "RESTATE_DEFAULT_NUM_PARTITIONS": "2",
            "RESTATE_DISABLE_TELEMETRY": "true",
            "DO_NOT_TRACK": "1",
        }
        with self.log.open("ab") as file:
            self.process = await asyncio.create_subprocess_exec(
                self.program(), "--node-name", "chaos", "--no-logo", "--listen-mode", "tcp",
                "--bind-ip", "127.0.0.1", "--bind-port", str(self.node), "--base-dir", self.data,
                env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=file, stderr=file,
            )
        for port in (self.port, self.admin):
            await listens(port, self.process, self.log)
        await self.answers()

    async def answers(self):
        """Waits until queries of runs succeed, which takes longer than until the server listens."""
        for _ in range(600):
            with contextlib.suppress(OSError):
                await asyncio.to_thread(self.query, "SELECT id FROM sys_invocation LIMIT 1")
                return
            await asyncio.sleep(0.1)
        sys.exit(f"Restate answers no queries; its log: {self.log.read_text()[-4000:]}")

    async def stop(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        try:
            await asyncio.wait_for(self.process.wait(), 20)
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    def options(self, replica):
        return {}, [
            "--durable", f"restate=http://127.0.0.1:{replica.link.port}",
            "--durable-listen", f"127.0.0.1:{replica.endpoint}",
            "--durable-url", f"http://127.0.0.1:{self.balancer.port}",
            "--durable-admin", f"http://127.0.0.1:{self.admin}",
        ]

    def query(self, sql):
        """Returns the rows of a query of the admin interface."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.admin}/query", json.dumps({"query": sql}).encode(),
            {"content-type": "application/json", "accept": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.load(response)["rows"]

    def tasks(self):
        """Returns the states of the tasks that have not ended."""
        rows = self.query(
            "SELECT run.target_service_key AS task, state.key, state.value_utf8 AS value"
            " FROM sys_invocation run LEFT JOIN state ON state.service_key = run.target_service_key"
            " WHERE run.target_handler_name = 'run' AND run.status <> 'completed'"
        )
        tasks = collections.defaultdict(dict)
        for row in rows:
            tasks[row["task"]][row.get("key")] = row.get("value")
        return tasks.values()

    def working(self):
        # The phase of a task that waits for an answer is an object.
        return sum('"phase":"' in task.get("status", '"phase":"') for task in self.tasks())

    def unfinished(self):
        for task in self.tasks():
            yield run_of(task["call"])

    def clear(self):
        """Does nothing: the server keeps any number of tasks."""


def run_of(call):
    """Returns the number of the run of a stored call."""
    return json.loads(call)["params"]["arguments"]["run"]


STORES = {"redis": Redis, "restate": Restate}
