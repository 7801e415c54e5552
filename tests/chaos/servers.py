"""The replicas, and the connections between them and the store, all of which can fail."""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys

from gateway import Gateway


# Ports below those that systems give to outgoing connections, any of which could take a port
# before or between two starts of a program.
PORTS = iter(random.sample(range(20_000, 32_000), 12_000))


def free_port():
    """Returns a port for a program that cannot choose one and report it."""
    for port in PORTS:
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
    sys.exit("no port is free")


async def listens(port, process, log):
    """Waits until a process accepts connections at a port. Ends the test with its log otherwise."""
    for _ in range(1200):
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        if process.returncode is not None:
            break
        await asyncio.sleep(0.05)
    sys.exit(f"a process does not listen; its log:\n{log.read_text(errors='replace')[-4000:]}")


class Link:
    """A TCP proxy between one replica and the store.

    Its mode is `open`, `cut` (connections are closed), `silent` (connections are accepted, and data
    arrives when the mode changes) or `slow`.
    """

    def __init__(self, store):
        self.store = store
        self.mode = "open"
        self.changed = asyncio.Event()
        self.writers = set()

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    def set(self, mode):
        self.mode = mode
        self.changed.set()
        self.changed = asyncio.Event()
        if mode == "cut":
            for writer in self.writers:
                writer.transport.abort()

    async def accept(self, reader, writer):
        await self.connect(reader, writer, self.store.port)

    async def connect(self, reader, writer, port):
        """Forwards a connection to a port of the store or the replica."""
        await self.passable()
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()
            return
        self.writers |= {writer, far_writer}
        if self.mode == "cut":
            writer.transport.abort()
            far_writer.transport.abort()
        await asyncio.gather(self.forward(reader, far_writer), self.forward(far_reader, writer))
        self.writers -= {writer, far_writer}

    async def passable(self):
        while self.mode == "silent":
            await self.changed.wait()
        if self.mode == "slow":
            await asyncio.sleep(random.uniform(0, 0.3))

    async def forward(self, reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self.passable()
                writer.write(data)
                await writer.drain()
        writer.close()


class Balancer:
    """A load balancer in front of the addresses at which the store calls the replicas."""

    def __init__(self, replicas):
        self.replicas = replicas

    async def start(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        self.port = self.server.sockets[0].getsockname()[1]

    async def accept(self, reader, writer):
        """Forwards a connection to a random replica that runs and can be reached."""
        running = [
            replica for replica in self.replicas
            if replica.is_running() and replica.link.mode != "cut"
        ]
        if not running:
            writer.transport.abort()
            return
        replica = random.choice(running)
        await replica.link.connect(reader, writer, replica.endpoint)


class Replica(Gateway):
    """A process of the gateway, which is started again at the same address."""

    def __init__(self, number, program, folder, store, link, backend_port):
        self.number = number
        self.program = program
        self.link = link
        self.process = None
        self.address = ("127.0.0.1", free_port())
        # The port at which the store calls the replica, if it does so.
        self.endpoint = free_port()
        self.file = folder / "tools.toml"
        self.log_path = folder / f"replica-{number}.log"
        environment, self.arguments = store.options(self)
        self.environment = os.environ | environment | {
            "BACKEND_URL": f"http://127.0.0.1:{backend_port}/{number}",
        }

    async def run(self):
        address = f"127.0.0.1:{self.address[1]}"
        with self.log_path.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                self.program, "serve", self.file, "--http", address, "--drain", "1s",
                *self.arguments, env=self.environment, stdin=asyncio.subprocess.DEVNULL, stderr=log,
            )
        await listens(self.address[1], self.process, self.log_path)

    def is_running(self):
        return self.process is not None and self.process.returncode is None

    def kill_now(self):
        """Kills the process, without waiting for its end."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
