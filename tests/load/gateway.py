"""The gateway under test, its file and its backend."""

import asyncio
import json
import os
import pathlib
import re
import secrets
import signal
import sys
import urllib.request

FOLDER = pathlib.Path(__file__).resolve().parent

# The limits of the gateway. They are tight, so that the test reaches each of them.
TCP_CONNECTIONS = 256
OPEN_REQUESTS = 200
REQUESTS_OF_CALLER = 48
IDLE = 4
DRAIN = 10

# The budget of the tool `scarce`: calls of each caller, and the seconds until it is refilled.
SCARCE = 5
REFILL = 5

# Results above this size in bytes are truncated and stored.
LARGE = 8192
STORED_SECONDS = 6

GOOD_CALLERS = ["alice", "bob", "carol", "dave"]
CALLERS = [*GOOD_CALLERS, "greedy", "hoarder", "hostile"]
TOKENS = {caller: f"{caller}-{secrets.token_hex(16)}" for caller in CALLERS}

COMPOSITES = """
[[composite_tools]]
name = "everywhere"
description = "Calls three tools at once"
input_schema = { type = "object" }
targets = [
    { id = "one", tool = "near_echo", arguments = { marker = "$input.marker" } },
    { id = "two", tool = "near_wait", arguments = { marker = "$input.marker", milliseconds = 20 } },
    { id = "three", tool = "far_echo", arguments = { marker = "$input.marker" } },
]

[[composite_tools]]
name = "chain"
description = "Calls tools one after another"
strategy = "workflow"
input_schema = { type = "object" }

[[composite_tools.steps]]
id = "first"
tool = "near_echo"
arguments = { marker = "$input.marker" }

[[composite_tools.steps]]
id = "second"
tool = "far_echo"
arguments = { marker = "{{ steps.first.text }}" }

[[composite_tools.steps]]
id = "each"
type = "for_each"
collection = "$input.items"
tool = "near_wait"
arguments = { marker = "$item", milliseconds = 5 }
depends_on = ["second"]
"""


def configuration(port, version=0):
    """Returns the file of the gateway.

    Versions differ in the sections that a reload may change: a composite, a backend, the size of
    results, and limits on requests.
    """
    url = f"http://127.0.0.1:{port}/"
    backends = ["near", "far"] + (["extra"] if version % 2 else [])
    parts = [f"[[backends]]\nname = '{name}'\nurl = '{url}'\ntimeout = '20s'" for name in backends]
    parts += [
        f"[[auth.tokens]]\ncaller = '{caller}'\ntoken = '${{TOKEN_{caller.upper()}}}'"
        for caller in CALLERS
    ]
    parts += [
        f"[[budget.limits]]\nname = 'scarce'\ntools = ['near_scarce']\nlimit = {SCARCE}\n"
        f"per = 'caller'\nrefill = {{ every = '{REFILL}s' }}",
        "[[budget.limits]]\nname = 'all calls'\nlimit = 1_000_000_000\nper = 'caller'",
        f"[truncate]\nmax_result_bytes = {LARGE + version % 3 * 1024}",
        f"[results]\nttl = '{STORED_SECONDS}s'\nmax_total_bytes = 16_777_216",
        f"[validate]\nmax_depth = {20 + version % 5}\nschema = 'warn'",
        COMPOSITES,
        f"[[composite_tools]]\nname = 'version_{version}'\ndescription = 'Changes'\n"
        "tools = ['near_echo']",
    ]
    return "\n\n".join(parts) + "\n"


class Backend:
    """The process of the backend."""

    @classmethod
    async def start(cls, fault):
        self = cls()
        self.process = await asyncio.create_subprocess_exec(
            sys.executable, FOLDER / "backend.py", fault,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        )
        self.port = int(await self.process.stdout.readline())
        return self

    async def calls(self):
        """Returns the numbers of calls in flight and of all calls."""
        return json.loads(await asyncio.to_thread(fetch, f"http://127.0.0.1:{self.port}/calls"))

    async def stop(self):
        self.process.stdin.close()
        await self.process.wait()


class Gateway:
    """The process of the gateway."""

    @classmethod
    async def start(cls, program, folder, port):
        self = cls()
        self.port = port
        self.file = pathlib.Path(folder) / "tools.toml"
        self.log_path = pathlib.Path(folder) / "log"
        self.file.write_text(configuration(port))
        options = {
            "--http": "127.0.0.1:0",
            "--metrics": "127.0.0.1:0",
            "--max-tcp-connections": TCP_CONNECTIONS,
            "--max-connections": OPEN_REQUESTS,
            "--max-connections-per-caller": REQUESTS_OF_CALLER,
            "--idle-timeout": f"{IDLE}s",
            "--drain": f"{DRAIN}s",
        }
        arguments = [text for option in options.items() for text in map(str, option)]
        tokens = {f"TOKEN_{caller.upper()}": token for caller, token in TOKENS.items()}
        environment = {name: value for name, value in os.environ.items() if name != "RUST_LOG"}
        with self.log_path.open("wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                program, "serve", self.file, "--watch", *arguments,
                env=environment | tokens, stdin=asyncio.subprocess.DEVNULL, stderr=log,
            )
        self.address = await self.listening(r"serving http://127\.0\.0\.1:(\d+)/mcp")
        self.probes = await self.listening(r"http://127\.0\.0\.1:(\d+)/metrics")
        return self

    async def listening(self, pattern):
        for _ in range(600):
            if found := re.search(pattern, self.log()):
                return "127.0.0.1", int(found[1])
            if self.process.returncode is not None:
                break
            await asyncio.sleep(0.1)
        sys.exit(f"the gateway does not listen; its log:\n{self.log()}")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def memory(self):
        """Returns the resident and the anonymous memory in KiB."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return tuple(
            int(re.search(rf"^{field}:\s+(\d+) kB", status, re.M)[1])
            for field in ("VmRSS", "RssAnon")
        )

    def descriptors(self):
        """Returns the number of open file descriptors."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def client_ports(self):
        """Returns the ports of clients whose TCP connections the program holds open."""
        local = f":{self.address[1]:04X}"
        lines = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
        sockets = (line.split() for line in lines)
        # Without an inode, the system has accepted the connection, but the program has not, or the
        # program has closed it. The states are ESTABLISHED and CLOSE_WAIT.
        return [
            int(fields[2].split(":")[1], 16)
            for fields in sockets
            if fields[1].endswith(local) and fields[3] in ("01", "08") and fields[9] != "0"
        ]

    def client_connections(self):
        """Returns the number of open TCP connections to the port of the clients."""
        return len(self.client_ports())

    def probe(self, path):
        """Returns the answer of the listener for probes and metrics."""
        return fetch(f"http://127.0.0.1:{self.probes[1]}{path}")

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    async def wait(self, seconds):
        """Returns the exit code, or nothing if the process does not end in this time."""
        try:
            return await asyncio.wait_for(self.process.wait(), seconds)
        except TimeoutError:
            return None

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


def fetch(url):
    with urllib.request.urlopen(url, timeout=60) as response:
        return response.read().decode()
